/* How a tensor's description and sentence travel in the messages of readiness and of the execution list:
 *   elements 8, row 8, prescale 8, postscale 8 (the bits of a double), root 4, set 4, group 4, kind 1,
 *   dtype 1, op 1, compression 1, name length 2, error length 2, name, error */
#ifndef HVD_ENGINE_TENSOR_WIRE_H
#define HVD_ENGINE_TENSOR_WIRE_H

#include <stddef.h>
#include <stdint.h>

#include "collectives/engine/execution_list.h"
#include "common/cursor.h"
#include "common/err.h"

#define TENSOR_MESSAGE_HEADER 8 /* type 1, pad 1, count 2, epoch 4 */
#define TENSOR_WIRE_FIXED     52
#define TENSOR_WIRE_MAX       (TENSOR_WIRE_FIXED + TENSOR_NAME_MAX + TENSOR_ERROR_MAX)

/* A name of 1 to TENSOR_NAME_MAX bytes, a kind that exists. */
int tensor_desc_check(const struct tensor_desc *desc, struct err *e);
void tensor_wire_write(struct writer *w, const struct tensor_desc *desc, const char *error);
/* `error` holds TENSOR_ERROR_MAX + 1 bytes. -1 with *e: malformed. */
int tensor_wire_read(struct reader *r, struct tensor_desc *desc, char *error, struct err *e);
void tensor_message_header(uint8_t *message, uint8_t type, uint16_t count, uint32_t epoch);

#endif
