/* A GPU, as the workers of end-to-end tests use one: memory that the host cannot touch, and a stream. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "hvd.h"

/* The GPU of this rank's number on its host; a stream of this worker's. */
void gpu_open(void);
/* hvd_init, and this; the options' stream is the worker's. */
void gpu_begin(int *rank, int *size, hvd_options *options);
void *gpu_stream(void);
void *gpu_alloc(size_t bytes);
void gpu_free(void *memory);
/* Memory in pieces: addresses for so many, and what lies at one of them, which other processes can have if it
 * is `shared`. With GPU_PIECES=1 gpu_alloc gives memory that lies half in one piece, half in others. */
#define GPU_PIECE ((size_t)2 << 20)
char *gpu_reserve(size_t pieces);
void gpu_unreserve(char *at, size_t pieces);
void gpu_map(char *at, bool shared);
void gpu_unmap(char *at);
/* Put into the stream; gpu_get returns when all that was in the stream before has happened too. Until
 * then the host's memory of both has to stay. */
void gpu_put(void *to, const void *from, size_t bytes);
void gpu_get(void *to, const void *from, size_t bytes);
/* Until all that was in the stream has happened. */
void gpu_wait(void);
/* Later work in the stream waits so many milliseconds; the host does not. */
void gpu_pause(unsigned ms);
/* A stream of its own is captured into a graph, or the worker's; then that ends, and was not spoilt `beside`
 * something. Other threads' calls can spoil it, too, if it is `global`. */
void gpu_capture(bool own, bool global);
void gpu_captured(bool own, const char *beside);
/* Ends the capture of the other stream. true: a call has spoilt the capture. */
bool gpu_capture_spoilt(void);
/* From now on the double's calls fail as HVD_DOUBLE_FAIL says it. Not on a real GPU. */
void gpu_fail(const char *list);
/* How often these have waited. */
int gpu_waits(void);
