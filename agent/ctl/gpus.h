/* What hvdctl prints of the GPUs of a node. */
#ifndef HVD_AGENT_CTL_GPUS_H
#define HVD_AGENT_CTL_GPUS_H

#include "common/protocol/control.pb-c.h"

void gpus_show(Hvd__Gpus *g);
void gpus_show_json(const Hvd__Gpus *g);

#endif
