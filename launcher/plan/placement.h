/* The options about placement (--map-by, --bind-to, --ppr, --rankfile ...) together, as numbers. */
#pragma once

#include "common/base/err.h"
#include "common/protocol/control.pb-c.h"
#include "launcher/plan/plan.h"

struct config;
struct rankfile;

struct placement {
    Hvd__Binding__Map map_by;
    Hvd__Binding__Bind bind_to;
    uint32_t pe; /* cores of each rank */
    bool oversubscribe;
    uint32_t ppr;              /* 0: not given */
    const char *per_part;      /* of which there are so many ranks on each: "socket"; NULL: the host */
    struct rankfile *rankfile; /* NULL: none */
};

/* Of the options; ERR_USAGE. */
int placement_parse(struct placement *p, const struct config *config, struct err *e);
/* Reads the rankfile, if there is one. */
int placement_read(struct placement *p, const struct config *config, struct err *e);
void placement_free(struct placement *p);
/* The request for the plan, from a config that was parsed. */
struct plan_want placement_want(const struct config *config);
/* The binding, for the sessions. */
void placement_binding(const struct config *config, Hvd__Binding *binding);
