/* How a tensor travels in the messages of readiness and of the execution list. First 4 bytes, its head: the
 * number of a tensor that both ends have in their cache, or TENSOR_IN_FULL; and flags. In full its
 * description and sentence follow at once:
 *   elements 8, row 8, prescale 8, postscale 8 (the bits of a double), root 4, set 4, group 4, kind 1,
 *   dtype 1, op 1, compression and (times 16) device 1, of a device: what is said of its memory 8,
 *   name length 2, error length 2, name, error */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "collectives/engine/agree/execution_list.h"
#include "collectives/engine/agree/tensor_cache.h"
#include "common/base/cursor.h"
#include "common/base/err.h"

#define TENSOR_NUMBER   0xffffffu  /* the part of a head that is a number; smaller than this one */
#define TENSOR_HAS_DATA (1u << 30) /* elements follow */
#define TENSOR_JOINED   (1u << 29) /* entries: it travels with the next one */
#define TENSOR_DIRECT   (1u << 28) /* reports: see readiness.h */
#define TENSOR_IN_FULL  TENSOR_NUMBER
#define TENSOR_FLAGS    (TENSOR_HAS_DATA | TENSOR_JOINED | TENSOR_DIRECT)

#define TENSOR_MESSAGE_HEADER 8  /* type 1, pad 1, count 2, epoch 4 */
#define TENSOR_WIRE_FIXED     60 /* with what is said of memory */
#define TENSOR_WIRE_MAX       (4 + TENSOR_WIRE_FIXED + TENSOR_NAME_MAX + TENSOR_ERROR_MAX)

/* A name of 1 to TENSOR_NAME_MAX bytes, a kind that exists. */
int tensor_desc_check(const struct tensor_desc *desc, struct err *e);
/* Of all its elements; for data that travels with it. */
uint64_t tensor_data_bytes(const struct tensor_op *op);
void tensor_wire_write(struct writer *w, const struct tensor_desc *desc, const char *error);
/* `error` holds TENSOR_ERROR_MAX + 1 bytes. -1 with *e: malformed. */
int tensor_wire_read(struct reader *r, struct tensor_desc *desc, char *error, struct err *e);
/* The head, and what follows of the description when the cache has no number for it: then true. */
bool tensor_wire_put(struct writer *w, const struct tensor_cache *cache, const struct tensor_desc *desc,
                     const char *error, uint32_t flags);
/* The opposite. Sets *flags, *in_full, and `error` as tensor_wire_read does. */
int tensor_wire_get(struct reader *r, const struct tensor_cache *cache, struct tensor_desc *desc, char *error,
                    uint32_t *flags, bool *in_full, struct err *e);
void tensor_message_header(uint8_t *message, uint8_t type, uint16_t count, uint32_t epoch);
