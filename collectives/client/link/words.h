/* Names of which a rank has spoken over the connections between ranks (link/rank_link.h): how far this rank
 * is with each, from when on a name goes to the engines, and what other ranks have sent before this rank took
 * it.
 *
 * The caller holds the lock of link/rank_link.c. */
#pragma once

#include "collectives/client/link/message.h"

/* Elements of another rank, or results that it has made, which came before this rank took them. */
struct early {
    uint32_t sequence, bytes;
    enum link_way way;
    struct tensor_op op;
    const uint8_t *elements; /* [bytes]; NULL: they were taken */
    void *room;              /* of link/message.h, if they lie in one; else they are memory of their own */
};

/* Places of a rank's: two by operation % 2 for elements, and one for its part of a result. */
enum { EARLY_RESULT = 2, EARLY_SLOTS };

struct linked_name {
    struct linked_name *next; /* in its bucket */
    _Atomic bool left;        /* all its further operations go to the engine, */
    uint32_t left_at;         /* from this one on */
    bool takes;               /* this rank has sent elements */
    uint32_t given, done;     /* this rank's last operation whose elements it has sent, and that has ended */
    enum link_way way;        /* of the operation `given` */
    uint32_t made;            /* the last one of which this rank lacks nothing but results of others */
    uint32_t results;         /* ranks whose part is in the place of the result, a bit each */
    char *name;
    struct early early[][EARLY_SLOTS]; /* by rank; the other ranks may be one operation ahead */
};

/* Makes it if need be. NULL: no memory, or there are too many. */
struct linked_name *words_of_name(const char *name, uint32_t ranks);
void words_free(uint32_t ranks);
/* The first operation of the name that goes to the engine; all ranks see which one that is. */
void words_leave(struct linked_name *n, uint32_t sequence);
/* For an operation near those that the ranks are in. */
bool words_have_left(const struct linked_name *n, uint32_t sequence);

/* Keeps a copy, or the room with the elements itself. slot: sequence % 2, or EARLY_RESULT. false: no
 * memory. */
bool words_keep(struct linked_name *n, uint32_t rank, uint32_t slot, const struct early *e);
void words_forget(struct early *e);
/* All ranks' of that place, whether they were used or not. */
void words_drop(struct linked_name *n, uint32_t slot, uint32_t ranks);
/* That rank's elements for the operation, which this rank has yet to take. NULL: they have not come. */
const struct early *words_elements(const struct linked_name *n, uint32_t rank, uint32_t sequence);
bool words_have_result(const struct linked_name *n, uint32_t rank, uint32_t sequence);
