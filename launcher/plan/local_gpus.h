/* The GPUs of the host that hvdrun runs on, for --dry-run and --check-build: what its hvdagent says of them,
 * asked once, when it is wanted. No other host is asked. */
#ifndef HVD_LAUNCHER_PLAN_LOCAL_GPUS_H
#define HVD_LAUNCHER_PLAN_LOCAL_GPUS_H

#include <stdio.h>

#include "common/base/err.h"
#include "common/base/json.h"
#include "common/protocol/control.pb-c.h"

/* Freed with message_free; NULL with *e. */
Hvd__Gpus *local_gpus(bool libraries, struct err *e);
/* A table, and what is wrong with them; nothing when there is neither. */
void local_gpus_print(const char *hostname, FILE *out);
/* An array "gpus", and "mps_control" and "gpu_problem", each a text or null. */
void local_gpus_put(struct json *j);
/* The libraries that GPUs need, with their versions. */
void local_gpus_check(FILE *out);

#endif
