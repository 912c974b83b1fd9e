#include "collectives/client/link/message.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/crc32c.h"

#define LINK_MAGIC 0x6b6e6c31u
#define CHECKED_AT offsetof(struct link_message, said)
#define ROOMS      16u

static const uint8_t zeros[LINK_ALIGNED];

void link_out_list(const struct link_out *out, struct iovec part[3])
{
    part[0] = (struct iovec){(void *)(uintptr_t)&out->m, sizeof out->m + link_fill_up(out->m.name)};
    part[1] = (struct iovec){(void *)(uintptr_t)out->elements, out->m.bytes + out->m.piece};
    part[2] = (struct iovec){(void *)(uintptr_t)zeros, link_fill_up(out->m.bytes) - out->m.bytes};
}

void link_out_make(struct link_out *out, const struct link_words *words, const struct link_operation *o)
{
    struct iovec part[3];
    out->m = (struct link_message){
        .magic = LINK_MAGIC, .said = words->said, .way = words->way, .bytes = (uint32_t)words->bytes};
    out->elements = words->elements;
    if (o) {
        out->m.sequence = o->sequence;
        out->m.name = (uint32_t)strlen(o->name);
        out->m.op = o->op;
        memcpy(out->name, o->name, out->m.name);
        memset(out->name + out->m.name, 0, link_fill_up(out->m.name) - out->m.name);
    }
    link_out_list(out, part);
    uint32_t check = crc32c(0, (const uint8_t *)&out->m + CHECKED_AT, part[0].iov_len - CHECKED_AT);
    for (int i = 1; i < 3; i++)
        check = crc32c(check, part[i].iov_base, part[i].iov_len);
    out->m.check = check;
}

void link_out_make_piece(struct link_out *out, enum link_said said, uint32_t sequence, const void *data,
                         size_t bytes)
{
    out->m = (struct link_message){.magic = LINK_MAGIC,
                                   .said = said,
                                   .sequence = sequence,
                                   .way = LINK_STREAM,
                                   .piece = (uint32_t)bytes};
    out->elements = data;
    out->m.check = crc32c(0, (const uint8_t *)&out->m + CHECKED_AT, sizeof out->m - CHECKED_AT);
}

/* The lengths are those of what is said. */
static bool has_lengths(const struct link_message *m)
{
    if (link_is_piece(m))
        return m->name == 0 && m->bytes == 0 && m->piece > 0 && m->piece <= LINK_PIECE_MAX;
    return m->name <= SHM_NAME_MAX && m->bytes <= LINK_ELEMENTS_MAX && m->piece == 0;
}

enum link_is link_message_check(const struct link_message *m, size_t have)
{
    if (have < sizeof *m)
        return LINK_IS_PART;
    if (m->magic != LINK_MAGIC || m->said < LINK_ELEMENTS || m->said > LINK_RESULT_PIECE || !has_lengths(m))
        return LINK_IS_NONE;
    size_t size = link_message_size(m);
    if (have < size)
        return LINK_IS_PART;
    return crc32c(0, (const uint8_t *)m + CHECKED_AT, size - CHECKED_AT) == m->check ? LINK_IS_WHOLE
                                                                                     : LINK_IS_NONE;
}

/* ---- memory -------------------------------------------------------------------------------------------- */

static struct {
    void *kept[ROOMS];
    unsigned number;
} rooms;

void *link_room_get(void)
{
    return rooms.number > 0 ? rooms.kept[--rooms.number] : malloc(LINK_MESSAGE_MAX);
}

void link_room_put(void *room)
{
    if (room && rooms.number < ROOMS)
        rooms.kept[rooms.number++] = room;
    else
        free(room);
}

void link_room_free(void)
{
    while (rooms.number > 0)
        free(rooms.kept[--rooms.number]);
}
