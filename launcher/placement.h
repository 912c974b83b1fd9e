/* What --map-by, --ppr and their like say, as numbers (pure). */
#ifndef HVD_LAUNCHER_PLACEMENT_H
#define HVD_LAUNCHER_PLACEMENT_H

#include "common/err.h"
#include "launcher/plan.h"

struct config;

struct placement {
    bool by_node, oversubscribe;
    uint32_t per_host; /* 0: not given */
};

/* Of the options; ERR_USAGE. */
int placement_parse(struct placement *p, const struct config *config, struct err *e);
/* What the plan is made from; of a config that was parsed. */
struct plan_want placement_want(const struct config *config);

#endif
