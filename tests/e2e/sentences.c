/* Meets every error that a program of two ranks can make, and prints what each rank is told: a line
 * "CASE/RANK STATUS SENTENCE". topics/sentences.sh compares them with sentences.txt, which is there to be
 * read aloud. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hvd.h"

static int rank;
static int32_t in[64], out[256];

static void say(const char *what, int status)
{
    if (status >= 0)
        printf("%s/%d %d\n", what, rank, status);
    else
        printf("%s/%d %s %s\n", what, rank, hvd_status_name(status), hvd_last_error());
    fflush(stdout);
}

static int sum(const char *name, size_t count, hvd_dtype dtype, hvd_op op, const hvd_options *options)
{
    return hvd_allreduce(name, in, out, count, dtype, op, options);
}

/* ---- the ranks disagree -------------------------------------------------------------------------------- */

static void reductions(void)
{
    const hvd_options scaled = {.prescale = 0.5}, after = {.postscale = 2},
                      half = {.compression = HVD_COMPRESSION_FLOAT16};

    say("count", sum("grad", 10 + (size_t)rank, HVD_INT32, HVD_SUM, NULL));
    say("dtype", sum("grad", 10, rank ? HVD_UINT32 : HVD_INT32, HVD_SUM, NULL));
    say("op", sum("grad", 10, HVD_INT32, rank ? HVD_MAX : HVD_SUM, NULL));
    say("prescale", sum("grad", 10, HVD_INT32, HVD_SUM, rank ? &scaled : NULL));
    say("postscale", sum("grad", 10, HVD_INT32, HVD_SUM, rank ? &after : NULL));
    say("compression", sum("grad", 10, HVD_FLOAT32, HVD_SUM, rank ? &half : NULL));
    say("kind", rank ? hvd_broadcast("grad", out, 10, HVD_INT32, 0, NULL)
                     : sum("grad", 10, HVD_INT32, HVD_SUM, NULL));
    say("root", hvd_broadcast("weights", out, 10, HVD_INT32, rank, NULL));
    say("parts", hvd_reducescatter("parts", in, 4, 2 + (size_t)rank, HVD_INT32, HVD_SUM, out, NULL));
    say("part-rows",
        hvd_reducescatter("parts", in, rank ? 2 : 4, rank ? 4 : 2, HVD_INT32, HVD_SUM, out, NULL));
}

static void groups(void)
{
    const void *ins[3] = {in, in + 8, in + 16};
    void *outs[3] = {out, out + 8, out + 16};
    const size_t even[3] = {4, 4, 4}, uneven[3] = {4, 3, 5}, longer[3] = {4, 4, 6};

    say("group-number",
        hvd_grouped_allreduce("layers", rank ? 2 : 3, ins, outs, even, HVD_INT32, HVD_SUM, NULL));
    say("group-sizes",
        hvd_grouped_allreduce("layers", 3, ins, outs, rank ? uneven : even, HVD_INT32, HVD_SUM, NULL));
    say("group-total",
        hvd_grouped_allreduce("layers", 3, ins, outs, rank ? longer : even, HVD_INT32, HVD_SUM, NULL));
    say("group-or-not", rank ? sum("layers", 12, HVD_INT32, HVD_SUM, NULL)
                             : hvd_grouped_allreduce("layers", 3, ins, outs, even, HVD_INT32, HVD_SUM, NULL));
    say("group-empty", hvd_grouped_allreduce("layers", 0, NULL, NULL, NULL, HVD_INT32, HVD_SUM, NULL));
    say("group-null", hvd_grouped_allreduce("layers", 2, NULL, outs, even, HVD_INT32, HVD_SUM, NULL));
    outs[1] = NULL;
    say("group-null-out", hvd_grouped_allreduce("layers", 3, ins, outs, even, HVD_INT32, HVD_SUM, NULL));
}

static void rows(void)
{
    const size_t splits[2] = {1, 1}, many[2] = {1, 9};

    say("row", hvd_allgather("rows", in, 2, 3 + (size_t)rank, HVD_INT32, out, 8, NULL, NULL));
    say("room", hvd_allgather("rows", in, 2, 3, HVD_INT32, out, rank ? 3 : 8, NULL, NULL));
    say("pair-room", hvd_alltoall("pairs", in, 2, splits, 3, HVD_INT32, out, rank ? 1 : 8, NULL, NULL));
    say("no-row", hvd_allgather("rows", in, 2, 0, HVD_INT32, out, 8, NULL, NULL));
    say("splits", hvd_alltoall("pairs", in, 4, many, 3, HVD_INT32, out, 8, NULL, NULL));
    say("uneven", hvd_alltoall("pairs", in, 3, NULL, 3, HVD_INT32, out, 8, NULL, NULL));
    say("overlap", hvd_allgather("rows", out + 3, 2, 3, HVD_INT32, out, 8, NULL, NULL));
    say("in-place", hvd_reducescatter("parts", out, 2, 3, HVD_INT32, HVD_SUM, out, NULL));
}

/* ---- arguments ----------------------------------------------------------------------------------------- */

static void arguments(void)
{
    const hvd_options set = {.set = 7}, nan = {.prescale = NAN}, scaled = {.postscale = 2},
                      half = {.compression = HVD_COMPRESSION_FLOAT16},
                      strange = {.compression = (hvd_compression)9}, later = {.reserved = {0, 1}},
                      waits = {.will_wait = 3};
    char name[300];
    hvd_handle handle;

    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    say("name-null", sum(NULL, 1, HVD_INT32, HVD_SUM, NULL));
    say("name-empty", sum("", 1, HVD_INT32, HVD_SUM, NULL));
    say("name-long", sum(name, 1, HVD_INT32, HVD_SUM, NULL));
    say("dtype-unknown", sum("x", 1, (hvd_dtype)99, HVD_SUM, NULL));
    say("op-unknown", sum("x", 1, HVD_INT32, (hvd_op)99, NULL));
    say("op-adasum", sum("x", 1, HVD_INT32, HVD_ADASUM, NULL));
    say("op-bits", sum("x", 1, HVD_FLOAT32, HVD_BAND, NULL));
    say("op-bool", sum("x", 1, HVD_BOOL, HVD_BXOR, NULL));
    say("op-truth", sum("x", 1, HVD_FLOAT64, HVD_LOR, NULL));
    say("huge", sum("x", (size_t)1 << 60, HVD_INT32, HVD_SUM, NULL));
    say("in-null", hvd_allreduce("x", NULL, out, 1, HVD_INT32, HVD_SUM, NULL));
    say("out-null", hvd_allreduce("x", in, NULL, 1, HVD_INT32, HVD_SUM, NULL));
    say("shifted", hvd_allreduce("x", out, out + 1, 4, HVD_INT32, HVD_SUM, NULL));
    say("result-null", hvd_allreduce_shared("x", in, 1, HVD_INT32, HVD_SUM, NULL, NULL));
    say("handle-null", hvd_allreduce_async("x", in, out, 1, HVD_INT32, HVD_SUM, NULL, NULL));
    say("root-2", hvd_broadcast("x", out, 1, HVD_INT32, 2, NULL));
    say("root-minus", hvd_broadcast("x", out, 1, HVD_INT32, -1, NULL));
    say("set-unknown", sum("x", 1, HVD_INT32, HVD_SUM, &set));
    say("scale-nan", sum("x", 1, HVD_INT32, HVD_SUM, &nan));
    say("scale-copy", hvd_broadcast("x", out, 1, HVD_INT32, 0, &scaled));
    say("compress-int", sum("x", 1, HVD_INT32, HVD_SUM, &half));
    say("compress-unknown", sum("x", 1, HVD_FLOAT32, HVD_SUM, &strange));
    say("reserved", hvd_allreduce_async("x", in, out, 1, HVD_INT32, HVD_SUM, &later, &handle));
    say("reserved-handle", (int)handle);
    say("will-wait", hvd_allreduce_async("x", in, out, 1, HVD_INT32, HVD_SUM, &waits, &handle));
}

/* ---- names and handles --------------------------------------------------------------------------------- */

static hvd_handle handles(void)
{
    hvd_handle a, b = 0, p;

    hvd_allreduce_async("twice", in, out, 1, HVD_INT32, HVD_SUM, NULL, &a);
    say("twice", hvd_allreduce_async("twice", in, out + 8, 1, HVD_INT32, HVD_SUM, NULL, &b));
    say("start-common", hvd_start(a));
    say("free-common", hvd_handle_free(a));
    say("wait", hvd_wait(a));
    say("wait-again", hvd_wait(a));
    say("poll-again", hvd_poll(a));
    say("wait-none", hvd_wait(0));
    say("wait-invented", hvd_wait(-5));
    hvd_barrier_async(NULL, &a);
    say("barrier-twice", hvd_barrier_async(NULL, &b));
    hvd_wait(a);
    hvd_allreduce_init("kept", in, out, 1, HVD_INT32, HVD_SUM, NULL, &p);
    say("kept-name", sum("kept", 1, HVD_INT32, HVD_SUM, NULL));
    say("kept-again", hvd_allreduce_init("kept", in, out, 1, HVD_INT32, HVD_SUM, NULL, &b));
    hvd_start(p);
    say("start-twice", hvd_start(p));
    say("free-started", hvd_handle_free(p));
    hvd_wait(p);
    say("free", hvd_handle_free(p));
    say("start-freed", hvd_start(p));
    hvd_allreduce_async("old", in, out, 1, HVD_INT32, HVD_SUM, NULL, &a);
    hvd_wait(a);
    return a;
}

static void not_there(const char *when)
{
    char what[64];

    snprintf(what, sizeof what, "%s-allreduce", when);
    say(what, sum("x", 1, HVD_INT32, HVD_SUM, NULL));
    snprintf(what, sizeof what, "%s-rank", when);
    say(what, hvd_rank());
    snprintf(what, sizeof what, "%s-initialized", when);
    say(what, hvd_is_initialized());
    snprintf(what, sizeof what, "%s-alloc", when);
    say(what, hvd_alloc(64) ? 0 : -99);
}

int main(void)
{
    const char *number = getenv("HVD_RANK");
    hvd_handle old, pending;
    pid_t child;

    rank = number ? (int)strtol(number, NULL, 10) : 0;
    not_there("before");
    if (hvd_init())
        return say("hvd_init", HVD_ERR_SYSTEM), 1;
    say("alloc-huge", hvd_alloc((size_t)1 << 60) ? 0 : HVD_ERR_MEMORY);
    reductions();
    groups();
    rows();
    arguments();
    old = handles();
    if ((child = fork()) == 0) {
        not_there("forked");
        say("forked-init", hvd_init());
        _exit(0);
    }
    waitpid(child, NULL, 0);
    say("shutdown", hvd_shutdown());
    not_there("after");
    say("shutdown-again", hvd_shutdown());
    say("init-again", hvd_init());
    hvd_allreduce_async("old", in, out, 1, HVD_INT32, HVD_SUM, NULL, &pending);
    say("old-handle", hvd_wait(old));
    hvd_wait(pending);
    return hvd_shutdown();
}
