/* For tests with GPUs that are none: ranks as processes, each with the doubles of tests/gpu/double. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "collectives/gpu/communicator.h"
#include "tests/gpu/limits.h"

/* Starts the program again with the doubles first on the loader's path, unless they are. Ends it as skipped
 * in a build without GPUs. */
void gpu_with_doubles(char **argv);
/* How many GPUs there are when the doubles are not used (REAL_GPU, of tests/gpu/run), else 0. */
int gpu_real(void);
/* The most ranks of a test that does the same with 1, 2, ... of them. */
int gpu_ranks_most(void);

/* The memory that all ranks of a test share. */
struct gpu_shared {
    struct nccl_id id;
    struct nccl_id second_id;
    _Atomic int failed; /* a rank has seen an error */
    _Atomic int mark[16];
};

struct gpu_rank {
    int rank, size;
    struct gpu_shared *shared;
    const struct driver *d;
    const struct nccl *n;
    int ordinal; /* of its GPU */
    cu_device device;
    struct driver_device gpu;
    cu_context context;
    cu_stream stream;
    struct pack *pack;
    struct communicator *c;
};

/* Ends this rank's process with a line, if not. */
#define WANT(condition, ...)                                                                                 \
    do {                                                                                                     \
        if (!(condition))                                                                                    \
            gpu_give_up(__FILE__, __LINE__, #condition, " " __VA_ARGS__);                                    \
    } while (0)
void gpu_give_up(const char *file, int line, const char *condition, const char *format, ...)
    __attribute__((noreturn, format(printf, 4, 5)));

/* Runs `body` in `size` processes, rank r on GPU r, and waits for all of them, which end by themselves
 * (rank_s): how many of them did not end with 0. `killed` (or -1) may end by SIGKILL. */
int gpu_run(int size, int killed, void (*body)(struct gpu_rank *me));
/* All ranks come here. */
void gpu_meet(struct gpu_rank *me, int which);

uint64_t gpu_now_ms(void);
/* Opens libraries, device, stream: what every rank begins with. */
void gpu_open(struct gpu_rank *me);
/* A communicator of all, READY. */
void gpu_join(struct gpu_rank *me);
/* Polls until another state than `now`, at most connect_ms. */
enum communicator_state gpu_while(struct communicator *c, enum communicator_state now, struct err *e);
/* Runs, polls until it is in the stream, waits for the stream. */
void gpu_do(struct gpu_rank *me, const struct gpu_operation *o, size_t n);
/* Leaves with all others and frees everything. */
void gpu_leave(struct gpu_rank *me);

void *gpu_memory(struct gpu_rank *me, const void *content, size_t bytes);
void gpu_read(struct gpu_rank *me, void *into, const void *from, size_t bytes);
void gpu_free(struct gpu_rank *me, void *at);
