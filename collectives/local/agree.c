/* All members have arrived: what they have written is read once, checked, and compared; then the elements are
 * found. Every member and the engine come to the same view, or to the same sentence. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/local/pipeline.h"
#include "collectives/local/kind.h"
#include "collectives/local/tensor.h"

#define BYTES_MAX (1ull << SHM_OFFSET_BITS)

/* The part of an entry that is not its payload, read once. */
struct claim_of_member {
    struct tensor_op op;
    uint8_t place;
    bool is_private;
    uint32_t table;
    uint64_t in, out, capacity, table_at, recv_counts_at;
};

static struct claim_of_member read_entry(const struct tensor_view *v, uint32_t member)
{
    const volatile struct shm_entry *entry = tensor_entry(v, member);
    struct claim_of_member c = {
        .op = {.kind = entry->kind,
               .dtype = entry->dtype,
               .op = entry->op,
               .root = entry->root,
               .set = entry->set,
               .count = entry->count,
               .prescale = 1,
               .postscale = 1},
        .place = entry->place,
        .in = entry->in,
        .out = entry->out,
    };
    c.is_private = (c.place & SHM_PRIVATE) != 0;
    c.op.device = c.place & SHM_EITHER ? OP_EITHER : (c.place & SHM_DEVICE) != 0;
    c.place &= (uint8_t) ~(SHM_PRIVATE | SHM_STREAMED | SHM_DEVICE | SHM_EITHER);
    if (c.place & SHM_BRIEF) {
        c.place &= (uint8_t)~SHM_BRIEF;
        c.op.row = c.in;
        c.capacity = c.out;
        c.in = c.out = 0;
    } else if (c.place & SHM_DETAILED) {
        const volatile struct shm_details *details = &tensor_body(v, member)->details;
        c.place &= (uint8_t)~SHM_DETAILED;
        c.op.row = details->row;
        c.op.prescale = details->prescale;
        c.op.postscale = details->postscale;
        c.op.group = details->group;
        c.op.compression = details->compression & 15;
        c.capacity = details->capacity;
        c.table_at = details->table_at;
        c.table = details->table;
        c.recv_counts_at = details->recv_counts_at;
    }
    return c;
}

uint32_t tensor_latest(const struct tensor_view *v, uint32_t member)
{
    uint32_t a = atomic_load(&tensor_entry_at(v, member, 0)->sequence);
    uint32_t b = atomic_load(&tensor_entry_at(v, member, 1)->sequence);
    return (int32_t)(a - b) > 0 ? a : b;
}

struct tensor_op tensor_asked(const struct tensor_view *v, uint32_t member)
{
    struct tensor_view at = *v; /* entries are found by the view's operation */
    at.sequence = tensor_latest(v, member);
    struct tensor_op op = read_entry(&at, member).op;
    if (op.device == OP_EITHER) /* a rank without elements has none on a GPU either */
        op.device = 0;
    return op;
}

/* "ranks 1, 3 have" joined, of this host's. */
static void joined_text(const struct tensor_view *v, char *text, size_t size)
{
    uint32_t joined = 0;
    size_t used = 0;
    for (uint32_t i = 0; i < v->team->members; i++)
        joined += read_entry(v, i).op.kind == SHM_JOIN;
    for (uint32_t i = 0; i < v->team->members && used < size; i++)
        if (read_entry(v, i).op.kind == SHM_JOIN)
            used += (size_t)snprintf(text + used, size - used, "%s%u",
                                     used > 0     ? ", "
                                     : joined > 1 ? "ranks "
                                                  : "rank ",
                                     team_rank(v->team, i));
    if (used < size)
        snprintf(text + used, size - used, joined > 1 ? " have" : " has");
}

/* One of the two has joined, and the other one's operation cannot do without its elements. */
static int mismatch_joined(const struct tensor_view *v, const char *name, uint32_t other,
                           const struct tensor_op *theirs, char *text, size_t size)
{
    bool first = v->op.kind == SHM_JOIN;
    char asked[SHM_TEXT_MAX / 4];
    op_text(first ? theirs : &v->op, -1, asked, sizeof asked);
    char ranks[SHM_TEXT_MAX / 4];
    joined_text(v, ranks, sizeof ranks);
    snprintf(text, size, "tensor \"%s\": rank %u asks for %s, but %s joined", name,
             team_rank(v->team, first ? other : 0), asked, ranks);
    return HVD_ERR_MISMATCH;
}

static int report_mismatch(const struct tensor_view *v, const char *name, uint32_t other,
                           const struct tensor_op *theirs, int property, char *text, size_t size)
{
    if (v->op.kind == SHM_JOIN || theirs->kind == SHM_JOIN)
        return mismatch_joined(v, name, other, theirs, text, size);
    char first[SHM_TEXT_MAX / 4];
    op_text(&v->op, property, first, sizeof first);
    char second[SHM_TEXT_MAX / 4];
    op_text(theirs, property, second, sizeof second);
    snprintf(text, size, "tensor \"%s\": rank %u asks for %s, rank %u for %s", name, team_rank(v->team, 0),
             first, team_rank(v->team, other), second);
    return HVD_ERR_MISMATCH;
}

/* Is it possible, and does it agree with the first one's? */
static int check_claim(struct tensor_view *v, uint32_t member, const struct claim_of_member *c,
                       const char *name, char *text, size_t size)
{
    if (member > 0) {
        int property = op_difference(&v->op, &c->op);
        if (property >= 0)
            return report_mismatch(v, name, member, &c->op, property, text, size);
        if (!op_is_ragged(v->op.kind))
            return HVD_SUCCESS;
    } else {
        v->op = c->op;
    }
    char wrong[SHM_TEXT_MAX / 4];
    if (c->op.set != v->team->id)
        snprintf(wrong, sizeof wrong, "process set %d", c->op.set);
    else if (!op_wrong(&c->op, v->team->size, wrong, sizeof wrong))
        return HVD_SUCCESS;
    snprintf(text, size, "tensor \"%s\": rank %u has written what cannot be: %s", name,
             team_rank(v->team, member), wrong);
    return HVD_ERR_INVALID;
}

/* ---- tables -------------------------------------------------------------------------------------------- */

/* Each rank's part of `count` elements: whole rows, the first ones one more. false: some are left over (of a
 * group, whose `row` is no number of elements, when it has no table). */
static bool cut_rows(uint64_t *part, uint32_t ranks, uint64_t count, uint64_t row)
{
    uint64_t rows = row == 1 || row == 0 ? count * row : count / row, each = rows / ranks,
             more = rows % ranks;
    for (uint32_t i = 0; i < ranks; i++)
        part[i] = (each + (i < more)) * row;
    return rows * row == count;
}

/* Takes the member's table, or makes the one that it means. */
static bool find_table(struct tensor_view *v, uint32_t member, const struct claim_of_member *c,
                       const struct tensor_resolver *resolver)
{
    uint32_t ranks = v->team->size;
    size_t bytes = ranks * sizeof *v->split;
    bool own = v->op.kind == SHM_ALLTOALL;
    uint64_t sum = 0;
    if (!own && (v->op.kind != SHM_REDUCESCATTER || member > 0))
        return true;
    /* Large enough for either kind: the name may be used for the other one next time. */
    if (!v->split)
        v->split = malloc(v->team->members * bytes);
    if (!v->split)
        return false;
    uint64_t *row = v->split + (own ? (size_t)member * ranks : 0);
    if (c->table == 0)
        return cut_rows(row, ranks, c->op.count, c->op.row);
    const void *from = c->table == SHM_INLINE ? tensor_body(v, member)->payload
                                              : resolver->resolve(resolver->ctx, c->table_at, bytes);
    if (!from)
        return false;
    memcpy(row, from, bytes);
    for (uint32_t i = 0; i < ranks; i++) {
        if (row[i] > c->op.count - sum)
            return false;
        sum += row[i];
    }
    return own || sum == c->op.count;
}

/* ---- elements ------------------------------------------------------------------------------------------ */

static void *resolve_address(const struct tensor_view *v, const struct tensor_resolver *resolver,
                             uint64_t address, uint64_t bytes)
{
    return address & (tensor_element_size(v) - 1) ? NULL : resolver->resolve(resolver->ctx, address, bytes);
}

/* The place where the engine tells how many elements came of each rank. */
static bool find_recv_counts(struct tensor_view *v, uint32_t member, const struct claim_of_member *c,
                             const struct tensor_resolver *resolver)
{
    uint64_t *recv_counts = NULL;
    if (team_is_here(v->team) || !op_is_ragged(v->op.kind))
        return true;
    if (c->recv_counts_at % sizeof *recv_counts == 0)
        recv_counts = resolver->resolve(resolver->ctx, c->recv_counts_at, tensor_recv_bytes(v->team, &v->op));
    v->recv_counts[member] = recv_counts;
    return recv_counts != NULL;
}

static bool find_output(struct tensor_view *v, uint32_t member, const struct claim_of_member *c,
                        const struct tensor_resolver *resolver)
{
    if (op_is_sized(&v->op)) {
        v->capacity[member] = UINT64_MAX;
        v->out[member] = NULL;
        return true;
    }
    if (op_is_ragged(v->op.kind)) {
        if (c->capacity > BYTES_MAX / tensor_element_size(v))
            return false;
        v->capacity[member] = c->capacity;
    }
    uint64_t bytes = kind_of(&v->op)->output_bytes(v, member);
    if (op_scatters(v->op.kind) && bytes <= SHM_INLINE_MAX)
        v->out[member] = tensor_scratch(v, member);
    else if (bytes == 0 || (c->place == SHM_INLINE && !op_scatters(v->op.kind)))
        v->out[member] = NULL;
    else if (c->in == c->out && !op_scatters(v->op.kind))
        v->out[member] = (void *)v->in[member];
    else
        return (v->out[member] = resolve_address(v, resolver, c->out, bytes)) != NULL;
    return true;
}

/* Only the member itself sees them, so there can be one such. */
static bool find_private(struct tensor_view *v, uint32_t member)
{
    bool mine = member == v->me;
    v->in[member] = mine ? v->own.in : NULL;
    v->out[member] = mine ? v->own.out : NULL;
    if (v->worker != TENSOR_ANYBODY || v->op.kind != SHM_ALLREDUCE || !team_is_here(v->team))
        return false;
    v->worker = member;
    return true;
}

/* All are streamed, or none: those that stand alone have given up. A member that gives nothing
 * has no place. */
static bool find_place(struct tensor_view *v, uint32_t member, const struct claim_of_member *c,
                       const struct tensor_resolver *resolver)
{
    bool ragged = op_is_ragged(v->op.kind), here = team_is_here(v->team);
    if ((here && v->me >= v->team->members) || !op_kind_in(v->op.kind, STREAM_KINDS) ||
        (!here && !stream_crosses(v->region, &v->op)) || (c->place == SHM_INLINE && !ragged))
        return false;
    if (ragged && c->capacity > BYTES_MAX / tensor_element_size(v))
        return false;
    v->capacity[member] = op_is_sized(&v->op) ? UINT64_MAX : c->capacity;
    if (op_is_sized(&v->op) && c->out != STREAM_NOT_SHARED) {
        v->out[member] = NULL;
        return (v->in[member] = resolve_address(v, resolver, c->out, tensor_bytes(&c->op))) != NULL;
    }
    bool has_place = v->op.kind != SHM_BROADCAST || member == v->op.root;
    v->out[member] = has_place ? resolve_address(v, resolver, c->in, STREAM_PLACE) : NULL;
    if (has_place && !v->out[member])
        return false;
    if (c->place != SHM_INLINE)
        v->in[member] = v->out[member];
    return true;
}

/* Of a device: only numbers are here. */
static bool find_nothing(struct tensor_view *v, uint32_t member, const struct claim_of_member *c)
{
    v->in[member] = v->out[member] = NULL;
    v->device_memory = member == 0 || c->in == v->device_memory ? c->in : 0;
    if (op_is_ragged(v->op.kind) && c->capacity > BYTES_MAX / tensor_element_size(v))
        return false;
    v->capacity[member] = c->capacity;
    return true;
}

static bool find_elements(struct tensor_view *v, uint32_t member, const struct claim_of_member *c,
                          const struct tensor_resolver *resolver)
{
    uint64_t bytes = tensor_bytes(&c->op),
             table = c->table == SHM_INLINE ? v->team->size * sizeof *v->split : 0;
    if (c->table > SHM_SEGMENT || table > SHM_TABLE_MAX ||
        c->place != (tensor_is_inline(bytes, table) ? SHM_INLINE : SHM_SEGMENT))
        return false;
    if (!op_moves(v->op.kind))
        return true;
    v->count[member] = c->op.count;
    if (v->op.device)
        return find_nothing(v, member, c) && find_table(v, member, c, resolver) &&
               find_recv_counts(v, member, c, resolver);
    if (c->place == SHM_INLINE)
        v->in[member] = tensor_payload(v, member, bytes, table);
    if (v->streamed)
        return find_place(v, member, c, resolver) && find_table(v, member, c, resolver);
    if (c->is_private)
        return c->place == SHM_SEGMENT && find_private(v, member);
    if (c->place != SHM_INLINE)
        v->in[member] = resolve_address(v, resolver, c->in, bytes);
    return v->in[member] && find_table(v, member, c, resolver) && find_output(v, member, c, resolver) &&
           find_recv_counts(v, member, c, resolver);
}

/* Plans the work; on several hosts the engine does so. */
static int plan_work(struct tensor_view *v, const char *name, char *text, size_t size)
{
    uint64_t total = v->op.count;
    if (!op_moves(v->op.kind))
        return HVD_SUCCESS;
    char wrong[SHM_TEXT_MAX / 4];
    if (team_is_here(v->team))
        total = kind_of(&v->op)->plan(v, wrong, sizeof wrong);
    if (total == UINT64_MAX) {
        snprintf(text, size, "tensor \"%s\": %s", name, wrong);
        return HVD_ERR_MISMATCH;
    }
    if (v->op.device)
        return HVD_SUCCESS;
    v->bytes = total * tensor_element_size(v);
    if (v->streamed)
        stream_plan(v);
    else if (v->place == SHM_SEGMENT && !op_is_sized(&v->op))
        v->chunks = op_is_adasum(&v->op) ? (struct chunks){total, total, 1}
                                         : chunks_cut(total, tensor_element_size(v), v->team->members);
    return HVD_SUCCESS;
}

/* The fast way for small elements: every entry is, word for word, what I have published and checked before.
 * Only what `mine` of those kinds uses is found. My own lines are not read again: another member's look may
 * have taken them from my processor's cache. */
static bool open_alike(struct tensor_view *v)
{
    uint8_t place = v->own.place;
    bool is_brief = (place & SHM_BRIEF) != 0;
    if (v->me >= v->team->members || (place & ~SHM_BRIEF) != SHM_INLINE ||
        (op_scatters(v->op.kind) && !is_brief))
        return false;
    for (uint32_t i = 0; i < v->team->members; i++) {
        const volatile struct shm_entry *entry = tensor_entry(v, i);
        v->in[i] = i == v->me && v->own.small ? v->own.small : tensor_payload(v, i, v->bytes, 0);
        if (i == v->me)
            continue;
        if (entry->kind != v->op.kind || entry->dtype != v->op.dtype || entry->op != v->op.op ||
            entry->place != place || entry->root != v->op.root || entry->set != v->op.set ||
            entry->count != v->op.count ||
            (is_brief && (entry->in != v->op.row || entry->out != v->own.capacity)))
            return false;
    }
    return true;
}

/* Plans the work of a kind whose results have another size than its inputs. */
static int plan_alike(struct tensor_view *v, const char *name, char *text, size_t size)
{
    struct claim_of_member c = {.op = v->op};
    for (uint32_t i = 0; i < v->team->members; i++) {
        v->count[i] = v->op.count;
        v->capacity[i] = op_is_sized(&v->op) ? UINT64_MAX : v->own.capacity;
        if (!find_table(v, i, &c, NULL)) {
            snprintf(text, size, "tensor \"%s\": no memory", name);
            return HVD_ERR_MEMORY;
        }
    }
    return plan_work(v, name, text, size);
}

/* A member without elements follows the first member that has some. If no member has any, other hosts decide,
 * if there are any. */
static uint8_t device_of_all(const struct tensor_view *v)
{
    for (uint32_t i = 0; i < v->team->members; i++) {
        uint8_t place = ((const volatile struct shm_entry *)tensor_entry(v, i))->place;
        if (!(place & SHM_EITHER))
            return (place & SHM_DEVICE) != 0;
    }
    return team_is_here(v->team) ? 0 : OP_EITHER;
}

int tensor_open(struct tensor_view *v, const char *name, const struct tensor_resolver *resolver, char *text,
                size_t text_size)
{
    ARRIVED_FROM_OTHERS(v);
    if (open_alike(v))
        return op_scatters(v->op.kind) ? plan_alike(v, name, text, text_size) : HVD_SUCCESS;
    v->place = SHM_INLINE;
    v->worker = TENSOR_ANYBODY;
    v->streamed = stream_of_all(v);
    v->bytes = 0;
    uint8_t device = device_of_all(v);
    for (uint32_t i = 0; i < v->team->members; i++) {
        struct claim_of_member c = read_entry(v, i);
        if (c.op.device == OP_EITHER)
            c.op.device = device;
        int status = check_claim(v, i, &c, name, text, text_size);
        if (status != HVD_SUCCESS)
            return status;
        if (!find_elements(v, i, &c, resolver)) {
            snprintf(text, text_size, "tensor \"%s\": rank %u's buffer lies outside its shared memory", name,
                     team_rank(v->team, i));
            return HVD_ERR_INVALID;
        }
        if (c.place != SHM_INLINE)
            v->place = SHM_SEGMENT;
    }
    if (!team_is_here(v->team) && op_scatters(v->op.kind) && !v->op.device)
        v->place = SHM_SEGMENT;
    v->streamed = v->streamed && v->place == SHM_SEGMENT; /* else all elements are in the entries anyway */
    return plan_work(v, name, text, text_size);
}

void *tensor_scratch(const struct tensor_view *v, uint32_t member)
{
    return v->member_slot[member]->body[(v->sequence + 1) & 1].payload;
}
