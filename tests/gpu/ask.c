/* Asks the driver and NCCL of this machine what their documents leave open: a line for each question,
 * `# QUESTION: ANSWER`, for people. Needs one GPU. Exit status 1 when a question could not be asked; no
 * answer is wrong.
 *
 * Numbers: memory by cuMemCreate is unmapped, and other memory is mapped at its place. Does a number change?
 *
 * Ranges: does cuMemGetAddressRange give one mapping, and all memory of another process?
 *
 * Costs: the time and the memory that many small allocations of ncclMemAlloc take, beside cuMemAlloc's; the
 * time of each call that an operation makes.
 *
 * Events: how many of those that processes share does the driver give to one?
 *
 * Kernels: ask_kernels.c. */
#include "tests/gpu/ask.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "collectives/gpu/nccl.h"

#define PIECE       ((size_t)2 << 20)
#define SMALL       64    /* allocations of a size */
#define SHARED_MOST 70000 /* events that are asked for */

static const struct driver *d;
static cu_device gpu;
static int failed;

void say(const char *question, const char *format, ...)
{
    va_list list;

    printf("# %s: ", question);
    va_start(list, format);
    vprintf(format, list);
    va_end(list);
    putchar('\n');
    fflush(stdout);
}

bool say_refusal(const char *question, cu_result result, const char *what)
{
    if (result == CU_OK)
        return false;
    say(question, "%s says %s", what, driver_error_name(d, result));
    failed = 1;
    return true;
}

double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static int open_gpu(void)
{
    struct err e = ERR_INIT;
    cu_context context;

    if (!(d = driver_open(&e)) || driver_check(d, d->cuDeviceGet(&gpu, 0), &e, "GPU 0") != 0 ||
        driver_check(d, d->cuDevicePrimaryCtxRetain(&context, gpu), &e, "its context") != 0 ||
        driver_check(d, d->cuCtxSetCurrent(context), &e, "its context") != 0) {
        fprintf(stderr, "ask: %s\n", e.text);
        return -1;
    }
    return 0;
}

/* ---- numbers of memory ------------------------------------------------------------------------------ */

static void say_number(const char *question, cu_pointer at, unsigned attribute)
{
    unsigned long long number = 0;
    cu_result result = d->cuPointerGetAttribute(&number, attribute, at);

    if (result == CU_OK)
        say(question, "%llu", number);
    else
        say(question, "%s", driver_error_name(d, result));
}

static void say_numbers(const char *when, cu_pointer at)
{
    unsigned attribute[] = {CU_POINTER_BUFFER_ID, CU_POINTER_MEMORY_BLOCK_ID};
    unsigned long long number[2] = {0};
    void *value[] = {&number[0], &number[1]};
    char question[96];
    cu_result both;

    snprintf(question, sizeof question, "BUFFER_ID of %s", when);
    say_number(question, at, CU_POINTER_BUFFER_ID);
    snprintf(question, sizeof question, "MEMORY_BLOCK_ID of %s", when);
    say_number(question, at, CU_POINTER_MEMORY_BLOCK_ID);
    both = d->cuPointerGetAttributes(2, attribute, value, at);
    snprintf(question, sizeof question, "both in one cuPointerGetAttributes, of %s", when);
    say(question, "%s %llu %llu", driver_error_name(d, both), number[0], number[1]);
}

static void say_range(const char *question, cu_pointer at)
{
    cu_pointer base = 0;
    size_t bytes = 0;

    if (!say_refusal(question, d->cuMemGetAddressRange(&base, &bytes, at), "cuMemGetAddressRange"))
        say(question, "%zu bytes, beginning %llu before it", bytes, at - base);
}

/* ---- mappings --------------------------------------------------------------------------------------- */

static bool map_piece(cu_pointer at)
{
    static const char question[] = "memory by cuMemCreate";
    struct cu_allocation_properties how = {
        .type = CU_ALLOCATION_PINNED, .handle_types = CU_HANDLE_FD, .location = {CU_LOCATION_DEVICE, gpu}};
    struct cu_access access = {.location = {CU_LOCATION_DEVICE, gpu}, .flags = CU_ACCESS_READ_WRITE};
    cu_allocation piece;
    bool mapped;

    if (say_refusal(question, d->cuMemCreate(&piece, PIECE, &how, 0), "cuMemCreate"))
        return false;
    mapped = !say_refusal(question, d->cuMemMap(at, PIECE, 0, piece, 0), "cuMemMap") &&
             !say_refusal(question, d->cuMemSetAccess(at, PIECE, &access, 1), "cuMemSetAccess");
    d->cuMemRelease(piece);
    return mapped;
}

static void ask_of_mappings(void)
{
    cu_pointer at;

    if (driver_lacks(d, DRIVER_VMM)) {
        say("memory by cuMemCreate", "this driver lacks %s", driver_lacks(d, DRIVER_VMM));
        return;
    }
    if (say_refusal("addresses", d->cuMemAddressReserve(&at, 2 * PIECE, 0, 0, 0), "cuMemAddressReserve"))
        return;
    if (map_piece(at) && map_piece(at + PIECE)) {
        say_numbers("a mapping", at);
        say_numbers("the mapping behind it", at + PIECE);
        say_range("the range of a mapping", at + 100);
        say_range("the range of the mapping behind it", at + PIECE + 100);
        d->cuMemUnmap(at, PIECE);
        if (map_piece(at))
            say_numbers("other memory at the place of the first", at);
        d->cuMemUnmap(at + PIECE, PIECE);
    }
    d->cuMemUnmap(at, PIECE);
    d->cuMemAddressFree(at, 2 * PIECE);
}

/* ---- memory of another process ---------------------------------------------------------------------- */

/* Before CUDA is begun in this process: the child has it, and lives until its standard input ends. */
static void lend_memory(int handle_to, int until)
{
    struct cu_ipc_memory handle = {{0}};
    cu_pointer at;
    char byte;

    if (open_gpu() != 0 || d->cuMemAlloc(&at, PIECE) != CU_OK ||
        d->cuIpcGetMemHandle(&handle, at + PIECE / 2) != CU_OK)
        _exit(1);
    if (write(handle_to, &handle, sizeof handle) != sizeof handle || read(until, &byte, 1) != 0)
        _exit(1);
    _exit(0);
}

struct lender {
    pid_t pid;
    int handle, end;
};

static int start_lender(struct lender *l)
{
    int handle[2], end[2];

    if (pipe(handle) != 0 || pipe(end) != 0 || (l->pid = fork()) < 0)
        return -1;
    if (l->pid == 0) {
        close(handle[0]);
        close(end[1]);
        lend_memory(handle[1], end[0]);
    }
    close(handle[1]);
    close(end[0]);
    l->handle = handle[0];
    l->end = end[1];
    return 0;
}

static void ask_of_others_memory(struct lender *l)
{
    static const char question[] = "the range of another process's memory";
    struct cu_ipc_memory handle;
    cu_pointer at;

    if (driver_lacks(d, DRIVER_IPC) || read(l->handle, &handle, sizeof handle) != sizeof handle)
        say(question, "there are no handles of memory here");
    else if (!say_refusal(question, d->cuIpcOpenMemHandle(&at, handle, CU_IPC_LAZY_PEER_ACCESS),
                          "cuIpcOpenMemHandle")) {
        say_range(question, at + 100);
        say_numbers("another process's memory", at);
        d->cuIpcCloseMemHandle(at);
    }
    close(l->end);
    waitpid(l->pid, NULL, 0);
}

/* ---- small allocations ------------------------------------------------------------------------------ */

typedef bool allocate(const struct nccl *n, void **at, size_t bytes);

static bool by_driver(const struct nccl *n, void **at, size_t bytes)
{
    cu_pointer made = 0;
    bool ok = d->cuMemAlloc(&made, bytes) == CU_OK;

    *at = (void *)(uintptr_t)made; /* NOLINT: addresses of a GPU are numbers */
    return ok;
}

static bool by_nccl(const struct nccl *n, void **at, size_t bytes)
{
    return n->ncclMemAlloc(at, bytes) == NCCL_OK;
}

static void say_cost(const struct nccl *n, const char *whose, allocate *make, size_t bytes)
{
    void *at[SMALL];
    int made = 0;
    char question[64];
    cu_pointer base;
    size_t range = 0;
    double since = now_us(), each;

    while (made < SMALL && make(n, &at[made], bytes))
        made++;
    each = made ? (now_us() - since) / made : 0;
    snprintf(question, sizeof question, "%d of %zu bytes by %s", made, bytes, whose);
    if (made)
        d->cuMemGetAddressRange(&base, &range, (cu_pointer)(uintptr_t)at[0]);
    say(question, "%.1f us each, %zu bytes of the GPU each", each, range);
    failed |= made < SMALL;
    while (made-- > 0)
        if (make == by_nccl)
            n->ncclMemFree(at[made]);
        else
            d->cuMemFree((cu_pointer)(uintptr_t)at[made]);
}

static void ask_of_costs(void)
{
    static const size_t bytes[] = {4, 64 << 10, 1 << 20, 4 << 20};
    struct err e = ERR_INIT;
    const struct nccl *n = nccl_open(&e);

    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++) {
        say_cost(n, "cuMemAlloc", by_driver, bytes[i]);
        if (n && n->ncclMemAlloc && n->ncclMemFree)
            say_cost(n, "ncclMemAlloc", by_nccl, bytes[i]);
    }
    if (!n)
        say("memory by ncclMemAlloc", "%s", e.text);
}

/* ---- calls of an operation -------------------------------------------------------------------------- */

#define CALLS 5000

static struct {
    cu_stream one, other;
    cu_event event;
    cu_pointer at;
    cu_context context;
} used;

static cu_result call_find(void)
{
    unsigned attribute[] = {CU_POINTER_MEMORY_TYPE, CU_POINTER_IS_MANAGED, CU_POINTER_DEVICE,
                            CU_POINTER_CONTEXT};
    unsigned long long value[4];
    void *to[] = {&value[0], &value[1], &value[2], &value[3]};

    return d->cuPointerGetAttributes(4, attribute, to, used.at);
}

static cu_result call_enter(void)
{
    cu_context before;
    cu_result result = d->cuCtxPushCurrent(used.context);

    return result == CU_OK ? d->cuCtxPopCurrent(&before) : result;
}

static cu_result call_capturing(void)
{
    unsigned status;

    return d->cuStreamIsCapturing ? d->cuStreamIsCapturing(used.one, &status) : CU_OK;
}

static cu_result call_record(void)
{
    return d->cuEventRecord(used.event, used.one);
}

static cu_result call_wait(void)
{
    return d->cuStreamWaitEvent(used.other, used.event, 0);
}

static cu_result call_query(void)
{
    cu_result result = d->cuStreamQuery(used.one);

    return result == CU_NOT_READY ? CU_OK : result;
}

static void ask_of_calls(void)
{
    static const struct {
        const char *name;
        cu_result (*call)(void);
    } calls[] = {
        {"cuPointerGetAttributes, four of them", call_find},
        {"cuCtxPushCurrent and cuCtxPopCurrent", call_enter},
        {"cuStreamIsCapturing", call_capturing},
        {"cuEventRecord", call_record},
        {"cuStreamWaitEvent", call_wait},
        {"cuStreamQuery", call_query},
    };

    if (say_refusal("streams", d->cuStreamCreate(&used.one, CU_STREAM_NON_BLOCKING_FLAG), "cuStreamCreate") ||
        say_refusal("streams", d->cuStreamCreate(&used.other, CU_STREAM_NON_BLOCKING_FLAG),
                    "cuStreamCreate") ||
        say_refusal("events", d->cuEventCreate(&used.event, CU_EVENT_NO_TIMING), "cuEventCreate") ||
        say_refusal("memory", d->cuMemAlloc(&used.at, PIECE), "cuMemAlloc") ||
        say_refusal("the context", d->cuCtxGetCurrent(&used.context), "cuCtxGetCurrent"))
        return;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        double since = now_us();
        for (int k = 0; k < CALLS; k++)
            if (say_refusal("a call", calls[i].call(), calls[i].name))
                return;
        say(calls[i].name, "%.2f us", (now_us() - since) / CALLS);
    }
    d->cuMemFree(used.at);
}

/* ---- events of several processes --------------------------------------------------------------------- */

static void ask_of_events(void)
{
    static cu_event event[SHARED_MOST];
    struct cu_ipc_event handle;
    cu_result result = CU_OK;
    int made = 0;
    double since = now_us(), each;

    if (driver_lacks(d, DRIVER_IPC)) {
        say("events that processes share", "this driver lacks %s", driver_lacks(d, DRIVER_IPC));
        return;
    }
    while (made < SHARED_MOST && result == CU_OK) {
        result = d->cuEventCreate(&event[made], CU_EVENT_NO_TIMING | CU_EVENT_IPC);
        if (result == CU_OK)
            result = d->cuIpcGetEventHandle(&handle, event[made++]);
    }
    each = made ? (now_us() - since) / made : 0;
    say("events that processes share", "%d in one process, %.1f us each, then %s", made, each,
        result == CU_OK ? "no more were asked for" : driver_error_name(d, result));
    while (made-- > 0)
        d->cuEventDestroy(event[made]);
}

int main(void)
{
    struct lender lender;

    if (start_lender(&lender) != 0) {
        perror("ask");
        return 1;
    }
    if (open_gpu() != 0)
        return 1;
    ask_of_mappings();
    ask_of_others_memory(&lender);
    ask_of_costs();
    ask_of_calls();
    ask_of_kernels(d);
    ask_of_events();
    return failed;
}
