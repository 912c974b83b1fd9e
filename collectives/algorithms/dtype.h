/* Element types and operations: what exists, how large, how it is called. */
#ifndef HVD_ALGORITHMS_DTYPE_H
#define HVD_ALGORITHMS_DTYPE_H

#include <stdbool.h>
#include <stddef.h>

#include "collectives/hvd.h"

/* Bytes of one element; 0 for a type that does not exist (so also the check of a number from outside). */
size_t dtype_size(int dtype);
/* For sentences: "float32"; "type 9" is "unknown". Never NULL. */
const char *dtype_name(int dtype);
bool op_valid(int op);
const char *op_name(int op);

#endif
