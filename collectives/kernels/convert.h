/* Arrays of float32 as they travel between hosts when compression is asked for: two bytes an element. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "collectives/hvd.h"

/* The type on the wire of a compression other than none. */
hvd_dtype compressed_dtype(hvd_compression compression);
/* Exact. */
void expand(float *to, const uint16_t *from, size_t count, hvd_compression compression);
