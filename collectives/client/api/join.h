/* hvd_join: a rank without more work takes part in the operations of the others (join.c). Its parts in those
 * operations are in join_parts.c, the thread of hvd_join_async in join_async.c. */
#pragma once

#include "collectives/client/operation.h"

/* ---- join.c -------------------------------------------------------------------------------------------- */

/* From now on this rank begins nothing. A status, after fail(). */
int join_claim(void);
/* The join has ended with `status`: this rank may begin operations again. */
void join_release(int status);
/* The join's tensor, locked, if no handle of it is left. A status, after fail(). */
int join_tensor(struct tensor **end);
/* This rank joins. NULL after fail(); else *end, the tensor of the join's handle, is locked. */
struct join *join_begin(struct tensor **end);
/* Takes part until every rank has joined, and frees the join. *end stays locked. The thread that called
 * join_begin calls this, too. *last is set on success. */
int join_through(struct join *j, int *last);
/* This rank is in hvd_shutdown, and others may wait for it elsewhere: their operations get HVD_ERR_MISMATCH.
 * The tensor of the shutdown is locked, and begun. Returns the shutdown's status. */
int join_refuse(struct tensor *shutdown);

/* ---- join_async.c -------------------------------------------------------------------------------------- */

/* Ends the thread of hvd_join_async, if it has ended or will end at once. */
void join_reap(void);

/* ---- join_parts.c -------------------------------------------------------------------------------------- */

struct parts {
    struct part **part;
    size_t number, capacity;
    size_t own; /* the parts that were begun before the join */
};

/* NULL after fail(). */
struct part *parts_add(struct parts *all, struct tensor *t, bool own);
void parts_drop(struct parts *all, size_t i);
/* Takes a tensor's lock for a moment. false: another thread waits for its operation. */
bool part_lock(struct tensor *t);
void part_unlock(struct tensor *t);
/* Sets the tensor's operation and handle aside, so that the name is free; and brings them back. The tensor's
 * lock is held. */
void part_defer(struct part *p);
void part_restore(const struct part *p);
/* Does what can be done now. true: an operation has ended. */
bool parts_progress(struct parts *all);
/* The engine has ended: no operation of the others will end. */
void parts_abandon(struct parts *all);
void parts_free(struct parts *all);
int parts_no_memory(void);
/* An operation has ended while this rank has joined; a watcher_fn. */
void join_hear(struct tensor *t, enum point point, uint64_t since);
/* The handle's operation is set aside. The tensor's lock is held. */
bool join_has_deferred(const struct tensor *t, hvd_handle handle);
/* Waits for the operation that is set aside. The tensor's lock is held. */
int join_wait_deferred(struct tensor *t);
