#include "collectives/kernels/dtype.h"

enum family { BOOLEAN = 1, INTEGER = 2, FLOATING = 4, OF_DEVICES = 8 };

const uint8_t dtype_sizes[DTYPES] = {
    [HVD_UINT8] = 1,    [HVD_INT8] = 1,    [HVD_UINT16] = 2,  [HVD_INT16] = 2,       [HVD_INT32] = 4,
    [HVD_INT64] = 8,    [HVD_FLOAT16] = 2, [HVD_FLOAT32] = 4, [HVD_FLOAT64] = 8,     [HVD_BOOL] = 1,
    [HVD_BFLOAT16] = 2, [HVD_UINT32] = 4,  [HVD_UINT64] = 8,  [HVD_FLOAT8_E4M3] = 1, [HVD_FLOAT8_E5M2] = 1,
};

static const struct {
    const char *name;
    enum family family;
} dtypes[DTYPES] = {
    [HVD_UINT8] = {"uint8", INTEGER},
    [HVD_INT8] = {"int8", INTEGER},
    [HVD_UINT16] = {"uint16", INTEGER},
    [HVD_INT16] = {"int16", INTEGER},
    [HVD_INT32] = {"int32", INTEGER},
    [HVD_INT64] = {"int64", INTEGER},
    [HVD_FLOAT16] = {"float16", FLOATING},
    [HVD_FLOAT32] = {"float32", FLOATING},
    [HVD_FLOAT64] = {"float64", FLOATING},
    [HVD_BOOL] = {"bool", BOOLEAN},
    [HVD_BFLOAT16] = {"bfloat16", FLOATING},
    [HVD_UINT32] = {"uint32", INTEGER},
    [HVD_UINT64] = {"uint64", INTEGER},
    [HVD_FLOAT8_E4M3] = {"float8_e4m3", OF_DEVICES},
    [HVD_FLOAT8_E5M2] = {"float8_e5m2", OF_DEVICES},
};

#define ANY     (BOOLEAN | INTEGER | FLOATING)
#define BITWISE (BOOLEAN | INTEGER), "bitwise operations need integers or bool"
#define LOGICAL (BOOLEAN | INTEGER), "logical operations need integers or bool"

static const struct {
    const char *name;
    unsigned families; /* that it takes */
    const char *needs;
} ops[OPS] = {
    [HVD_AVERAGE] = {"average", INTEGER | FLOATING, "an average needs numbers"},
    [HVD_SUM] = {"sum", ANY, NULL},
    [HVD_ADASUM] = {"adasum", FLOATING, "adasum needs floating-point numbers"},
    [HVD_MIN] = {"min", ANY, NULL},
    [HVD_MAX] = {"max", ANY, NULL},
    [HVD_PRODUCT] = {"product", ANY, NULL},
    [HVD_BAND] = {"bitwise and", BITWISE},
    [HVD_BOR] = {"bitwise or", BITWISE},
    [HVD_BXOR] = {"bitwise xor", BITWISE},
    [HVD_LAND] = {"logical and", LOGICAL},
    [HVD_LOR] = {"logical or", LOGICAL},
    [HVD_LXOR] = {"logical xor", LOGICAL},
};

const char *dtype_name(int dtype)
{
    return dtype_size(dtype) ? dtypes[dtype].name : "unknown";
}

bool op_valid(int op)
{
    return op >= 0 && op < OPS;
}

const char *op_name(int op)
{
    return op_valid(op) ? ops[op].name : "unknown";
}

const char *op_refused(int dtype, int op)
{
    if (dtype_size(dtype) == 0)
        return "there is no such element type";
    if (!op_valid(op))
        return "there is no such operation";
    if (dtypes[dtype].family == OF_DEVICES)
        return "only devices combine such elements";
    return ops[op].families & dtypes[dtype].family ? NULL : ops[op].needs;
}

bool dtype_of_devices(int dtype)
{
    return dtype_size(dtype) != 0 && dtypes[dtype].family == OF_DEVICES;
}

bool op_elementwise(int op)
{
    return op_valid(op) && op != HVD_ADASUM;
}
