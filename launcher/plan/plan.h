/* The plan: ranks placed on hosts.
 *
 *   plan_check      before the network: what can be said while some hosts are `auto`
 *   plan_hosts      how many of the hosts, from the first, the job can come to need: only these are started
 *   plan_make       when all is known of those
 *
 * By slot, as horovodrun does, host by host is filled in the given order, and a host's ranks follow one
 * another. By node, the ranks go round the hosts, each time past those that are full. With oversubscription
 * what is left when all are full goes round them, too: by slot before ranks are numbered, so that those of a
 * host still follow one another.
 *
 * A host's local ranks are in the order of its ranks. cross_rank is a host's index among the hosts that have
 * that local rank, and cross_size their number, as Horovod defines them. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "launcher/plan/hosts.h"

struct rankfile;

/* One program's ranks, and where they may go. */
struct plan_place {
    uint32_t host;  /* index in the host_list, of which then none may be left out */
    uint32_t slots; /* of it, for this program; 0: all that it has */
};

struct plan_part {
    uint32_t ranks;
    uint32_t count;           /* of hosts */
    struct plan_place *place; /* [count], in this order; NULL: all hosts */
};

/* The wishes of the user. */
struct plan_want {
    uint32_t np;                  /* 0: one rank for every slot, or as many as ppr says */
    uint32_t ppr;                 /* ranks on each host, whatever its slots; 0: as many as it has slots */
    const char *per_part;         /* ranks on each of these of a host instead: "socket" */
    bool by_node;                 /* ranks go round the hosts */
    bool oversubscribe;           /* more ranks than slots, up to max_slots */
    const struct plan_part *part; /* the programs, when not all of them may run on all hosts */
    size_t parts;
    const struct rankfile *rankfile; /* says where each rank goes; NULL: there is none */
};

struct plan_host {
    uint32_t index;       /* in the host_list; hosts without ranks are left out */
    uint32_t ranks;       /* = local_size of each */
    const uint32_t *rank; /* [ranks], ascending: by local rank */
};

struct plan_rank {
    uint32_t host; /* index in plan.host */
    uint32_t local_rank;
    uint32_t cross_rank;
    uint32_t cross_size;
};

struct plan {
    uint32_t size; /* number of ranks */
    uint32_t host_count;
    struct plan_host *host;
    struct plan_rank *rank; /* by rank */
    uint32_t *by_host;      /* the hosts' lists, one behind the other */
};

/* ERR_USAGE when there certainly is too little room for the ranks, or more ranks than possible. */
int plan_check(const struct host_list *hosts, const struct plan_want *want, struct err *e);
/* Nothing about the first `count` hosts is `auto`: plan_make will do. */
bool plan_is_known(const struct host_list *hosts, size_t count, const struct plan_want *want);
size_t plan_hosts(const struct host_list *hosts, const struct plan_want *want);
/* Places the ranks over the first `count` hosts, none of which is `auto` any more. On -1 *plan is empty. */
int plan_make(struct plan *plan, const struct host_list *hosts, size_t count, const struct plan_want *want,
              struct err *e);
/* Adds `n` ranks with these local ranks to a host of the plan; plan->host_count: to a new one, whose index in
 * the host_list is `index`. Pointers into the plan are invalid then. On -1 nothing has changed. */
int plan_add(struct plan *plan, uint32_t host, uint32_t index, const uint32_t *local, uint32_t n,
             struct err *e);
void plan_free(struct plan *plan);

/* The number of ranks that fit on this host at least: `auto` counts as one slot. */
uint32_t plan_room(const struct host_spec *host, const struct plan_want *want);
/* True when the ranks of the host are consecutive. */
bool plan_is_block(const struct plan_host *host);
