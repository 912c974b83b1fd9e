/* Messages of control.proto in and out of bytes.
 *
 * Decoding is capped: protobuf-c takes its memory from a budget of MESSAGE_EXPANSION_MAX times the frame's
 * length plus a constant, so that a small frame cannot make a large heap. Not thread-safe per message;
 * different messages are independent. */
#ifndef HVD_COMMON_PROTOCOL_MESSAGE_H
#define HVD_COMMON_PROTOCOL_MESSAGE_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/buf.h"
#include "common/protocol/control.pb-c.h"
#include "common/base/err.h"

/* Grows when a field changes its meaning. */
#define PROTOCOL_VERSION 1

#define MESSAGE_EXPANSION_MAX 24

/* Puts the packed message at the end of `b`; returns its size, or -1 with *e filled (over the ceiling). */
ptrdiff_t message_pack(const ProtobufCMessage *message, struct buf *b, struct err *e);

/* No text in it steers a terminal any more (log_printable); of what is one of several (oneof), nothing is
 * touched. */
void message_printable(ProtobufCMessage *message);

/* NULL with *e filled when the bytes are not such a message. Freed by message_free. */
Hvd__Control *message_unpack_control(const uint8_t *bytes, size_t len, struct err *e);
Hvd__Engine *message_unpack_engine(const uint8_t *bytes, size_t len, struct err *e);
Hvd__Exchange *message_unpack_exchange(const uint8_t *bytes, size_t len, struct err *e);
Hvd__Pmix *message_unpack_pmix(const uint8_t *bytes, size_t len, struct err *e);
Hvd__Daemon *message_unpack_daemon(const uint8_t *bytes, size_t len, struct err *e);
Hvd__SumsFile *message_unpack_sums(const uint8_t *bytes, size_t len, struct err *e);
Hvd__Inquiry *message_unpack_inquiry(const uint8_t *bytes, size_t len, struct err *e);
Hvd__Answer *message_unpack_answer(const uint8_t *bytes, size_t len, struct err *e);
Hvd__Gpus *message_unpack_gpus(const uint8_t *bytes, size_t len, struct err *e);
/* A copy of a decoded message that may stay, or NULL. Its memory comes out of *room, which shrinks by it;
 * when that does not suffice there is no copy. Freed by message_free. */
void *message_copy(const ProtobufCMessage *message, size_t *room);
/* Frees what message_unpack_* and message_copy returned; NULL is allowed. */
void message_free(void *message);

#endif
