/* hvd_gpu_bench [--sizes 64M,256M] [--pairs N] [--few]: run under hvdrun, a rank for each GPU (or, with
 * NCCL_HOSTID different for each rank, several on one). Exit status 1 when a call failed, never for a goal.
 *
 * Ranks that share a GPU without MPS get it in turns of milliseconds, and each operation takes some of those.
 * So they make few runs (--few): a tenth, one pair, of smaller sizes; the other options say otherwise.
 *
 * A row says which way hvd's operations went, if they are counted (tests/gpu/witness.c, as tests/gpu/run
 * has it): NCCL, STAGED (through host memory), both, or - (a rank alone has nothing to exchange). */
#include "tests/gpu/bench.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIZES_MAX 16
#define WAIT_MS   60000 /* for all ranks' communicator */

struct options {
    size_t bytes[SIZES_MAX];
    int sizes, pairs;
    bool few;
};

void bench_cuda(const struct bench *b, cu_result result, const char *what)
{
    struct err e = ERR_INIT;

    if (driver_check(b->driver, result, &e, "%s", what) != 0)
        bench_fail("%s", e.text);
}

void bench_nccl(const struct bench *b, nccl_result result, const char *what)
{
    struct err e = ERR_INIT;

    if (nccl_check(b->nccl, result, b->comm, &e, "%s", what) != 0)
        bench_fail("%s", e.text);
}

/* ---- the table ----------------------------------------------------------------------------------------- */

static struct {
    uint64_t nccl, host;
} before; /* this row */

void bench_begin_row(const struct bench *b)
{
    if (!b->ways)
        return;
    before.nccl = b->ways->nccl;
    before.host = b->ways->host;
}

static const char *name_way(const struct bench *b)
{
    if (!b->ways)
        return "?";
    bool nccl = b->ways->nccl > before.nccl, host = b->ways->host > before.host;
    return nccl && host ? "both" : nccl ? "NCCL" : host ? "STAGED" : "-";
}

void bench_line(const struct bench *b, const char *what, double direct, double hvd, const char *unit,
                double value, const char *means, double goal)
{
    if (b->rank == 0)
        printf("%-28s %10.1f %10.1f %-5s %8.3f %-18s %6.2f  %-6s %s\n", what, direct, hvd, unit, value, means,
               goal, name_way(b), value <= goal ? "met" : "NOT MET");
    fflush(stdout);
}

void bench_skipped(const struct bench *b, const char *what, const char *why)
{
    if (b->rank == 0)
        printf("%-28s not measured: %s\n", what, why);
    fflush(stdout);
}

/* ---- set-up -------------------------------------------------------------------------------------------- */

/* Multiplications that depend on one another; the store never happens, and keeps them alive. */
static const char work_ptx[] = ".version 6.4\n"
                               ".target sm_75\n"
                               ".address_size 64\n"
                               ".visible .entry hvd_bench_work(.param .u64 out, .param .u64 turns)\n"
                               "{\n"
                               "  .reg .pred more, never;\n"
                               "  .reg .b64 at, left;\n"
                               "  .reg .f32 x;\n"
                               "  ld.param.u64 at, [out];\n"
                               "  ld.param.u64 left, [turns];\n"
                               "  mov.f32 x, 0f3F000000;\n"
                               "again:\n"
                               "  fma.rn.f32 x, x, x, 0f3DCCCCCD;\n"
                               "  sub.u64 left, left, 1;\n"
                               "  setp.ne.u64 more, left, 0;\n"
                               "  @more bra again;\n"
                               "  setp.eq.f32 never, x, 0f7F000000;\n"
                               "  @never st.global.f32 [at], x;\n"
                               "  ret;\n"
                               "}\n";

static void load_kernel(struct bench *b)
{
    const struct driver *d = b->driver;
    struct err e = ERR_INIT;
    cu_module module;

    if (driver_need(d, DRIVER_KERNELS, &e) != 0 ||
        driver_check(d, d->cuModuleLoadData(&module, work_ptx), &e, "loading the kernel that computes") !=
            0 ||
        driver_check(d, d->cuModuleGetFunction(&b->compute, module, "hvd_bench_work"), &e,
                     "finding the kernel that computes") != 0) {
        b->compute = NULL;
        snprintf(b->why, sizeof b->why, "%s", e.text);
    }
}

static void open_device(struct bench *b)
{
    struct driver_device device = {0};
    struct err e = ERR_INIT;
    cu_context context;
    int devices = 0;

    b->driver = driver_open(&e);
    b->nccl = b->driver ? nccl_open(&e) : NULL;
    if (!b->nccl)
        bench_fail("%s", e.text);
    bench_cuda(b, b->driver->cuDeviceGetCount(&devices), "counting GPUs");
    if (devices == 0)
        bench_fail("no GPU");
    else if (driver_describe(b->driver, hvd_local_rank() % devices, &device, &e) != 0)
        bench_fail("%s", e.text);
    b->processors = device.processors;
    b->sharing = devices < hvd_local_size();
    bench_cuda(b, b->driver->cuDevicePrimaryCtxRetain(&context, device.device), "cuDevicePrimaryCtxRetain");
    bench_cuda(b, b->driver->cuCtxSetCurrent(context), "cuCtxSetCurrent");
    bench_cuda(b, b->driver->cuStreamCreate(&b->work, CU_STREAM_NON_BLOCKING_FLAG), "cuStreamCreate");
    if (driver_stream(b->driver, &b->aside, &e) != 0)
        bench_fail("%s", e.text);
    load_kernel(b);
    if (b->rank == 0)
        printf("%d ranks, first GPU %s, NCCL %s%s\n", b->size, device.bus,
               nccl_version_text(b->nccl->version).text,
               b->sharing ? ", several ranks on a GPU: NCCL takes them for separate hosts" : "");
}

static nccl_comm connect_direct(struct bench *b, bool blocking)
{
    struct nccl_config config = NCCL_CONFIG_INIT;
    nccl_result state = NCCL_IN_PROGRESS;
    double until = bench_now_us() + WAIT_MS * 1e3;
    struct nccl_id id = {{0}};
    nccl_comm comm;

    if (b->rank == 0)
        bench_nccl(b, b->nccl->ncclGetUniqueId(&id), "ncclGetUniqueId");
    bench_check(hvd_broadcast("bench.id", &id, sizeof id, HVD_UINT8, 0, NULL), "hvd_broadcast");
    config.blocking = blocking;
    bench_nccl(b, b->nccl->ncclCommInitRankConfig(&comm, b->size, id, b->rank, &config), "a communicator");
    while (state == NCCL_IN_PROGRESS) {
        if (bench_now_us() > until)
            bench_fail("no communicator after %d s", WAIT_MS / 1000);
        bench_nccl(b, b->nccl->ncclCommGetAsyncError(comm, &state), "a communicator");
    }
    bench_nccl(b, state, "a communicator");
    return comm;
}

static void release(struct bench *b)
{
    bench_cuda(b, b->driver->cuStreamSynchronize(b->work), "cuStreamSynchronize");
    bench_check(hvd_barrier(NULL), "hvd_barrier");
    b->nccl->ncclCommDestroy(b->blocking);
    b->nccl->ncclCommDestroy(b->comm);
    b->driver->cuMemFree(b->memory);
    hvd_free(b->known);
    b->driver->cuStreamDestroy(b->aside);
    b->driver->cuStreamDestroy(b->work);
}

/* ---- command line -------------------------------------------------------------------------------------- */

/* "4K,64M": powers of 1024. */
static bool read_sizes(struct options *o, const char *at)
{
    for (o->sizes = 0; o->sizes < SIZES_MAX; at++) {
        char *end;
        unsigned long long n;
        unsigned shift;

        errno = 0;
        n = strtoull(at, &end, 10);
        shift = *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0;
        if (*at < '0' || *at > '9' || errno != 0 || n == 0 || n > 1u << 20)
            return false;
        o->bytes[o->sizes++] = (size_t)n << shift;
        at = end + (shift != 0);
        if (*at == '\0')
            return true;
        if (*at != ',')
            return false;
    }
    return false;
}

static bool read_options(struct options *o, int argc, char **argv)
{
    *o = (struct options){0};
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        char *end;

        if (strcmp(argv[i], "--few") == 0) {
            o->few = true;
        } else if (strcmp(argv[i], "--sizes") == 0 && read_sizes(o, value)) {
            i++;
        } else if (strcmp(argv[i], "--pairs") == 0) {
            o->pairs = (int)strtol(value, &end, 10);
            if (*value == '\0' || *end != '\0' || o->pairs < 1 || o->pairs > PAIRS_MAX)
                return false;
            i++;
        } else {
            return false;
        }
    }
    return true;
}

/* Fills in for options that are not given: alike on all ranks, also if only some of them share a GPU. */
static void choose_the_rest(struct options *o, bool sharing)
{
    uint8_t few = o->few || sharing;

    bench_check(hvd_allreduce("bench.few", &few, &few, 1, HVD_UINT8, HVD_MAX, NULL), "hvd_allreduce");
    o->few = few != 0;
    if (o->sizes == 0)
        read_sizes(o, o->few ? "4K,1M,16M" : "4K,1M,64M,256M");
    if (o->pairs == 0)
        o->pairs = o->few ? 1 : 7;
}

int main(int argc, char **argv)
{
    struct options o;
    struct bench b = {0};

    if (!read_options(&o, argc, argv)) {
        fprintf(stderr, "usage: hvdrun -np N hvd_gpu_bench [--sizes 64M,256M] [--pairs 1..%d] [--few]\n",
                PAIRS_MAX);
        return 2;
    }
    bench_check(hvd_init(), "hvd_init");
    bench_rank = b.rank = hvd_rank();
    b.size = hvd_size();
    b.ways = witness_map();
    open_device(&b);
    choose_the_rest(&o, b.sharing);
    b.pairs = o.pairs;
    b.few = o.few;
    b.comm = connect_direct(&b, false);
    b.blocking = connect_direct(&b, true);
    b.bytes = 32u << 20; /* the bytes that a training step reduces */
    for (int i = 0; i < o.sizes; i++)
        b.bytes = o.bytes[i] > b.bytes ? o.bytes[i] : b.bytes;
    if (b.bytes < bytes_of_groups())
        b.bytes = bytes_of_groups();
    bench_cuda(&b, b.driver->cuMemAlloc(&b.memory, b.bytes), "cuMemAlloc");
    if (!(b.known = hvd_alloc_device(b.bytes)))
        bench_fail("hvd_alloc_device: %s", hvd_last_error());
    if (b.rank == 0)
        printf("direct: by a non-blocking communicator, as hvd has it, where a row does not say otherwise\n"
               "%-28s %10s %10s %-5s %8s %-18s %6s  %s\n",
               "row", "direct", "hvd", "", "value", "", "goal", "hvd by");
    row_latency(&b);
    for (int i = 0; i < 2 * o.sizes; i++)
        row_allreduce(&b, o.bytes[i / 2], i % 2);
    rows_of_groups(&b);
    row_overlap(&b);
    release(&b);
    bench_check(hvd_shutdown(), "hvd_shutdown");
    return 0;
}
