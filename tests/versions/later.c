/* A later release for tests: each message that it sends has one more field, at every depth. It is compiled
 * into common/, and the linker lets these functions stand before those of protobuf-c (--wrap). */
#include <stdbool.h>
#include <stdint.h>

#include "common/protocol/message.h"

size_t __real_protobuf_c_message_get_packed_size(const ProtobufCMessage *message);
size_t __real_protobuf_c_message_pack(const ProtobufCMessage *message, uint8_t *out);
size_t __wrap_protobuf_c_message_get_packed_size(const ProtobufCMessage *message);
size_t __wrap_protobuf_c_message_pack(const ProtobufCMessage *message, uint8_t *out);

static uint8_t five[] = {5};
static ProtobufCMessageUnknownField later = {
    .tag = 5000, .wire_type = PROTOBUF_C_WIRE_TYPE_VARINT, .len = sizeof five, .data = five};

/* Of the fields of a message that has come from elsewhere, those that are not known stay as they are. */
static void set_later(ProtobufCMessage *message, bool there)
{
    const ProtobufCMessageDescriptor *type = message ? message->descriptor : NULL;
    if (type && (!message->unknown_fields || message->unknown_fields == &later)) {
        message->n_unknown_fields = there;
        message->unknown_fields = there ? &later : NULL;
    }
    for (unsigned i = 0; type && i < type->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &type->fields[i];
        uint8_t *base = (uint8_t *)message, *at = base + field->offset;
        bool many = field->label == PROTOBUF_C_LABEL_REPEATED,
             one_of = field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF;
        size_t count = many ? *(size_t *)(void *)(base + field->quantifier_offset) : 1;
        if (field->type != PROTOBUF_C_TYPE_MESSAGE ||
            (one_of && *(uint32_t *)(void *)(base + field->quantifier_offset) != field->id))
            continue;
        void **value = many ? *(void ***)(void *)at : (void **)(void *)at;
        for (size_t k = 0; k < count; k++)
            set_later(value[k], there);
    }
}

size_t __wrap_protobuf_c_message_get_packed_size(const ProtobufCMessage *message)
{
    set_later((ProtobufCMessage *)(uintptr_t)message, true);
    size_t size = __real_protobuf_c_message_get_packed_size(message);
    set_later((ProtobufCMessage *)(uintptr_t)message, false);
    return size;
}

size_t __wrap_protobuf_c_message_pack(const ProtobufCMessage *message, uint8_t *out)
{
    set_later((ProtobufCMessage *)(uintptr_t)message, true);
    size_t size = __real_protobuf_c_message_pack(message, out);
    set_later((ProtobufCMessage *)(uintptr_t)message, false);
    return size;
}
