#include "tests/sim/plan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/kernels/half.h"

#define BUDGET (1u << 20) /* bytes of one plan, over all ranks */

static uint64_t mix(uint64_t a, uint64_t b)
{
    struct chance c = {a ^ b * 0xd6e8feb86659fd93ull};

    return chance_next(&c);
}

/* ---- the plan ------------------------------------------------------------------------------------------ */

static const hvd_dtype dtypes[] = {HVD_FLOAT32, HVD_FLOAT64,  HVD_INT32,  HVD_UINT8,
                                   HVD_INT64,   HVD_BFLOAT16, HVD_FLOAT16};
static const hvd_op float_ops[] = {HVD_SUM, HVD_AVERAGE, HVD_MIN, HVD_MAX};
static const hvd_op integer_ops[] = {HVD_SUM, HVD_MIN, HVD_MAX, HVD_PRODUCT, HVD_BXOR};

static bool is_float(hvd_dtype d)
{
    return d == HVD_FLOAT16 || d == HVD_BFLOAT16 || d == HVD_FLOAT32 || d == HVD_FLOAT64;
}

size_t plan_dtype_size(hvd_dtype d)
{
    return d == HVD_UINT8                          ? 1
           : d == HVD_FLOAT16 || d == HVD_BFLOAT16 ? 2
           : d == HVD_FLOAT32 || d == HVD_INT32    ? 4
                                                   : 8;
}

/* Sizes near those at which something changes: what fits into an entry, an eager frame, a chunk, a piece. */
static size_t choose_bytes(struct chance *c)
{
    static const size_t edge[] = {2048, 2048, 4096, 16 << 10, 64 << 10, 256 << 10, 1 << 20};
    size_t at;

    switch (chance_below(c, 8)) {
    case 0:
        return chance_below(c, 9);
    case 1:
    case 2:
        return chance_below(c, 600);
    case 3:
    case 4:
        return chance_below(c, 40 << 10);
    default:
        at = edge[chance_below(c, sizeof edge / sizeof *edge)];
        return at + chance_below(c, 200) - (chance_one_in(c, 2) ? 100 : 0);
    }
}

static struct plan_op make_op(struct chance *c, uint32_t size, size_t most)
{
    struct plan_op op = {.kind = (enum plan_kind)chance_below(c, PLAN_KINDS),
                         .dtype = dtypes[chance_below(c, sizeof dtypes / sizeof *dtypes)],
                         .root = (uint32_t)chance_below(c, size),
                         .row = 1,
                         .odd = UINT32_MAX,
                         .seed = chance_next(c)};
    size_t bytes = choose_bytes(c), elements;

    /* Many of these are large enough to go piece by piece. */
    op.blocks = op.seed % 7 < 2;
    if (op.blocks && op.seed % 2 == 0)
        bytes += 16 << 10;
    if (op.blocks && op.seed % 3 == 0)
        op.kind = PLAN_ALLREDUCE;
    op.op = is_float(op.dtype) ? float_ops[chance_below(c, 4)] : integer_ops[chance_below(c, 5)];
    if (bytes > most)
        bytes = most;
    elements = bytes / plan_dtype_size(op.dtype);
    if (op.kind == PLAN_ALLGATHER)
        elements /= size; /* of each */
    if (op.kind >= PLAN_ALLGATHER)
        op.row = 1 + (chance_one_in(c, 2) ? 0 : chance_below(c, 7));
    op.rows = elements / op.row;
    op.in_place = op.kind == PLAN_BROADCAST || (op.kind < PLAN_GROUP && chance_one_in(c, 3));
    if (is_float(op.dtype) && op.kind < PLAN_BROADCAST && chance_one_in(c, 5)) {
        op.prescale = 0.5;
        op.postscale = chance_one_in(c, 2) ? 4 : 0;
    }
    if (op.dtype == HVD_FLOAT32 && (op.kind == PLAN_ALLREDUCE || op.kind == PLAN_REDUCESCATTER) &&
        chance_one_in(c, 4))
        op.compression = (hvd_compression)(1 + chance_below(c, 2));
    if (size > 1 && chance_one_in(c, 12))
        op.odd = (uint32_t)chance_below(c, size);
    if (is_float(op.dtype) && op.kind == PLAN_ALLREDUCE && op.prescale == 0 && (size & (size - 1)) == 0 &&
        op.odd == UINT32_MAX && op.compression == HVD_COMPRESSION_NONE && op.seed % 3 == 0)
        op.op = HVD_ADASUM;
    return op;
}

/* In some rounds some ranks have nothing to do, and all join. */
static void choose_idle(struct plan *p, uint32_t round, uint64_t chance)
{
    uint64_t all = (1ull << p->size) - 1, idle = chance >> 8 & all & (chance >> 40 | chance << 24);

    if (p->size == 1 || chance % 3 != 0 || idle == 0 || idle == all)
        return;
    p->idle[round] = idle;
    for (uint32_t t = 0; t < p->tensors; t++) {
        struct plan_op *op = &p->op[round][t];
        bool zeros = op->op == HVD_SUM || op->op == HVD_AVERAGE || op->op == HVD_ADASUM || op->op == HVD_BXOR;
        op->idle = idle;
        op->refused = op->kind >= PLAN_BROADCAST || !zeros;
        if (op->odd != UINT32_MAX && (plan_is_idle(p, round, op->odd) || (~idle & all) == 1ull << op->odd))
            op->odd = UINT32_MAX; /* nobody hears of it */
    }
}

/* Two ranks on each of 2 or 4 hosts: a power of two, as Adasum needs it. */
static void make_even(struct plan *p)
{
    p->hosts = p->hosts < 4 ? 2 : 4;
    for (uint32_t i = 0; i < p->hosts; i++)
        p->ranks[i] = 2;
    p->size = 2 * p->hosts;
}

struct plan plan_make(uint64_t seed)
{
    struct chance c = {mix(seed, 1)};
    struct plan p = {.hosts = chance_below(&c, 5) < 2 ? 1 : 2 + (uint32_t)chance_below(&c, SIM_HOSTS - 1)};

    for (uint32_t i = 0; i < p.hosts; i++)
        p.size += p.ranks[i] = 1 + (uint32_t)chance_below(&c, SIM_RANKS);
    if (p.hosts > 1 && mix(seed, 9) % 4 == 0)
        make_even(&p);
    p.rounds = 1 + (uint32_t)chance_below(&c, PLAN_ROUNDS);
    p.flat = mix(seed, 2) % 3 == 0;
    p.fusion_bytes = mix(seed, 10) % 2 ? 1 << 20 : 8 << 10;
    p.tensors = 1 + (uint32_t)chance_below(&c, PLAN_TENSORS);
    for (uint32_t r = 0; r < p.rounds; r++) {
        p.barrier[r] = chance_one_in(&c, 3);
        for (uint32_t t = 0; t < p.tensors; t++)
            p.op[r][t] = make_op(&c, p.size, BUDGET / p.size / p.rounds / p.tensors);
        choose_idle(&p, r, mix(seed, 3 + r));
    }
    return p;
}

void plan_print(const struct plan *p)
{
    static const char *const kind[] = {"allreduce", "persistent", "group",    "shared",
                                       "broadcast", "allgather",  "alltoall", "reducescatter"};

    fprintf(stderr, "%u hosts%s, ranks", p->hosts, p->flat ? ", flat" : "");
    for (uint32_t i = 0; i < p->hosts; i++)
        fprintf(stderr, " %u", p->ranks[i]);
    fputc('\n', stderr);
    for (uint32_t r = 0; r < p->rounds; r++) {
        if (p->idle[r])
            fprintf(stderr, "  round %u: ranks of the mask %llx join\n", r, (unsigned long long)p->idle[r]);
        for (uint32_t t = 0; t < p->tensors; t++) {
            const struct plan_op *op = &p->op[r][t];
            fprintf(stderr,
                    "  round %u t%u: %s dtype %d op %d root %u, %zu rows of %zu, scales %g %g, compression "
                    "%d, odd %d%s%s\n",
                    r, t, kind[op->kind], op->dtype, op->op, op->root, op->rows, op->row, op->prescale,
                    op->postscale, op->compression, (int)op->odd, op->in_place ? ", in place" : "",
                    op->blocks ? ", waited for at once" : "");
        }
    }
}

size_t plan_split(const struct plan_op *op, uint32_t from, uint32_t to)
{
    uint64_t h = mix(op->seed, from * 64 + to + 1);

    return h % 4 == 0 ? 0 : (size_t)(h / 4 % (op->rows / 4 + 2));
}

size_t plan_rows_in(const struct plan *p, const struct plan_op *op, uint32_t rank)
{
    size_t rows = 0;

    if (op->kind == PLAN_ALLGATHER)
        return (size_t)(mix(op->seed, rank) % (op->rows + 2));
    if (op->kind != PLAN_ALLTOALL)
        return op->rows;
    for (uint32_t to = 0; to < p->size; to++)
        rows += plan_split(op, rank, to);
    return rows;
}

size_t plan_rows_out(const struct plan *p, const struct plan_op *op, uint32_t rank)
{
    size_t rows = 0;

    if (op->kind == PLAN_REDUCESCATTER)
        return op->rows / p->size + (rank < op->rows % p->size);
    if (op->kind != PLAN_ALLGATHER && op->kind != PLAN_ALLTOALL)
        return op->rows;
    for (uint32_t from = 0; from < p->size; from++)
        rows += op->kind == PLAN_ALLTOALL ? plan_split(op, from, rank) : plan_rows_in(p, op, from);
    return rows;
}

void plan_pieces(const struct plan_op *op, size_t count[PLAN_PIECES])
{
    count[0] = op->rows / 3;
    count[1] = op->rows > count[0] ? 1 : 0;
    count[2] = op->rows - count[0] - count[1];
}

/* ---- elements ------------------------------------------------------------------------------------------ */

/* Of floating point, numbers whose sum depends on the order; of the short ones, few digits. */
static double real_value(const struct plan_op *op, uint32_t rank, size_t i)
{
    uint64_t h = mix(op->seed + rank * 1000003u, i);

    if (op->dtype == HVD_FLOAT16 || op->dtype == HVD_BFLOAT16)
        return (double)((int64_t)(h % 65) - 32) / 8;
    return ((double)((int64_t)(h >> 24) % (1 << 24)) / (1 << 20) - 8) * (double)(1 + h % 5);
}

static uint64_t whole_value(const struct plan_op *op, uint32_t rank, size_t i)
{
    return mix(op->seed + rank * 1000003u, i);
}

static void put_real(hvd_dtype d, void *at, size_t i, double value)
{
    if (d == HVD_FLOAT64)
        ((double *)at)[i] = value;
    else if (d == HVD_FLOAT32)
        ((float *)at)[i] = (float)value;
    else if (d == HVD_FLOAT16)
        ((uint16_t *)at)[i] = float16_narrow((float)value);
    else
        ((uint16_t *)at)[i] = bfloat16_narrow((float)value);
}

static double get_real(hvd_dtype d, const void *at, size_t i)
{
    if (d == HVD_FLOAT64)
        return ((const double *)at)[i];
    if (d == HVD_FLOAT32)
        return ((const float *)at)[i];
    return d == HVD_FLOAT16 ? float16_widen(((const uint16_t *)at)[i])
                            : bfloat16_widen(((const uint16_t *)at)[i]);
}

void plan_fill(const struct plan_op *op, uint32_t rank, void *in, size_t elements)
{
    size_t size = plan_dtype_size(op->dtype);

    for (size_t i = 0; i < elements; i++) {
        uint64_t whole = whole_value(op, rank, i);
        if (is_float(op->dtype))
            put_real(op->dtype, in, i, real_value(op, rank, i));
        else
            memcpy((char *)in + i * size, &whole, size);
    }
}

/* ---- the right results --------------------------------------------------------------------------------- */

static int64_t narrow(hvd_dtype d, uint64_t value)
{
    return d == HVD_UINT8   ? (int64_t)(uint8_t)value
           : d == HVD_INT32 ? (int64_t)(int32_t)value
                            : (int64_t)value;
}

static uint64_t combine_whole(hvd_op op, int64_t a, int64_t b)
{
    switch (op) {
    case HVD_MIN:
        return (uint64_t)(a < b ? a : b);
    case HVD_MAX:
        return (uint64_t)(a > b ? a : b);
    case HVD_PRODUCT:
        return (uint64_t)a * (uint64_t)b;
    case HVD_BXOR:
        return (uint64_t)(a ^ b);
    default:
        return (uint64_t)a + (uint64_t)b;
    }
}

static bool whole_is_right(const struct plan *p, const struct plan_op *op, size_t i, const void *out,
                           size_t at)
{
    uint64_t sum = 0, got = 0;
    size_t size = plan_dtype_size(op->dtype);

    for (uint32_t r = 0; r < p->size; r++) {
        uint64_t value = op->idle >> r & 1 ? 0 : whole_value(op, r, i);
        sum = r == 0 ? value : combine_whole(op->op, narrow(op->dtype, sum), narrow(op->dtype, value));
    }
    memcpy(&got, (const char *)out + at * size, size);
    return narrow(op->dtype, got) == narrow(op->dtype, sum);
}

static double epsilon(const struct plan_op *op)
{
    if (op->dtype == HVD_BFLOAT16 || op->compression == HVD_COMPRESSION_BFLOAT16)
        return 1.0 / 64;
    if (op->dtype == HVD_FLOAT16 || op->compression == HVD_COMPRESSION_FLOAT16)
        return 1.0 / 512;
    return op->dtype == HVD_FLOAT32 ? 1e-6 : 1e-14;
}

static double rounded(hvd_dtype d, double value)
{
    uint8_t at[8];

    put_real(d, at, 0, value);
    return get_real(d, at, 0);
}

static bool real_is_right(const struct plan *p, const struct plan_op *op, size_t i, const void *out,
                          size_t at)
{
    double pre = op->prescale != 0 ? op->prescale : 1, post = op->postscale != 0 ? op->postscale : 1;
    double sum = 0, all = 0, got = get_real(op->dtype, out, at);

    if (op->op == HVD_ADASUM) /* elsewhere compared with its definition; here, all ranks have the same */
        return isfinite(got);

    for (uint32_t r = 0; r < p->size; r++) {
        double value = op->idle >> r & 1 ? 0 : rounded(op->dtype, real_value(op, r, i)) * pre;
        all += fabs(value);
        if (op->op == HVD_MIN || op->op == HVD_MAX)
            sum = r == 0 || (op->op == HVD_MIN) == (value < sum) ? value : sum;
        else
            sum += value;
    }
    if (op->op == HVD_AVERAGE)
        post /= p->size;
    return fabs(got - sum * post) <= epsilon(op) * (all * fabs(post) + 1e-30);
}

static bool same_elements(const struct plan_op *op, uint32_t from, size_t first, const void *out, size_t at,
                          size_t n)
{
    size_t size = plan_dtype_size(op->dtype);

    for (size_t i = 0; i < n; i++) {
        uint64_t value = whole_value(op, from, first + i);
        uint8_t real[8] = {0};
        if (is_float(op->dtype))
            put_real(op->dtype, real, 0, real_value(op, from, first + i));
        if (memcmp((const char *)out + (at + i) * size, is_float(op->dtype) ? (void *)real : (void *)&value,
                   size))
            return false;
    }
    return true;
}

static bool moved_is_right(const struct plan *p, const struct plan_op *op, uint32_t rank, const void *out,
                           char *text, size_t size)
{
    size_t at = 0;

    for (uint32_t from = 0; from < p->size; from++) {
        size_t first = 0,
               rows = op->kind == PLAN_ALLGATHER ? plan_rows_in(p, op, from) : plan_split(op, from, rank);
        for (uint32_t to = 0; op->kind == PLAN_ALLTOALL && to < rank; to++)
            first += plan_split(op, from, to) * op->row;
        if (!same_elements(op, from, first, out, at, rows * op->row)) {
            snprintf(text, size, "what rank %u sent is wrong", from);
            return false;
        }
        at += rows * op->row;
    }
    return true;
}

bool plan_is_right(const struct plan *p, const struct plan_op *op, uint32_t rank, const void *out, char *text,
                   size_t size)
{
    size_t elements = plan_rows_out(p, op, rank) * op->row, first = 0;
    size_t step = elements > 3000 ? 7 : 1; /* all ranks' are compared whole, elsewhere */

    if (op->kind == PLAN_ALLGATHER || op->kind == PLAN_ALLTOALL)
        return moved_is_right(p, op, rank, out, text, size);
    if (op->kind == PLAN_BROADCAST) {
        snprintf(text, size, "not the root's elements");
        return same_elements(op, op->root, 0, out, 0, elements);
    }
    for (uint32_t r = 0; op->kind == PLAN_REDUCESCATTER && r < rank; r++)
        first += plan_rows_out(p, op, r) * op->row;
    for (size_t i = 0; i < elements; i += i + step < elements ? step : 1) {
        bool right = is_float(op->dtype) ? real_is_right(p, op, first + i, out, i)
                                         : whole_is_right(p, op, first + i, out, i);
        if (!right) {
            snprintf(text, size, "element %zu of %zu is wrong", i, elements);
            return false;
        }
    }
    return true;
}
