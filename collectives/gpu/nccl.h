/* NCCL, libnccl.so.2, opened while the program runs: as driver.h for the driver.
 *
 * From 2.18 on. Later functions are optional in the table: NULL if the library does not have them. Functions
 * keep their names. tests/unit/collectives/gpu/test_gpu_headers.c compares these declarations with nccl.h
 * where there is one. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#include "collectives/gpu/driver.h"
#include "common/base/err.h"

#define NCCL_LIBRARY      "libnccl.so.2"
#define NCCL_OLDEST       21800
#define NCCL_FLOAT8_SINCE 22400
#define NCCL_ASKS_SINCE   22500 /* kernels use other ranks' buffers where these lie, if they are registered */
#define NCCL_SHARES_SINCE 23000 /* two ranks may have one GPU, if NCCL_MULTI_RANK_GPU_ENABLE says so */

typedef unsigned nccl_result;
typedef unsigned nccl_dtype;
typedef unsigned nccl_op; /* NCCL_SUM ... or one that ncclRedOpCreatePreMulSum made */
typedef struct ncclComm *nccl_comm;

struct nccl_id {
    char bytes[128];
};

/* The configuration of a communicator, as 2.18 defines it: a later library uses its defaults for later
 * members. `traffic_class` is where 2.18 has padding, and must be undefined too. */
struct nccl_config {
    size_t size;
    unsigned magic;
    unsigned version;
    int blocking;
    int cga_cluster_size;
    int min_ctas;
    int max_ctas;
    const char *net_name;
    int split_share;
    int traffic_class;
};
#define NCCL_UNDEFINED INT_MIN
#define NCCL_CONFIG_INIT                                                                                     \
    {                                                                                                        \
        sizeof(struct nccl_config), 0xcafebeef, NCCL_OLDEST, NCCL_UNDEFINED, NCCL_UNDEFINED, NCCL_UNDEFINED, \
            NCCL_UNDEFINED, NULL, NCCL_UNDEFINED, NCCL_UNDEFINED                                             \
    }

enum {
    NCCL_OK = 0,
    NCCL_CUDA_ERROR = 1,
    NCCL_SYSTEM_ERROR = 2,
    NCCL_INTERNAL_ERROR = 3,
    NCCL_INVALID_ARGUMENT = 4,
    NCCL_INVALID_USAGE = 5,
    NCCL_REMOTE_ERROR = 6,
    NCCL_IN_PROGRESS = 7
};

enum {
    NCCL_INT8 = 0,
    NCCL_UINT8 = 1,
    NCCL_INT32 = 2,
    NCCL_UINT32 = 3,
    NCCL_INT64 = 4,
    NCCL_UINT64 = 5,
    NCCL_FLOAT16 = 6,
    NCCL_FLOAT32 = 7,
    NCCL_FLOAT64 = 8,
    NCCL_BFLOAT16 = 9,
    NCCL_FLOAT8_E4M3 = 10,
    NCCL_FLOAT8_E5M2 = 11
};

enum { NCCL_SUM = 0, NCCL_PRODUCT = 1, NCCL_MAX = 2, NCCL_MIN = 3, NCCL_AVERAGE = 4 };

enum {
    NCCL_SCALAR_HOST = 1 /* a scale is read before ncclRedOpCreatePreMulSum returns */
};

/* REQUIRED or OPTIONAL, type of result, name, parameters. */
#define NCCL_FUNCTIONS(F)                                                                                    \
    F(REQUIRED, nccl_result, ncclGetVersion, (int *version))                                                 \
    F(REQUIRED, nccl_result, ncclGetUniqueId, (struct nccl_id * id))                                         \
    F(REQUIRED, nccl_result, ncclCommInitRankConfig,                                                         \
      (nccl_comm * comm, int size, struct nccl_id id, int rank, struct nccl_config *config))                 \
    F(REQUIRED, nccl_result, ncclCommFinalize, (nccl_comm comm))                                             \
    F(REQUIRED, nccl_result, ncclCommDestroy, (nccl_comm comm))                                              \
    F(REQUIRED, nccl_result, ncclCommAbort, (nccl_comm comm))                                                \
    F(REQUIRED, nccl_result, ncclCommGetAsyncError, (nccl_comm comm, nccl_result * error))                   \
    F(REQUIRED, const char *, ncclGetErrorString, (nccl_result result))                                      \
    F(REQUIRED, const char *, ncclGetLastError, (nccl_comm comm))                                            \
    F(REQUIRED, nccl_result, ncclCommCount, (const nccl_comm comm, int *size))                               \
    F(REQUIRED, nccl_result, ncclCommCuDevice, (const nccl_comm comm, int *device))                          \
    F(REQUIRED, nccl_result, ncclCommUserRank, (const nccl_comm comm, int *rank))                            \
    F(REQUIRED, nccl_result, ncclAllReduce,                                                                  \
      (const void *in, void *out, size_t count, nccl_dtype dtype, nccl_op op, nccl_comm comm,                \
       cu_stream stream))                                                                                    \
    F(REQUIRED, nccl_result, ncclBroadcast,                                                                  \
      (const void *in, void *out, size_t count, nccl_dtype dtype, int root, nccl_comm comm,                  \
       cu_stream stream))                                                                                    \
    F(REQUIRED, nccl_result, ncclReduce,                                                                     \
      (const void *in, void *out, size_t count, nccl_dtype dtype, nccl_op op, int root, nccl_comm comm,      \
       cu_stream stream))                                                                                    \
    F(REQUIRED, nccl_result, ncclAllGather,                                                                  \
      (const void *in, void *out, size_t count, nccl_dtype dtype, nccl_comm comm, cu_stream stream))         \
    F(REQUIRED, nccl_result, ncclReduceScatter,                                                              \
      (const void *in, void *out, size_t count, nccl_dtype dtype, nccl_op op, nccl_comm comm,                \
       cu_stream stream))                                                                                    \
    F(REQUIRED, nccl_result, ncclSend,                                                                       \
      (const void *in, size_t count, nccl_dtype dtype, int to, nccl_comm comm, cu_stream stream))            \
    F(REQUIRED, nccl_result, ncclRecv,                                                                       \
      (void *out, size_t count, nccl_dtype dtype, int from, nccl_comm comm, cu_stream stream))               \
    F(REQUIRED, nccl_result, ncclGroupStart, (void))                                                         \
    F(REQUIRED, nccl_result, ncclGroupEnd, (void))                                                           \
    F(REQUIRED, nccl_result, ncclRedOpCreatePreMulSum,                                                       \
      (nccl_op * op, void *scale, nccl_dtype dtype, unsigned where, nccl_comm comm))                         \
    F(REQUIRED, nccl_result, ncclRedOpDestroy, (nccl_op op, nccl_comm comm))                                 \
    F(OPTIONAL, nccl_result, ncclCommRegister,                                                               \
      (const nccl_comm comm, void *at, size_t bytes, void **handle))                                         \
    F(OPTIONAL, nccl_result, ncclCommDeregister, (const nccl_comm comm, void *handle))                       \
    F(OPTIONAL, nccl_result, ncclMemAlloc, (void **at, size_t bytes))                                        \
    F(OPTIONAL, nccl_result, ncclMemFree, (void *at))

#define NCCL_MEMBER(need, result, name, parameters) result(*name) parameters;
struct nccl {
    NCCL_FUNCTIONS(NCCL_MEMBER)
    int version; /* 22809 is 2.28.9 */
};
#undef NCCL_MEMBER

/* The library, opened by the first call that succeeds, the same for all until the process ends. NULL: there
 * is none, or it is older than 2.18; the error says which. A failure is remembered until the process opens
 * another library. Needs no GPU. Any thread. */
const struct nccl *nccl_open(struct err *e);

/* 0 when `result` is success (or in progress). Else -1, with what was attempted, NCCL's word for the error
 * and, where it has one, its last message. `comm` may be NULL. */
int nccl_check(const struct nccl *n, nccl_result result, nccl_comm comm, struct err *e, const char *what, ...)
    __attribute__((format(printf, 5, 6)));

/* Within a group a call that succeeds may be called "in progress": only an error changes `first`, which is
 * the first one. */
void nccl_take(nccl_result *first, nccl_result result);

/* A number for the host as NCCL of that version sees it: from NCCL_HOSTID, else from `first`, a rank that no
 * other host has. Two ranks on one GPU of one host are refused, unless NCCL knows and was told to take them:
 * then each, by `rank`, is alone. */
uint32_t nccl_host_of(int version, uint32_t first, uint32_t rank);
/* Behind the sentence that two ranks have one GPU: that NCCL was told to take them, and is too old for that;
 * else it is empty. */
struct nccl_share_text {
    char text[80];
};
struct nccl_share_text nccl_why_not_shared(int version);

/* "2.28.9", for sentences. */
struct nccl_version_text {
    char text[24];
};
struct nccl_version_text nccl_version_text(int version);
