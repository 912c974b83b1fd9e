/* A host grants its parent the whole tensor (the place is the buffer itself), and sends each piece on when it
 * has come and the child has granted. A host that has sent everything on and has everything is done; it need
 * not wait for others. */
#include "collectives/algorithms/algorithms.h"

#include "collectives/algorithms/segments.h"
#include "collectives/algorithms/state.h"

#define CHAIN_FROM (512u << 10) /* bytes */

struct broadcast_child {
    bool begun;
    uint64_t sent;
    uint32_t under_way;
};

struct broadcast_state {
    struct state s;
    uint64_t bytes, got;
    uint32_t piece;
    struct broadcast_tree tree;
    struct broadcast_child child[BROADCAST_CHILDREN_MAX];
};

struct broadcast_tree broadcast_tree_of(uint32_t self, uint32_t hosts, uint32_t root, uint64_t bytes)
{
    struct broadcast_tree tree = {.parent = self};
    uint64_t v = ((uint64_t)self + hosts - root) % hosts; /* the root is 0 */
    uint64_t low = v ? v & -v : 1ull << 31;
    if (bytes >= CHAIN_FROM) {
        if (v > 0)
            tree.parent = (uint32_t)((v - 1 + root) % hosts);
        if (v + 1 < hosts)
            tree.child[tree.children++] = (uint32_t)((v + 1 + root) % hosts);
        return tree;
    }
    if (v > 0)
        tree.parent = (uint32_t)(((v & (v - 1)) + root) % hosts);
    for (uint64_t step = v ? low >> 1 : low; step > 0; step >>= 1)
        if (v + step < hosts)
            tree.child[tree.children++] = (uint32_t)((v + step + root) % hosts);
    return tree;
}

static int child_index(const struct broadcast_state *b, uint32_t peer)
{
    for (uint32_t i = 0; i < b->tree.children; i++)
        if (b->tree.child[i] == peer)
            return (int)i;
    return -1;
}

static void send_pieces(struct broadcast_state *b, uint32_t index)
{
    struct exchange *x = b->s.c.x;
    struct broadcast_child *child = &b->child[index];
    while (child->begun && child->under_way < EXCHANGE_SENDS_MAX && child->sent < b->got) {
        uint64_t at = child->sent;
        uint32_t n = segment_piece_at(b->bytes, b->piece, at);
        child->sent += n;
        child->under_way++;
        x->send(x, b->tree.child[index], CHANNEL_BROADCAST, at, b->s.c.data + at, n);
    }
}

static void *start_broadcast(const struct collective *c, struct err *e)
{
    struct exchange *x = c->x;
    struct broadcast_state *b = state_new(c, sizeof *b, e);
    if (!b)
        return NULL;
    b->bytes = c->count * c->element_size;
    b->piece = segment_piece(b->bytes, x->piece_bytes);
    b->tree = broadcast_tree_of(x->self, x->hosts, c->root, b->bytes);
    if (x->self == c->root) {
        b->got = b->bytes;
        if (b->bytes > 0)
            x->final(x, 0, b->bytes);
    } else {
        x->grant(x, b->tree.parent, b->bytes);
    }
    return b;
}

static void take_grant(void *state, uint32_t peer, uint64_t limit)
{
    struct broadcast_state *b = state;
    int i = child_index(b, peer);
    if (i < 0)
        return;
    b->child[i].begun = true;
    send_pieces(b, (uint32_t)i);
}

static void *find_place(void *state, uint32_t peer, enum exchange_channel channel, uint64_t offset,
                        uint32_t length)
{
    struct broadcast_state *b = state;
    bool fits = channel == CHANNEL_BROADCAST && peer == b->tree.parent && b->s.c.x->self != b->s.c.root &&
                offset == b->got && offset < b->bytes &&
                length == segment_piece_at(b->bytes, b->piece, offset);
    return fits ? b->s.c.data + offset : NULL;
}

static void take_arrival(void *state, uint32_t peer, enum exchange_channel channel, uint64_t offset,
                         uint32_t length)
{
    struct broadcast_state *b = state;
    b->got += length;
    b->s.c.x->final(b->s.c.x, offset, length);
    for (uint32_t i = 0; i < b->tree.children; i++)
        send_pieces(b, i);
}

static void take_sent(void *state, uint32_t peer)
{
    struct broadcast_state *b = state;
    int i = child_index(b, peer);
    b->child[i].under_way--;
    send_pieces(b, (uint32_t)i);
}

/* A child's grant is awaited even for no bytes: it must not find the operation gone. */
static bool is_complete(const void *state)
{
    const struct broadcast_state *b = state;
    if (b->got < b->bytes)
        return false;
    for (uint32_t i = 0; i < b->tree.children; i++)
        if (!b->child[i].begun || b->child[i].sent < b->bytes || b->child[i].under_way)
            return false;
    return true;
}

const struct algorithm broadcast = {.name = "broadcast",
                                    .start = start_broadcast,
                                    .granted = take_grant,
                                    .place = find_place,
                                    .arrived = take_arrival,
                                    .sent = take_sent,
                                    .complete = is_complete,
                                    .end = state_end};
