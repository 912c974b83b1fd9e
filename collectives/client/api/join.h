/* join_parts.c, for join.c. */
#ifndef HVD_COLLECTIVES_CLIENT_API_JOIN_H
#define HVD_COLLECTIVES_CLIENT_API_JOIN_H

#include "collectives/client/internal.h"

struct parts {
    struct part **part;
    size_t number, own, room; /* own: of those, begun before the join */
};

/* NULL after fail(). */
struct part *parts_add(struct parts *all, struct tensor *t, bool own);
void parts_drop(struct parts *all, size_t i);
/* Takes a tensor's lock for a moment. false: another thread waits for its operation. */
bool part_lock(struct tensor *t);
void part_unlock(struct tensor *t);
/* The tensor's lock is held. */
void part_put_aside(struct part *p);
void part_put_back(const struct part *p);
/* What can be done now. true: something has ended. */
bool parts_progress(struct parts *all);
/* The engine is gone: nothing that others have begun will end. */
void parts_abandon(struct parts *all);
void parts_free(struct parts *all);
/* Makes room for one more. */
bool parts_make_room(void **array, size_t *room, size_t have, size_t each);
int parts_no_memory(void);

#endif
