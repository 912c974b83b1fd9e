#include "collectives/algorithms/dtype.h"

static const struct {
    const char *name;
    size_t size;
} dtypes[] = {
    [HVD_INT32] = {"int32", 4},
    [HVD_INT64] = {"int64", 8},
    [HVD_FLOAT32] = {"float32", 4},
    [HVD_FLOAT64] = {"float64", 8},
};

static const char *const ops[] = {
    [HVD_AVERAGE] = "average",
    [HVD_SUM] = "sum",
    [HVD_MIN] = "min",
    [HVD_MAX] = "max",
};

#define LENGTH(table) ((int)(sizeof(table) / sizeof(table)[0]))

size_t dtype_size(int dtype)
{
    return dtype >= 0 && dtype < LENGTH(dtypes) ? dtypes[dtype].size : 0;
}

const char *dtype_name(int dtype)
{
    return dtype_size(dtype) ? dtypes[dtype].name : "unknown";
}

bool op_valid(int op)
{
    return op >= 0 && op < LENGTH(ops) && ops[op];
}

const char *op_name(int op)
{
    return op_valid(op) ? ops[op] : "unknown";
}
