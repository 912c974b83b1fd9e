/* A worker's description of an operation on GPUs that its engine runs (--gpu-placement engine).
 *
 * Memory of the rank becomes the engine's by questions on the worker socket, once each, and gets a number
 * there; two events do with the communicator of a team, `given` and `done`. An operation is then described in
 * a tensor segment, by those numbers: when its turn has come in the team's order, and the member has recorded
 * the team's `given` for it, the member writes where the description lies to its member slot, and the slot
 * to the ring `launch`. The member changes neither until the engine has written to the member slot that the
 * operation is in the engine's stream, before the team's `done`. A team's members each have one such
 * operation at a time.
 *
 * The engine copies a description before it checks it. */
#pragma once

#include <stdint.h>

/* One operation, as gpu_operation of collectives/gpu/communicator.h. */
struct shm_device_piece {
    int32_t kind, dtype, op, root;
    double prescale, postscale;
    uint64_t count, row_count;
    uint32_t in_memory, out_memory; /* numbers of the member's memory; 0: none */
    uint64_t in_offset, out_offset;
};

/* Then the pieces; then, if it is ragged, `counts` and `sent` of each rank. */
struct shm_device_call {
    uint32_t operation; /* of the slot */
    uint32_t pieces;
    uint32_t ragged; /* ranks, or 0 */
    uint32_t known;  /* 1: NCCL is to be given its memory as it knows it (WORKER_DEVICE_KNOW) */
    struct shm_device_piece piece[];
};

#define SHM_DEVICE_PIECES_MAX (1u << 20)

static inline uint64_t shm_device_call_bytes(uint32_t pieces, uint32_t ragged)
{
    return sizeof(struct shm_device_call) + pieces * sizeof(struct shm_device_piece) +
           2 * (uint64_t)ragged * sizeof(uint64_t);
}

/* The answer to WORKER_DEVICE_KNOW, its id: does the set's communicator of this member know that memory? */
enum shm_device_known { SHM_DEVICE_UNKNOWN = 0, SHM_DEVICE_KNOWN = 1, SHM_DEVICE_ASK_LATER = 2 };

/* In the text of a worker_message: what the question needs of it, and what its answer gives. */
struct worker_device {
    uint32_t gpu;                /* the engine's number; the answer to DEVICE_OPEN, a field of all others */
    uint8_t uuid[16];            /* DEVICE_OPEN */
    int32_t nccl;                /* answer to it: the version; 0: none */
    int32_t capability, kernels; /* likewise */
    uint32_t host;               /* likewise: whom NCCL takes for the same host, as in the client's card */
    uint32_t fuse;               /* likewise: bytes that are packed at once; DEVICE_JOIN: those agreed on */
    uint32_t rank, size;         /* DEVICE_JOIN: the member's in the team */
    uint64_t bytes;              /* DEVICE_MEMORY */
    uint8_t handle[64];          /* DEVICE_MEMORY by IPC */
    uint8_t given[64], done[64]; /* DEVICE_JOIN: the events' handles */
    uint8_t nccl_id[128];        /* DEVICE_JOIN */
};
