/* A broken worker writes anything to anywhere in shared memory: entries, details, member slots, claim words,
 * rings, tables. Whole engines (descriptor_job.h) read it, between proper arrivals of their ranks. An engine
 * may end the job, and the tensors may be wrong. It must neither crash nor touch memory that is not its own.
 *
 * An input is a byte for the shape of the job, then actions: a byte each, and the bytes that act() reads.
 *
 * needs: engine shm algo tests/fuzz/descriptor_job.c tests/sim/links.c */
#include <stdlib.h>
#include <string.h>

#include "collectives/kernels/dtype.h"
#include "collectives/shm/ring.h"
#include "tests/fuzz/descriptor_job.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define ACTIONS 200

/* ---- proper arrivals ----------------------------------------------------------------------------------- */

struct input {
    const uint8_t *at;
    size_t left;
};

static uint8_t byte(struct input *in)
{
    return in->left ? (in->left--, *in->at++) : 0;
}

static uint64_t word(struct input *in)
{
    uint64_t w = 0;

    for (int i = 0; i < 8; i++)
        w |= (uint64_t)byte(in) << 8 * i;
    return w;
}

/* The fields of an operation about which all ranks agree. */
struct plan {
    uint8_t kind, dtype, op, flags;
};
enum { IN_PLACE = 1, TABLE = 2, TABLE_OUTSIDE = 4, GROUP = 8, SCALES = 16, COMPRESSED = 32, TWO_A_ROW = 64 };

static struct plan plan(struct input *in)
{
    struct plan p = {.kind = 1 + byte(in) % (SHM_KINDS - 1), .dtype = byte(in), .op = byte(in)};

    p.flags = byte(in);
    return p;
}

static struct tensor_op make_op(const struct plan *p, const struct team *team)
{
    static const uint64_t counts[] = {0, 2, 12, 100, 500, 600, 5000, 20000};
    struct tensor_op op = {.kind = p->kind, .set = team->id, .prescale = 1, .postscale = 1};

    if (!op_moves(p->kind))
        return op;
    op.dtype = p->dtype % 16 % 13;
    op.count = counts[p->op >> 5];
    op.root = p->kind == SHM_BROADCAST ? p->op % team->size : 0;
    if (op_scatters(p->kind))
        op.row = p->flags & TWO_A_ROW ? 2 : 1;
    if (!op_reduces(p->kind))
        return op;
    op.op = p->op % 32 % 12;
    if (p->flags & GROUP) {
        op.group = 2;
        op.row = 77;
    }
    if (p->flags & SCALES)
        op.prescale = 0.5, op.postscale = 3;
    if ((p->flags & COMPRESSED) && p->kind == SHM_ALLREDUCE && op.dtype == HVD_FLOAT32)
        op.compression = HVD_COMPRESSION_BFLOAT16;
    return op;
}

static void make_where(const struct plan *p, struct owner *w, const struct team *team,
                       const struct tensor_op *op, struct tensor_where *where)
{
    static const uint64_t payload[SHM_INLINE_MAX / 8];
    static uint64_t table[JOB_HOSTS * JOB_RANKS];
    size_t size = dtype_size(op->dtype);

    *where = (struct tensor_where){.payload = payload, .in = shm_address(w->segment, 0)};
    where->out = p->flags & IN_PLACE ? where->in : shm_address(w->segment, OUT_AT);
    if (!op_scatters(op->kind) || size == 0)
        return;
    where->out = shm_address(w->segment, OUT_AT);
    if (op_is_ragged(op->kind)) {
        where->capacity = (TABLE_AT - OUT_AT) / size;
        where->recv_counts_at = shm_address(w->segment, RECV_COUNTS_AT);
    }
    if (op->kind == SHM_ALLGATHER || !(p->flags & (TABLE | GROUP)))
        return;
    memset(table, 0, sizeof table);
    for (uint64_t i = 0; i < op->count / 2; i++)
        table[i % team->size] += 2;
    where->table = table;
    where->table_place = p->flags & TABLE_OUTSIDE ? SHM_SEGMENT : SHM_INLINE;
    where->table_at = shm_address(w->segment, TABLE_AT);
    memcpy((char *)w->memory.base + TABLE_AT, table, sizeof table);
}

static struct tensor_view *view_of(struct place *p, uint32_t rank, size_t tensor, uint32_t *member)
{
    struct owner *w = &p->owner[rank];
    uint32_t slot = p->slot[tensor];
    const struct team *team = slot == UINT32_MAX ? NULL : p->engine->names.name[slot].set->team;
    uint32_t index = team ? team_index(team, p->region.rank[rank]) : UINT32_MAX;

    if (index == UINT32_MAX)
        return NULL;
    *member = team_member(team, index);
    if (!w->has_view[tensor] && tensor_view_init(&w->view[tensor], &p->region, team, slot, *member) != 0)
        abort();
    w->has_view[tensor] = true;
    return &w->view[tensor];
}

static void arrive(struct place *p, uint32_t rank, size_t tensor, const struct plan *what)
{
    uint32_t member;
    struct tensor_view *v = view_of(p, rank, tensor, &member);
    struct tensor_where where;

    if (!v)
        return;
    struct tensor_op op = make_op(what, v->team);
    make_where(what, &p->owner[rank], v->team, &op, &where);
    tensor_begin(v, v->sequence + 1);
    tensor_publish(v, &op, &where);
}

/* The last one to come tells the engine, and lets it help where nobody else takes part. */
static bool tell(struct place *p, uint32_t rank, size_t tensor)
{
    uint32_t member;
    struct tensor_view *v = view_of(p, rank, tensor, &member);

    if (!v)
        return false;
    if (team_is_here(v->team))
        tensor_offer(v);
    return ring_put(&region_mailbox(&p->region, rank)->ready, p->slot[tensor]);
}

static void tell_all(size_t tensor)
{
    for (struct place *p = place; p < place + hosts; p++)
        for (uint32_t rank = 0; rank < p->region.members; rank++)
            if (tell(p, rank, tensor))
                break;
}

/* ---- writes -------------------------------------------------------------------------------------------- */

/* Numbers where something ends; most of them of a segment or a payload. */
static uint64_t telling(struct input *in)
{
    static const uint64_t numbers[] = {0,
                                       1,
                                       2,
                                       3,
                                       4,
                                       5,
                                       6,
                                       7,
                                       8,
                                       9,
                                       12,
                                       13,
                                       16,
                                       17,
                                       64,
                                       127,
                                       128,
                                       255,
                                       256,
                                       257,
                                       512,
                                       513,
                                       1024,
                                       2047,
                                       2048,
                                       2049,
                                       OUT_AT,
                                       SEGMENT_BYTES - 1,
                                       SEGMENT_BYTES,
                                       SEGMENT_BYTES + 1,
                                       SEGMENT_BYTES / 4,
                                       SEGMENT_BYTES / 4 + 1,
                                       INT32_MAX,
                                       1ull << 31,
                                       UINT32_MAX,
                                       1ull << 32,
                                       1ull << 45,
                                       (1ull << 48) - 1,
                                       1ull << 48,
                                       INT64_MAX,
                                       1ull << 63,
                                       UINT64_MAX - 8,
                                       UINT64_MAX - 1,
                                       UINT64_MAX,
                                       0x7ff0000000000000ull /* infinity */};
    uint8_t b = byte(in);

    if (b < 128)
        return numbers[b % (sizeof numbers / sizeof *numbers)];
    if (b < 192) /* in a segment, or just outside one */
        return shm_address(b & 3, numbers[byte(in) % (sizeof numbers / sizeof *numbers)]);
    if (b < 208) /* near its end */
        return shm_address(b & 3, SEGMENT_BYTES - 8 * byte(in));
    return word(in);
}

enum base { ENTRY, BODY, MEMBER_SLOT, SLOT, MAILBOX, HEADER, BASES };

#define FIELD(base, type, name)                                                                              \
    {                                                                                                        \
        base, offsetof(type, name), sizeof((type *)0)->name                                                  \
    }
#define DETAIL(name)                                                                                         \
    {                                                                                                        \
        BODY, offsetof(struct shm_body, details) + offsetof(struct shm_details, name),                       \
            sizeof((struct shm_details *)0)->name                                                            \
    }

static const struct {
    enum base base;
    size_t offset, bytes;
} fields[] = {
    FIELD(ENTRY, struct shm_entry, sequence),
    FIELD(ENTRY, struct shm_entry, kind),
    FIELD(ENTRY, struct shm_entry, dtype),
    FIELD(ENTRY, struct shm_entry, op),
    FIELD(ENTRY, struct shm_entry, place),
    FIELD(ENTRY, struct shm_entry, root),
    FIELD(ENTRY, struct shm_entry, set),
    FIELD(ENTRY, struct shm_entry, count),
    FIELD(ENTRY, struct shm_entry, in),
    FIELD(ENTRY, struct shm_entry, out),
    {BODY, offsetof(struct shm_body, payload), 8}, /* a table */
    {BODY, offsetof(struct shm_body, payload) + 8, 8},
    DETAIL(row),
    DETAIL(prescale),
    DETAIL(postscale),
    DETAIL(group),
    DETAIL(compression),
    DETAIL(capacity),
    DETAIL(table_at),
    DETAIL(table),
    DETAIL(recv_counts_at),
    FIELD(MEMBER_SLOT, struct shm_member_slot, done),
    FIELD(MEMBER_SLOT, struct shm_member_slot, given),
    FIELD(SLOT, struct shm_slot, claim),
    FIELD(SLOT, struct shm_slot, done),
    FIELD(SLOT, struct shm_slot, settled),
    FIELD(SLOT, struct shm_slot, status),
    FIELD(MAILBOX, struct shm_mailbox, ready.tail),
    FIELD(MAILBOX, struct shm_mailbox, ready.head),
    FIELD(MAILBOX, struct shm_mailbox, sleeping),
    {MAILBOX, offsetof(struct shm_mailbox, ready.slot), 4},
    FIELD(HEADER, struct shm_header, members),
    FIELD(HEADER, struct shm_header, size),
    FIELD(HEADER, struct shm_header, poison_status),
};
#define FIELDS (sizeof fields / sizeof *fields)

static char *base_of(struct place *p, enum base base, uint32_t rank, size_t tensor, uint32_t member,
                     const struct tensor_view *v)
{
    switch (base) {
    case ENTRY:
        return (char *)tensor_entry_at(v, member, v->sequence);
    case BODY:
        return (char *)&v->member_slot[member]->body[v->sequence & 1];
    case MEMBER_SLOT:
        return (char *)v->member_slot[member];
    case SLOT:
        return (char *)v->slot;
    case MAILBOX:
        return (char *)region_mailbox(&p->region, rank);
    default:
        return (char *)p->region.header;
    }
}

/* One field, of the operation that the rank is in. */
static void poke(struct place *p, uint32_t rank, size_t tensor, struct input *in)
{
    uint32_t member;
    const struct tensor_view *v = view_of(p, rank, tensor, &member);
    size_t field = byte(in) % FIELDS;
    uint64_t value = telling(in);

    if (v)
        memcpy(base_of(p, fields[field].base, rank, tensor, member, v) + fields[field].offset, &value,
               fields[field].bytes);
}

/* Bytes anywhere in the slot, or in an entry of it. */
static void scribble(struct place *p, uint32_t rank, size_t tensor, struct input *in)
{
    size_t slot_bytes = sizeof(struct shm_slot) + p->region.members * sizeof(struct shm_member_slot);
    size_t at = (byte(in) | (size_t)byte(in) << 8) % (slot_bytes + 2 * sizeof(struct shm_entry));
    size_t n = byte(in) % 65, end = slot_bytes;
    uint32_t slot = p->slot[tensor];
    uint8_t *to;

    if (slot == UINT32_MAX)
        return;
    to = (uint8_t *)region_slot(&p->region, slot);
    if (at >= slot_bytes) {
        at -= slot_bytes;
        to = (uint8_t *)region_entry(&p->region, slot, rank, (uint32_t)(at / sizeof(struct shm_entry)));
        at %= end = sizeof(struct shm_entry);
    }
    for (size_t i = 0; i < n && at + i < end; i++)
        to[at + i] = byte(in);
}

/* ---- an input ------------------------------------------------------------------------------------------ */

/* The action's byte: what in its lowest bits, which tensor; the next one: whose. */
static void act(struct input *in)
{
    uint8_t what = byte(in), who = byte(in);
    size_t tensor = what / 8 % JOB_TENSORS;
    struct place *p = &place[who % hosts];
    uint32_t rank = who / 4 % p->region.members;
    struct plan planned;

    switch (what % 8) {
    case 0: /* all arrive */
        planned = plan(in);
        for (p = place; p < place + hosts; p++)
            for (rank = 0; rank < p->region.members; rank++)
                arrive(p, rank, tensor, &planned);
        break;
    case 1:
        planned = plan(in);
        arrive(p, rank, tensor, &planned);
        break;
    case 2:
        tell(p, rank, tensor);
        break;
    case 3: /* all hosts' are told */
        tell_all(tensor);
        for (int i = who % 16; i >= 0; i--)
            job_turn();
        break;
    case 4:
    case 5:
        poke(p, rank, tensor, in);
        break;
    case 6:
        scribble(p, rank, tensor, in);
        break;
    default: { /* a number in a rank's memory, where tables are */
        uint64_t value = telling(in);
        size_t at = who & 128 ? RECV_COUNTS_AT : TABLE_AT;
        memcpy((char *)p->owner[rank].memory.base + at + 8 * (who / 16 % 4), &value, sizeof value);
        break;
    }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, size};

    job_begin(byte(&in));
    for (int i = 0; i < ACTIONS && in.left > 0; i++)
        act(&in);
    for (int i = 0; i < 12; i++)
        job_turn();
    job_end();
    return 0;
}
