/* Messages of control.proto in and out of bytes.
 *
 * Decoding is capped: protobuf-c takes its memory from a budget of MESSAGE_EXPANSION_MAX times the frame's
 * length plus a constant, so that a small frame cannot make a large heap. Not thread-safe per message;
 * different messages are independent. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/protocol/control.pb-c.h"

/* The protocol of the control channel, and the oldest one that is spoken as well. A field that changes its
 * meaning makes a new protocol; docs/upgrading.md says which releases must speak with one another. */
#define PROTOCOL_VERSION 1
#define PROTOCOL_OLDEST  1
/* Is there a protocol that both ends speak? `oldest` 0: the other end speaks only `newest`. */
bool protocol_fits(uint32_t newest, uint32_t oldest);

#define MESSAGE_EXPANSION_MAX 24

/* Puts the packed message at the end of `b`; returns its size, or -1 with *e filled (over the ceiling). */
ptrdiff_t message_pack(const ProtobufCMessage *message, struct buf *b, struct err *e);

/* No text in it steers a terminal any more (log_printable); of what is one of several (oneof), nothing is
 * touched. */
void message_printable(ProtobufCMessage *message);

/* Decodes the bytes as a message of this type: NULL with *e when they are none. Freed by message_free. */
void *message_unpack(const ProtobufCMessageDescriptor *type, const uint8_t *bytes, size_t len, struct err *e);
#define message_unpack_control(bytes, len, e)                                                                \
    ((Hvd__Control *)message_unpack(&hvd__control__descriptor, bytes, len, e))
#define message_unpack_engine(bytes, len, e)                                                                 \
    ((Hvd__Engine *)message_unpack(&hvd__engine__descriptor, bytes, len, e))
#define message_unpack_exchange(bytes, len, e)                                                               \
    ((Hvd__Exchange *)message_unpack(&hvd__exchange__descriptor, bytes, len, e))
#define message_unpack_pmix(bytes, len, e)                                                                   \
    ((Hvd__Pmix *)message_unpack(&hvd__pmix__descriptor, bytes, len, e))
#define message_unpack_daemon(bytes, len, e)                                                                 \
    ((Hvd__Daemon *)message_unpack(&hvd__daemon__descriptor, bytes, len, e))
#define message_unpack_sums(bytes, len, e)                                                                   \
    ((Hvd__SumsFile *)message_unpack(&hvd__sums_file__descriptor, bytes, len, e))
#define message_unpack_inquiry(bytes, len, e)                                                                \
    ((Hvd__Inquiry *)message_unpack(&hvd__inquiry__descriptor, bytes, len, e))
#define message_unpack_answer(bytes, len, e)                                                                 \
    ((Hvd__Answer *)message_unpack(&hvd__answer__descriptor, bytes, len, e))
#define message_unpack_gpus(bytes, len, e)                                                                   \
    ((Hvd__Gpus *)message_unpack(&hvd__gpus__descriptor, bytes, len, e))

/* A copy of a decoded message that may stay, or NULL. Its memory comes out of *room, which shrinks by it;
 * when that does not suffice there is no copy. Freed by message_free. */
void *message_copy(const ProtobufCMessage *message, size_t *room);
/* Frees a message of message_unpack or message_copy; NULL is allowed. */
void message_free(void *message);
