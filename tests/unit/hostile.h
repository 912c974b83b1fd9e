/* Messages that are well-formed and hostile: made from protobuf-c's descriptors, so that a new message or
 * field is among them by itself. They are made as bytes, because some are such as no encoder makes: a field
 * twice, an unknown one, a number that an enum has not. The same seed makes the same messages. */
#pragma once

#include <stdint.h>

#include "common/protocol/message.h"

struct hostile {
    uint64_t state;
};

/* `salt`: what else the messages depend on, such as the state of the receiver. */
void hostile_seed(struct hostile *h, uint64_t seed, uint64_t salt);
uint64_t hostile_random(struct hostile *h);

/* These put bytes at the end of `out`. A whole message: */
void hostile_message(struct hostile *h, const ProtobufCMessageDescriptor *type, struct buf *out);
/* ... of which only this field, one of several (oneof), is there. The first ones are empty, have all that
 * there is with its highest values, and all with the number 1; later ones are made at random. */
void hostile_body(struct hostile *h, const ProtobufCFieldDescriptor *body, unsigned turn, struct buf *out);

/* The bodies of a message that has one of several: their number, and the i-th. */
size_t hostile_bodies(const ProtobufCMessageDescriptor *type);
const ProtobufCFieldDescriptor *hostile_nth(const ProtobufCMessageDescriptor *type, size_t i);

/* 1, or what HOSTILE_SEED says. */
uint64_t hostile_given_seed(void);
/* How many messages of each kind: `usual`, or what HOSTILE_TURNS says. */
unsigned hostile_turns(unsigned usual);
