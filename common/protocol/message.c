#include "common/protocol/message.h"

#include <stdlib.h>

#include "common/base/log.h"

bool protocol_fits(uint32_t newest, uint32_t oldest)
{
    uint32_t least = oldest ? oldest : newest;
    return newest >= PROTOCOL_OLDEST && least <= PROTOCOL_VERSION && least <= newest;
}

ptrdiff_t message_pack(const ProtobufCMessage *message, struct buf *b, struct err *e)
{
    size_t size = protobuf_c_message_get_packed_size(message);
    uint8_t *space = buf_reserve(b, size);
    if (!space)
        return err_set(e, ERR_MEMORY, "a message of %zu bytes does not fit", size);
    protobuf_c_message_pack(message, space);
    buf_commit(b, size);
    return (ptrdiff_t)size;
}

struct budget {
    size_t left;
    bool starved; /* it was not the budget that was too small */
};

static void *budget_alloc(void *data, size_t size)
{
    struct budget *budget = data;
    if (size > budget->left)
        return NULL;
    budget->left -= size;
    void *memory = malloc(size);
    budget->starved = budget->starved || !memory;
    return memory;
}

static void budget_free(void *data, void *pointer)
{
    (void)data;
    free(pointer);
}

void *message_unpack(const ProtobufCMessageDescriptor *type, const uint8_t *bytes, size_t len, struct err *e)
{
    struct budget budget = {4096 + len * MESSAGE_EXPANSION_MAX, false};
    ProtobufCAllocator allocator = {budget_alloc, budget_free, &budget};
    void *message = protobuf_c_message_unpack(type, &allocator, len, bytes);
    if (!message && budget.starved)
        err_set(e, ERR_MEMORY, "no memory for a %s message of %zu bytes", type->short_name, len);
    else if (!message)
        err_set(e, ERR_PROTOCOL, "%zu bytes are not a %s message", len, type->short_name);
    return message;
}

void message_printable(ProtobufCMessage *message)
{
    const ProtobufCMessageDescriptor *type = message ? message->descriptor : NULL;
    for (unsigned i = 0; type && i < type->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &type->fields[i];
        uint8_t *at = (uint8_t *)message + field->offset;
        bool many = field->label == PROTOBUF_C_LABEL_REPEATED, text = field->type == PROTOBUF_C_TYPE_STRING;
        size_t count = many ? *(size_t *)(void *)((uint8_t *)message + field->quantifier_offset) : 1;
        if (field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF || (!text && field->type != PROTOBUF_C_TYPE_MESSAGE))
            continue;
        void **value = many ? *(void ***)(void *)at : (void **)(void *)at;
        for (size_t k = 0; k < count; k++)
            if (text)
                log_printable(value[k]);
            else
                message_printable(value[k]);
    }
}

void *message_copy(const ProtobufCMessage *message, size_t *room)
{
    size_t size = protobuf_c_message_get_packed_size(message);
    struct budget budget = {*room, false};
    ProtobufCAllocator allocator = {budget_alloc, budget_free, &budget};
    uint8_t *bytes = malloc(size ? size : 1);
    if (!bytes)
        return NULL;
    protobuf_c_message_pack(message, bytes);
    void *copy = protobuf_c_message_unpack(message->descriptor, &allocator, size, bytes);
    free(bytes);
    if (copy)
        *room = budget.left;
    return copy;
}

void message_free(void *message)
{
    struct budget unused = {0};
    ProtobufCAllocator allocator = {budget_alloc, budget_free, &unused};
    if (message)
        protobuf_c_message_free_unpacked(message, &allocator);
}
