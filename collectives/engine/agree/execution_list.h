/* The execution list of a process set: what all hosts execute, in one order, numbered from 1 (pure).
 *
 * The root (host 0) appends an entry for each tensor that is complete on every host and sends the new entries
 * down the tree; every host, the root too, takes them from its own list, strictly by number. An entry whose
 * ranks disagree carries a sentence instead of something to execute, so an error has its place in the order
 * like everything else.
 *
 * Message (integers little endian): type 1 (READINESS_LIST), pad 1, count 2, epoch 4, number of the first
 * entry 8, then `count` entries: each as in tensor_wire.h, and the result's elements when they travel with
 * it. Entries without an error go into the cache of each host as they are put on its list. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "collectives/shm/op.h"
#include "common/base/err.h"

#define TENSOR_NAME_MAX  255
#define TENSOR_ERROR_MAX 511

#define TENSOR_DATA_MAX 8192 /* bytes of a tensor whose elements travel with it */

/* The properties about which all ranks must agree; and `known`, about which they need not. */
struct tensor_desc {
    char name[TENSOR_NAME_MAX + 1];
    struct tensor_op what;
    uint64_t known; /* of a device: what all who speak here say alike of their memory
                       (client/device_memory.c); 0: they do not, or that NCCL does not know all of it */
};

struct list_entry {
    uint64_t number; /* 0: it was never on the list, both hosts have found out for themselves */
    struct tensor_desc desc;
    /* empty: execute it; else every rank gets HVD_ERR_MISMATCH with this sentence */
    char error[TENSOR_ERROR_MAX + 1];
    /* The result, all elements; malloc'ed, whoever takes the entry frees it. NULL: it is still to be made. */
    uint8_t *data;
    bool joined; /* it travels with the next one, as one operation (fusion.h) */
};

struct execution_list;
struct tensor_cache;

/* The cache stays the caller's and outlives the list. */
/* `fusion_bytes`: of entries that travel as one, 0: none. */
struct execution_list *execution_list_new(uint32_t epoch, struct tensor_cache *cache, uint64_t fusion_bytes,
                                          struct err *e);
void execution_list_free(struct execution_list *list);
/* Root: the next entry. `data` (copied; NULL: none): the result. */
int execution_list_append(struct execution_list *list, const struct tensor_desc *desc, const char *error,
                          const void *data, struct err *e);
/* Root: a message with the entries that were appended since the last one; 0 bytes when there are none, or
 * fewer entries than all when they do not fit (call again). -1 with *e: `size` is too small for one. */
long execution_list_encode(struct execution_list *list, void *message, size_t size, struct err *e);
/* Root: tensors that could be fused wait before the list (true), or go onto the list. A barrier or the like
 * lets all of them go. */
void execution_list_hold(struct execution_list *list, bool hold);
/* Root: something waits, and not because the list is held. */
bool execution_list_wants_more(const struct execution_list *list);
/* Root: something waits that others could join, and they do not fill a batch yet. */
bool execution_list_could_gather(const struct execution_list *list);
/* Root: another size of what travels as one, from the next entry on. */
void execution_list_fuse(struct execution_list *list, uint64_t fusion_bytes);
/* Every entry that was appended, or came, was taken. */
bool execution_list_is_empty(const struct execution_list *list);
/* On hosts that are not the root: takes the entries of a message. 1: taken. 0: ignored, because of another
 * epoch or because all were here before. -1 with *e: a gap, or malformed, and nothing was taken. */
int execution_list_receive(struct execution_list *list, const void *message, size_t size, struct err *e);
/* A result that needs no list, to be taken before what is on it. */
int execution_list_direct(struct execution_list *list, const struct tensor_desc *desc, const void *data,
                          struct err *e);
/* Others: to be called for every entry that comes, in a message that was found good. */
void execution_list_tell(struct execution_list *list, void (*came)(void *ctx, const struct tensor_desc *desc),
                         void *ctx);
bool execution_list_has_next(const struct execution_list *list);
/* An entry of that name is here and was not taken. */
bool execution_list_names(const struct execution_list *list, const char *name);
/* The number of the last entry that is here; 0: none ever was. */
uint64_t execution_list_end(const struct execution_list *list);
/* The next entry to execute; false when there is none yet. */
bool execution_list_next(struct execution_list *list, struct list_entry *entry);
