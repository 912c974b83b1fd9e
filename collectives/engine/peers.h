/* The engines of the other hosts: the links to them, and the backend over those links. */
#pragma once

#include "collectives/backends/backend.h"
#include "collectives/engine/core.h"
#include "common/net/links.h"

#define ENGINE_LINKS_MS 30000 /* from knowing where all engines listen to being connected to all */

struct early_message;
struct rank_link; /* rank_link.c */

struct peers {
    struct links *links;         /* NULL: there is one host */
    struct rank_link *rank_link; /* NULL: no rank may have one */
    struct watch watch;
    bool met;      /* the engines of this epoch are known, and so is `fit` */
    bool fit;      /* all cut tensors into pieces that fit packets: release 0.1.0 does not */
    bool up;       /* all engines are known, and every link is ready */
    bool down;     /* given up after a failure */
    bool has_sent; /* messages about tensors, in this turn */
    struct backend *backend;
    const struct engine_part *receiver[ENGINE_MESSAGES]; /* by a message's first byte */
    struct early_message *early;                         /* messages of the next epoch */
    uint32_t earlies;
    void *scrap;        /* for bulk of an epoch that is over; NULL: none has come */
    uint32_t lost_host; /* when this epoch had no need of it any more; UINT32_MAX: none */
    char *doubt;        /* the sentence about a host that is gone, perhaps rightly; or NULL */
    unsigned doubts;    /* turns since */
};

extern const struct engine_part peers_part;

/* The session tells where all engines listen. */
void peers_connect(struct engine *engine, const Hvd__Links *links);
/* The engines of a membership: links to those that have none yet. */
void peers_meet(struct engine *engine, Hvd__Link *const *link, size_t links);
/* The host and this one share a kernel, as containers do. Known when the engines of the epoch are. */
bool peers_share_machine(const struct engine *engine, uint32_t host);
/* Takes the messages that came before their epoch had begun, which now has. */
void peers_take_early(struct engine *engine);
/* After what was sent in this turn: has the other one of two hosts sent something meanwhile? Both begin at
 * about the same time, and to look costs less than to let the loop find out. */
bool peers_look(struct engine *engine, uint64_t now);
