#include "tests/unit/gpu_ranks.h"
#include "tests/unit/scratch.h"

#include <check.h>
#include <libgen.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define RANKS_MOST 4

int gpu_real(void)
{
    const char *text = getenv("HVD_TEST_WITH_DOUBLES") ? NULL : getenv("REAL_GPU");
    return text ? (int)strtol(text, NULL, 10) : 0;
}

void gpu_with_doubles(char **argv)
{
    char self[4000], path[4200];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
#ifdef HVD_WITHOUT_GPU
    printf("built with WITH_NCCL=no\n");
    exit(77);
#endif
    if (n < 0 || getenv("HVD_TEST_WITH_DOUBLES"))
        return;
    self[n] = '\0';
    snprintf(path, sizeof path, "%s/gpu", dirname(self));
    setenv("LD_LIBRARY_PATH", path, 1);
    setenv("HVD_TEST_WITH_DOUBLES", "1", 1);
    execv("/proc/self/exe", argv);
    perror("execv");
    exit(1);
}

void gpu_give_up(const char *file, int line, const char *condition, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    fprintf(stderr, "%s:%d: rank %s: %s: ", file, line, getenv("HVD_RANK"), condition);
    vfprintf(stderr, format, list);
    fputc('\n', stderr);
    va_end(list);
    _exit(1);
}

int gpu_ranks_most(void)
{
    int gpus = gpu_real() ? gpu_real() : RANKS_MOST, shared = gpu_limits()->shared_ranks;
    int most = gpus > shared ? gpus : shared;
    return most < RANKS_MOST ? most : RANKS_MOST;
}

uint64_t gpu_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void a_moment(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

static void child(int rank, int size, struct gpu_shared *shared, void (*body)(struct gpu_rank *me))
{
    char text[16];
    struct gpu_rank me = {.rank = rank, .size = size, .shared = shared};
    snprintf(text, sizeof text, "%d", rank);
    setenv("HVD_RANK", text, 1);
    snprintf(text, sizeof text, "%d", size);
    setenv("HVD_DOUBLE_GPUS", text, 1);
    if (gpu_real() && size > gpu_real()) {
        snprintf(text, sizeof text, "rank%d", rank);
        setenv("NCCL_HOSTID", text, 1); /* they share a GPU: NCCL takes them for hosts */
    }
    alarm((unsigned)gpu_limits()->rank_s);
    body(&me);
    exit(0);
}

/* Lines of a file of the doubles that have one of the words in them ("": all) are errors of ours. */
static int complaints(const char *file, const char *word, const char *other)
{
    char line[600];
    int n = 0;
    FILE *f = fopen(file, "r");
    while (f && fgets(line, sizeof line, f))
        if (strstr(line, word) || strstr(line, other)) {
            fprintf(stderr, "%s", line);
            n++;
        }
    if (f)
        fclose(f);
    unlink(file);
    return n;
}

int gpu_run(int size, int killed, void (*body)(struct gpu_rank *me))
{
    struct gpu_shared *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t pid[16];
    int wrong = 0;
    char log[SCRATCH_MAX], trace[SCRATCH_MAX];
    close(scratch_file(log, "gpu"));
    close(scratch_file(trace, "gpu"));
    setenv("HVD_DOUBLE_LOG", log, 1);
    setenv("HVD_DOUBLE_TRACE", trace, 1);
    ck_assert(shared != MAP_FAILED && size <= 16);
    fflush(NULL);
    for (int r = 0; r < size; r++) {
        pid[r] = fork();
        ck_assert_int_ge(pid[r], 0);
        if (pid[r] == 0)
            child(r, size, shared, body);
    }
    for (int left = size; left > 0; left--) {
        int status = 0, r = 0;
        pid_t ended = waitpid(-1, &status, 0);
        while (r < size && pid[r] != ended)
            r++;
        ck_assert_int_lt(r, size);
        pid[r] = -1;
        if (r == killed ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL : status == 0)
            continue;
        if (WIFSIGNALED(status))
            fprintf(stderr, "rank %d was ended by signal %d\n", r, WTERMSIG(status));
        for (int k = 0; k < size && wrong == 0; k++)
            if (pid[k] > 0)
                kill(pid[k], SIGKILL); /* they would wait for it */
        wrong++;
    }
    munmap(shared, sizeof *shared);
    return wrong + complaints(log, "", "") + complaints(trace, " left communicator", " left registration");
}

void gpu_meet(struct gpu_rank *me, int which)
{
    me->shared->mark[which]++;
    while (me->shared->mark[which] < me->size)
        a_moment();
}

void gpu_open(struct gpu_rank *me)
{
    struct err e = ERR_INIT;
    me->d = driver_open(&e);
    WANT(me->d, "%s", e.text);
    me->n = nccl_open(&e);
    WANT(me->n, "%s", e.text);
    me->ordinal = gpu_real() ? me->rank % gpu_real() : me->rank;
    WANT(me->d->cuDeviceGet(&me->device, me->ordinal) == CU_OK);
    WANT(driver_describe(me->d, me->device, &me->gpu, &e) == 0, "%s", e.text);
    WANT(me->d->cuDevicePrimaryCtxRetain(&me->context, me->device) == CU_OK);
    WANT(me->d->cuCtxSetCurrent(me->context) == CU_OK);
    WANT(driver_stream(me->d, &me->stream, &e) == 0, "%s", e.text);
    me->pack = pack_open(me->d, &e);
    WANT(me->pack, "%s", e.text);
    struct communicator_member who = {me->d,       me->n,    me->pack, me->context,
                                      me->ordinal, me->rank, me->size, 0};
    me->c = communicator_new(&who, "set 0", &e);
    WANT(me->c, "%s", e.text);
}

enum communicator_state gpu_while(struct communicator *c, enum communicator_state now, struct err *e)
{
    uint64_t until = gpu_now_ms() + (uint64_t)gpu_limits()->connect_ms;
    while (communicator_poll(c, e) == now && gpu_now_ms() < until)
        a_moment();
    return communicator_state(c);
}

void gpu_join(struct gpu_rank *me)
{
    struct err e = ERR_INIT;
    if (me->rank == 0)
        WANT(communicator_id(me->n, &me->shared->id, &e) == 0, "%s", e.text);
    gpu_meet(me, 0);
    WANT(communicator_connect(me->c, &me->shared->id, &e) == 0, "%s", e.text);
    WANT(gpu_while(me->c, COMMUNICATOR_CONNECTING, &e) == COMMUNICATOR_READY, "%s", e.text);
}

void gpu_do(struct gpu_rank *me, const struct gpu_operation *o, size_t n)
{
    struct err e = ERR_INIT;
    WANT(communicator_run(me->c, o, n, me->stream, &e) == 0, "%s", e.text);
    WANT(gpu_while(me->c, COMMUNICATOR_LAUNCHING, &e) == COMMUNICATOR_READY, "%s", e.text);
    WANT(me->d->cuStreamSynchronize(me->stream) == CU_OK);
}

void gpu_leave(struct gpu_rank *me)
{
    struct err e = ERR_INIT;
    WANT(communicator_finish(me->c, &e) == 0, "%s", e.text);
    gpu_while(me->c, COMMUNICATOR_FINISHING, &e);
    WANT(gpu_while(me->c, COMMUNICATOR_DESTROYING, &e) == COMMUNICATOR_FINISHED, "%s", e.text);
    communicator_free(me->c);
    pack_close(me->pack);
    WANT(me->d->cuStreamDestroy(me->stream) == CU_OK);
    WANT(me->d->cuCtxSetCurrent(NULL) == CU_OK);
    WANT(me->d->cuDevicePrimaryCtxRelease(me->device) == CU_OK);
}

void *gpu_memory(struct gpu_rank *me, const void *content, size_t bytes)
{
    cu_pointer at;
    WANT(me->d->cuMemAlloc(&at, bytes + 1) == CU_OK);
    if (content)
        WANT(me->d->cuMemcpyHtoDAsync(at, content, bytes, me->stream) == CU_OK);
    return (void *)(uintptr_t)at;
}

void gpu_read(struct gpu_rank *me, void *into, const void *from, size_t bytes)
{
    WANT(me->d->cuMemcpyDtoHAsync(into, (cu_pointer)(uintptr_t)from, bytes, me->stream) == CU_OK);
    WANT(me->d->cuStreamSynchronize(me->stream) == CU_OK);
}

void gpu_free(struct gpu_rank *me, void *at)
{
    WANT(me->d->cuMemFree((cu_pointer)(uintptr_t)at) == CU_OK);
}
