/* --propagate-limits: the soft resource limits with which hvdrun was started, for the workers. */
#ifndef HVD_LAUNCHER_CLI_RLIMIT_OPTION_H
#define HVD_LAUNCHER_CLI_RLIMIT_OPTION_H

#include "common/base/err.h"
#include "common/process/rlimits.h"
#include "common/protocol/control.pb-c.h"

struct propagate {
    Hvd__ResourceLimit limit[RLIMITS_COUNT], *list[RLIMITS_COUNT];
    size_t count;
};

/* Of "all", "none" or names by comma. ERR_USAGE; `p` may be NULL when only that is of interest. */
int propagate_read(struct propagate *p, const char *text, struct err *e);

#endif
