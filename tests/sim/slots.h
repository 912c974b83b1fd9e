/* The simulated job has so few slots that its names are forgotten while it runs. The region keeps its
 * size. And tensors that are small already go piece by piece. */
#pragma once

#include "collectives/shm/layout.h"

#undef SHM_SLOTS
#define SHM_SLOTS 16u

#define STREAM_PIECE       4096u
#define STREAM_LEAST       8192u
#define BACKEND_EAGER_MAX  (16u << 10)
#define STREAM_LEAST_FAR   (BACKEND_EAGER_MAX + 64)
#define STREAM_LEAST_SIZED 4096u
