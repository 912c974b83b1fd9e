/* The names that are exchanged over the connections between ranks (link/rank_link.h). Each has how far this
 * rank is, the operation from which on the name goes to the engines, and early messages of other ranks.
 *
 * The caller holds the lock of link/rank_link.c. */
#pragma once

#include "collectives/client/link/message.h"

/* Elements or a result of another rank that came before this rank could use them. */
struct early {
    uint32_t sequence, bytes;
    enum link_way way;
    struct tensor_op op;
    const uint8_t *elements; /* [bytes]; NULL: they were taken */
    void *room;              /* of link/message.h, if they lie in one; else they are memory of their own */
};

/* The places of a rank: two for elements, by operation % 2, and one for its part of a result. */
enum { EARLY_RESULT = 2, EARLY_SLOTS };

struct linked_name {
    struct linked_name *next; /* in its bucket */
    _Atomic bool left;        /* all its further operations go to the engine, */
    uint32_t left_at;         /* from this one on */
    bool takes;               /* this rank has sent elements */
    uint32_t given, done;     /* the last operation that this rank has begun, and that it has ended */
    enum link_way way;        /* of the operation `given` */
    uint32_t made;            /* the last operation in which this rank waits for results alone */
    uint32_t results;         /* a bit for each rank whose part of the result has come */
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
