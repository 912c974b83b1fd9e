/* Between the files here. */
#pragma once

#include "tests/gpu/double/double.h"
#include "tests/gpu/emulate/cuda_runtime.h"

/* The first call of every function: traces it, and returns an error if the test wants this function to
 * fail. */
cudaError_t emulate_enter(const char *function);
/* Puts work into a stream of this thread's device; after an error the work is not taken. */
cudaError_t emulate_push(cudaStream_t stream, stream_work run, void *argument);
/* Remembers it for cudaPeekAtLastError, and gives it back. */
cudaError_t emulate_ended(cudaError_t error);
