/* The counts of the witness (witness.c), in a file that all processes of a test map. */
#pragma once

#include <stdint.h>

#define WITNESS_FILE "GPU_WITNESS" /* the environment's name of the file; ranks are given no HVD_ names */

struct witness {
    _Atomic uint64_t nccl; /* operations that hvd has called NCCL for */
    _Atomic uint64_t host; /* copies of hvd from a GPU into the host's memory */
};

/* The file, mapped; NULL: nobody counts. It stays mapped until the process ends. */
struct witness *witness_map(void);
