/* Messages between ranks that are connected with each other (link/rank_link.h), and the memory for them.
 *
 * Message, in the machine's byte order, as the elements are: struct link_message, the name and the elements,
 * each filled up to LINK_ALIGNED bytes. Nothing in a message is trusted before link_message_check(). A piece
 * of a stream (link/stream.h) is such a message without name and elements; its bytes follow, unchecked.
 *
 * The caller holds the lock of link/rank_link.c. */
#pragma once

#include <sys/uio.h>

#include "collectives/client/link/way.h"
#include "collectives/shm/layout.h"

#define LINK_ALIGNED 16u

enum link_said {
    LINK_ELEMENTS = 1,
    LINK_LEAVES,
    LINK_STOPS,
    LINK_RESULT,
    LINK_ELEMENTS_PIECE, /* of the part that the receiver makes */
    LINK_RESULT_PIECE    /* of the part that the sender makes */
};

struct link_message {
    uint32_t magic, check; /* CRC-32C of all that follows `check` */
    uint32_t said;         /* enum link_said */
    uint32_t sequence;     /* of the operation */
    uint32_t name, bytes;
    uint32_t way;   /* enum link_way, of elements and results */
    uint32_t piece; /* bytes that follow the message, and go straight to their place */
    struct tensor_op op;
};
_Static_assert(sizeof(struct link_message) % LINK_ALIGNED == 0, "the elements are aligned");

/* Twelve times what the kernel hands to a network device at once. */
#define LINK_PIECE_MAX (768u << 10)

/* Elements of a message: the whole of an operation, or the part of one of three ranks. */
#define LINK_ELEMENTS_MAX (LINK_PARTS_MAX / 3 / LINK_ALIGNED * LINK_ALIGNED + 2 * LINK_ALIGNED)
#define LINK_MESSAGE_MAX  (sizeof(struct link_message) + SHM_NAME_MAX + 1 + LINK_ALIGNED + LINK_ELEMENTS_MAX)
_Static_assert(LINK_ELEMENTS_MAX >= LINK_BYTES_MAX && LINK_ELEMENTS_MAX >= LINK_WHOLE_MAX &&
                   LINK_ELEMENTS_MAX >= LINK_ROOT_MAX && LINK_ELEMENTS_MAX >= LINK_PART_MAX + LINK_ALIGNED,
               "the longest elements have room");

static inline size_t link_fill_up(size_t bytes)
{
    return (bytes + LINK_ALIGNED - 1) / LINK_ALIGNED * LINK_ALIGNED;
}

static inline size_t link_message_size(const struct link_message *m)
{
    return sizeof *m + link_fill_up(m->name) + link_fill_up(m->bytes);
}

static inline const uint8_t *link_message_elements(const struct link_message *m)
{
    return (const uint8_t *)(m + 1) + link_fill_up(m->name);
}

/* A message to send; its elements are the caller's. */
struct link_out {
    struct link_message m;
    uint8_t name[SHM_NAME_MAX + 1 + LINK_ALIGNED]; /* behind `m`, as in the message */
    const void *elements;
};

/* The words and elements of a message. */
struct link_words {
    enum link_said said;
    enum link_way way;
    const void *elements; /* [bytes] */
    size_t bytes;
};

static inline bool link_is_piece(const struct link_message *m)
{
    return m->said >= LINK_ELEMENTS_PIECE;
}

/* o NULL: of no name. */
void link_out_make(struct link_out *out, const struct link_words *words, const struct link_operation *o);
/* A piece of the operation `sequence`: `bytes` that lie at `data`, which is the caller's. */
void link_out_make_piece(struct link_out *out, enum link_said said, uint32_t sequence, const void *data,
                         size_t bytes);
/* Head with name, elements, and what fills them up. */
void link_out_list(const struct link_out *out, struct iovec part[3]);

enum link_is { LINK_IS_NONE, LINK_IS_PART, LINK_IS_WHOLE };

/* Looks at the `have` bytes that have come. They are no message, a part of one, or begin with a whole one. */
enum link_is link_message_check(const struct link_message *m, size_t have);

/* Room for a message. NULL: no memory. Rooms are kept, because the C library would give memory of that size
 * back to the kernel after each operation. */
void *link_room_get(void);
void link_room_put(void *room);
/* Frees the rooms that are kept for later messages. */
void link_room_free(void);
