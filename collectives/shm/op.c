#include "collectives/shm/op.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "collectives/kernels/adasum.h"
#include "collectives/kernels/dtype.h"
#include "collectives/hvd.h"

#define BYTES_MAX (1ull << 48)

static const struct {
    const char *in_sentence, *in_timeline;
} kinds[SHM_KINDS] = {
#define NAMES_OF(kind, number, in_sentence, in_timeline) [number] = {in_sentence, in_timeline},
    SHM_KIND_LIST(NAMES_OF)
#undef NAMES_OF
};

static bool is_kind(uint8_t kind)
{
    return kind < SHM_KINDS && kinds[kind].in_sentence;
}

const char *op_kind_name(uint8_t kind)
{
    return is_kind(kind) ? kinds[kind].in_sentence : "an unknown operation";
}

bool op_takes_zeros(const struct tensor_op *op)
{
    static const uint32_t ops = 1u << HVD_SUM | 1u << HVD_AVERAGE | 1u << HVD_ADASUM | 1u << HVD_BOR |
                                1u << HVD_BXOR | 1u << HVD_LOR | 1u << HVD_LXOR;
    return !op->device &&
           op_kind_in(op->kind, SHM_KIND_BIT(SHM_ALLREDUCE) | SHM_KIND_BIT(SHM_ALLREDUCE_SHARED)) &&
           op->op < 32 && (ops >> op->op & 1) != 0;
}

static const char *compression_name(uint8_t compression)
{
    static const char *const name[] = {"none", "float16", "bfloat16"};
    return compression <= HVD_COMPRESSION_BFLOAT16 ? name[compression] : "unknown";
}

/* ---- possible operations ------------------------------------------------------------------------------- */

/* Made of rows; of a group they differ from tensor to tensor, and `row` is something else. */
static bool in_rows(const struct tensor_op *op)
{
    return op_is_ragged(op->kind) || (op->kind == SHM_REDUCESCATTER && op->group == 0);
}

static const char *wrong_adasum(const struct tensor_op *op, uint32_t size)
{
    if (op->kind != SHM_ALLREDUCE || op->group != 0)
        return "adasum is for one tensor's allreduce only";
    if (op->prescale != 1 || op->postscale != 1)
        return "adasum finds its own scales, so it cannot be scaled";
    return adasum_refused(op->dtype, size ? size : 1);
}

static const char *op_refused_here(const struct tensor_op *op)
{
    if (op->device && dtype_of_devices(op->dtype))
        return op->op <= HVD_PRODUCT && op->op != HVD_ADASUM ? NULL : op_refused(HVD_FLOAT32, HVD_BAND);
    return op_refused(op->dtype, op->op);
}

static const char *wrong_device(const struct tensor_op *op)
{
    if (op->device > OP_EITHER || op->kind == SHM_ALLREDUCE_SHARED)
        return "a result in shared memory cannot be made of memory of a GPU";
    return op->device == OP_EITHER && op->count > 0 ? "elements have to be somewhere" : NULL;
}

static const char *wrong_data(const struct tensor_op *op, uint32_t size_of_set, char *text, size_t text_size)
{
    size_t size = dtype_size(op->dtype);
    if (size == 0)
        snprintf(text, text_size, "there is no element type %d", op->dtype);
    else if (op->count > BYTES_MAX || op->count * size > BYTES_MAX)
        snprintf(text, text_size, "%llu elements of %s are more than there can be",
                 (unsigned long long)op->count, dtype_name(op->dtype));
    else if (in_rows(op) && (op->row == 0 || (op->row > 1 && op->count % op->row != 0)))
        snprintf(text, text_size, "%llu elements are not whole rows of %llu", (unsigned long long)op->count,
                 (unsigned long long)op->row);
    else if (op_is_adasum(op) && wrong_adasum(op, size_of_set))
        snprintf(text, text_size, "%s", wrong_adasum(op, size_of_set));
    else if (op_reduces(op->kind) && !op_is_adasum(op) && !op_elementwise(op->op))
        snprintf(text, text_size, "there is no operation %d", op->op);
    else if (op_reduces(op->kind) && op_refused_here(op))
        snprintf(text, text_size, "%s of %s: %s", op_name(op->op), dtype_name(op->dtype),
                 op_refused_here(op));
    else if (op->device && wrong_device(op))
        snprintf(text, text_size, "%s", wrong_device(op));
    else if (!isfinite(op->prescale) || !isfinite(op->postscale))
        snprintf(text, text_size, "prescale and postscale must be finite numbers");
    else if (op->compression > HVD_COMPRESSION_BFLOAT16)
        snprintf(text, text_size, "there is no compression %d", op->compression);
    else if (op->compression != HVD_COMPRESSION_NONE && op->dtype != HVD_FLOAT32)
        snprintf(text, text_size, "only float32 can be compressed, not %s", dtype_name(op->dtype));
    else
        return NULL;
    return text;
}

const char *op_wrong(const struct tensor_op *op, uint32_t size, char *text, size_t text_size)
{
    if (!is_kind(op->kind)) {
        snprintf(text, text_size, "there is no operation of the kind %d", op->kind);
        return text;
    }
    if (op->kind == SHM_BROADCAST && size > 0 && op->root >= size) {
        snprintf(text, text_size, "root %d is not a rank below %u", (int)op->root, size);
        return text;
    }
    return op_moves(op->kind) ? wrong_data(op, size, text, text_size) : NULL;
}

/* ---- properties ---------------------------------------------------------------------------------------- */

static uint64_t bits_of(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static const char *group_words(const struct tensor_op *op, char *text, size_t size)
{
    if (op->group == 0)
        return "one tensor";
    snprintf(text, size, "a group of %u tensor%s", op->group, op->group == 1 ? "" : "s");
    return text;
}

static uint64_t row_of(const struct tensor_op *op)
{
    return op->group || op->kind == SHM_BROADCAST ? 0 : op->row;
}

static const char *sized_words(const struct tensor_op *op)
{
    return op_is_sized(op) ? "_alloc" : "";
}

/* The properties that are compared, the most telling first. `shown`: op_text says it anyway. */
#define PROPERTIES(X)                                                                                        \
    X(kind, op->kind | op_is_sized(op) << 8, true, "%s%s%s", op->kind == SHM_JOIN ? "" : "called ",          \
      op_kind_name(op->kind), sized_words(op))                                                               \
    X(set, (uint64_t)op->set, false, "process set %d", op->set)                                              \
    X(dtype, op->dtype, true, "element type %s", dtype_name(op->dtype))                                      \
    X(op, op_is_ragged(op->kind) ? 0 : op->op, true, "operation %s", op_name(op->op))                        \
    X(group, op->group, false, "%s", group_words(op, (char[32]){0}, 32))                                     \
    X(count, op_is_ragged(op->kind) ? 0 : op->count, true, "%llu elements", (unsigned long long)op->count)   \
    X(device, op->device, false, "in memory of %s", op->device ? "a GPU" : "the host")                       \
    X(row, row_of(op), false, "%llu elements a row", (unsigned long long)op->row)                            \
    X(sizes, op->group ? op->row : 0, false, "a group of %u tensors with sizes of its own", op->group)       \
    X(root, op->kind == SHM_BROADCAST ? op->root : 0, true, "root rank %u", op->root)                        \
    X(shape, op_shape(op), false, "%s", op_shape(op) ? "a shape of its own" : "no shape of its own")         \
    X(prescale, bits_of(op->prescale), false, "prescale %.17g", op->prescale)                                \
    X(postscale, bits_of(op->postscale), false, "postscale %.17g", op->postscale)                            \
    X(compression, op->compression, false, "compression %s", compression_name(op->compression))

#define PROPERTY(name, value, shown, ...)                                                                    \
    static uint64_t get_##name(const struct tensor_op *op)                                                   \
    {                                                                                                        \
        return value;                                                                                        \
    }                                                                                                        \
    static void say_##name(const struct tensor_op *op, char *text, size_t size)                              \
    {                                                                                                        \
        snprintf(text, size, __VA_ARGS__);                                                                   \
    }
PROPERTIES(PROPERTY)
#undef PROPERTY

static const struct {
    uint64_t (*value)(const struct tensor_op *op);
    void (*text)(const struct tensor_op *op, char *text, size_t size);
    bool shown;
} properties[] = {
#define PROPERTY(name, value, shown, ...) {get_##name, say_##name, shown},
    PROPERTIES(PROPERTY)
#undef PROPERTY
};
#define NUMBER ((int)(sizeof properties / sizeof *properties))

int op_difference(const struct tensor_op *a, const struct tensor_op *b)
{
    if (memcmp(a, b, sizeof *a) == 0)
        return -1;
    for (int i = 0; i < NUMBER; i++)
        if (properties[i].value(a) != properties[i].value(b))
            return i;
    return -1;
}

void op_property_text(const struct tensor_op *op, int property, char *text, size_t size)
{
    properties[property].text(op, text, size);
}

void op_text(const struct tensor_op *op, int property, char *text, size_t size)
{
    const char *kind = op_kind_name(op->kind), *dtype = dtype_name(op->dtype);
    unsigned long long count = op->count;
    if (op_reduces(op->kind))
        snprintf(text, size, "%s %s of %llu %s", kind, op_name(op->op), count, dtype);
    else if (op->kind == SHM_BROADCAST)
        snprintf(text, size, "%s from rank %u of %llu %s", kind, op->root, count, dtype);
    else if (op_moves(op->kind))
        snprintf(text, size, "%s%s of %llu %s", kind, sized_words(op), count, dtype);
    else
        snprintf(text, size, "%s", kind);
    size_t used = strlen(text);
    if (property >= 0 && !properties[property].shown && used + 3 < size) {
        text[used++] = ',';
        text[used++] = ' ';
        op_property_text(op, property, text + used, size - used);
    }
}

const char *op_event_name(uint8_t kind)
{
    return is_kind(kind) ? kinds[kind].in_timeline : "OPERATION";
}
