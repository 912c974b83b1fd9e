/* The table of hosts and ranks of an epoch. */
#pragma once

#include <stdint.h>

#include "common/base/err.h"
#include "common/protocol/control.pb-c.h"

struct engine;

/* The parts of struct engine that belong together. */
struct host_table {
    struct host *host;        /* [hosts] */
    struct rank_place *place; /* [size] */
    uint32_t hosts, self, size;
};

/* From messages that were checked. *t is empty after -1. */
int host_table_make(struct host_table *t, Hvd__HostRanks *const *host, uint32_t hosts, uint32_t self,
                    uint32_t size, struct err *e);
/* This host alone, with one rank that no worker is: for a host without ranks in the job. */
int host_table_alone(struct host_table *t, const char *name, uint32_t id, struct err *e);
void host_table_free(struct host_table *t);
/* The engine's table becomes *t, and *t the table that the engine had. */
void host_table_swap(struct engine *engine, struct host_table *t);
