/* Element types and operations: what exists, how large, how it is called, what goes with what. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "collectives/hvd.h"

#define DTYPES 15 /* numbers, from 0 */
#define OPS    12

/* Bytes of one element; 0 for a type that does not exist (so also the check of a number from outside). */
static inline size_t dtype_size(int dtype)
{
    extern const uint8_t dtype_sizes[DTYPES];

    return dtype >= 0 && dtype < DTYPES ? dtype_sizes[dtype] : 0;
}
/* For sentences: "float32"; "type 9" is "unknown". Never NULL. */
const char *dtype_name(int dtype);
/* Combined on devices only. */
bool dtype_of_devices(int dtype);
bool op_valid(int op);
const char *op_name(int op);
/* NULL when `op` works on elements of `dtype`; else why it does not, for the end of a sentence: "bitwise
 * operations need integers or bool". Numbers from outside are welcome. */
const char *op_refused(int dtype, int op);
/* The operation takes element by element (reduce.h), so a tensor may be cut for it. All but Adasum do. */
bool op_elementwise(int op);
