/* The worker of the fault matrix: goes to the phase that its cell is about, says so in a file, and stays
 * there until the fault ends it or the file `go` appears. worker PHASE DIRECTORY.
 *
 * The file NAME.RANK says when that was, in microseconds (a clock that all hosts of one machine share), and
 * worker.RANK the rank's pid; failed.RANK is when a call of the library has failed. When the file `eat`
 * appears, rank 1 takes memory until it is killed.
 *
 * Every rank first leaves a double-forked grandchild in a session of its own that ignores SIGTERM and keeps
 * the rank's output open: whatever the cell does, that one has to go too. Rank 1 is the one that stays behind
 * in collective phases. In a phase that is named after an operation both ranks do that one over and over, on
 * megabytes, so the fault comes at any moment of it. elastic.c has the elastic phases. */
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "hvd.h"
#include "tests/faults/worker.h"

static const char *directory;
static int rank;

void fault_path(char *out, size_t size, const char *name)
{
    snprintf(out, size, "%s/%s", directory, name);
}

/* Nobody sees the file before its number is in it. */
void fault_mark_number(const char *what, long long number)
{
    char name[64], new_name[72], path[512], new_path[512], text[32];
    snprintf(name, sizeof name, "%s.%d", what, rank);
    snprintf(new_name, sizeof new_name, ".%s", name);
    fault_path(path, sizeof path, name);
    fault_path(new_path, sizeof new_path, new_name);
    int n = snprintf(text, sizeof text, "%lld\n", number);
    int fd = open(new_path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (fd < 0)
        return;
    if (write(fd, text, (size_t)n) == n)
        rename(new_path, path);
    close(fd);
}

void fault_mark(const char *what)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    fault_mark_number(what, now.tv_sec * 1000000LL + now.tv_nsec / 1000);
}

static void on_term(int number)
{
    (void)number;
    fault_mark("term");
}

static void eat(void)
{
    for (size_t size = 1u << 20;;) {
        char *bytes = malloc(size);
        if (bytes)
            memset(bytes, 1, size);
    }
}

static void stay(void)
{
    char go[512], food[512];
    fault_path(go, sizeof go, "go");
    fault_path(food, sizeof food, "eat");
    while (access(go, F_OK) != 0) {
        if (rank == 1 && access(food, F_OK) == 0)
            eat();
        usleep(20000);
    }
}

static void leave_grandchild(void)
{
    pid_t child = fork();
    if (child == 0) {
        if (fork() != 0)
            _exit(0);
        setsid();
        signal(SIGTERM, SIG_IGN);
        prctl(PR_SET_NAME, "grandchild");
        fault_mark("grandchild");
        for (;;)
            pause();
    }
    waitpid(child, NULL, 0);
}

static int failed(const char *what)
{
    fault_mark("failed");
    fprintf(stderr, "rank %d: %s: %s\n", rank, what, hvd_last_error());
    return 1;
}

static int in_collective(void)
{
    static float in[256], out[256];
    if (rank == 1)
        stay();
    fault_mark("collective");
    if (hvd_allreduce("sum", in, out, 256, HVD_FLOAT32, HVD_SUM, NULL))
        return failed("hvd_allreduce");
    return hvd_shutdown() ? failed("hvd_shutdown") : 0;
}

/* ---- one operation after the other --------------------------------------------------------------------- */

#define ELEMENTS 1000000
#define ROUNDS   3 /* are over when the phase is reached */

static float in[ELEMENTS], out[2 * ELEMENTS];

static int allgather(void)
{
    return hvd_allgather("rows", in, ELEMENTS / 4 - (size_t)rank, 4, HVD_FLOAT32, out, ELEMENTS / 2, NULL,
                         NULL);
}

static int alltoall(void)
{
    const size_t splits[2] = {ELEMENTS / 5, ELEMENTS / 9};

    return hvd_alltoall("pairs", in, ELEMENTS / 2, splits, 2, HVD_FLOAT32, out, ELEMENTS / 2, NULL, NULL);
}

static int reducescatter(void)
{
    return hvd_reducescatter("parts", in, ELEMENTS / 3, 3, HVD_FLOAT32, HVD_SUM, out, NULL);
}

static int grouped(void)
{
    const void *const ins[] = {in, in + 7};
    void *const outs[] = {out, out + ELEMENTS};
    const size_t counts[] = {7, ELEMENTS - 7};

    return hvd_grouped_allreduce("group", 2, ins, outs, counts, HVD_FLOAT32, HVD_SUM, NULL);
}

static int shared(void)
{
    const void *result;

    return hvd_allreduce_shared("shared", in, ELEMENTS, HVD_FLOAT32, HVD_SUM, NULL, &result);
}

static int compressed(void)
{
    const hvd_options options = {.compression = HVD_COMPRESSION_FLOAT16};

    return hvd_allreduce("half", in, out, ELEMENTS, HVD_FLOAT32, HVD_SUM, &options);
}

static const struct {
    const char *name;
    int (*run)(void);
} operations[] = {{"allgather", allgather}, {"alltoall", alltoall}, {"reducescatter", reducescatter},
                  {"grouped", grouped},     {"shared", shared},     {"compressed", compressed}};

/* Until `go`, of which the ranks hear in the same round; -1: the phase is no operation. */
static int moving(const char *phase)
{
    int32_t may_end = 0;
    char go[512];
    size_t i = 0;

    while (i < sizeof operations / sizeof *operations && strcmp(operations[i].name, phase) != 0)
        i++;
    if (i == sizeof operations / sizeof *operations)
        return -1;
    fault_path(go, sizeof go, "go");
    for (int round = 0; !may_end; round++) {
        if (round == ROUNDS)
            fault_mark(phase);
        if (operations[i].run())
            return failed(phase);
        may_end = access(go, F_OK) == 0;
        if (hvd_allreduce("go", &may_end, &may_end, 1, HVD_INT32, HVD_MAX, NULL))
            return failed("hvd_allreduce");
    }
    return hvd_shutdown() ? failed("hvd_shutdown") : 0;
}

static int with_library(const char *phase)
{
    bool wire_up = strcmp(phase, "wire-up") == 0;
    if (wire_up && rank == 1) {
        fault_mark("wire-up");
        stay();
    }
    if (wire_up && rank == 0)
        fault_mark("wire-up");
    if (hvd_init())
        return failed("hvd_init");
    if (strcmp(phase, "collective") == 0)
        return in_collective();
    int status = moving(phase);
    if (status >= 0)
        return status;
    fault_mark(phase);
    stay();
    return hvd_shutdown() ? failed("hvd_shutdown") : 0;
}

/* Lines until `go`, or a fixed amount: more than a pipe holds, so that some of it waits in the launcher. */
static int writing(bool endless)
{
    char go[512];
    fault_path(go, sizeof go, "go");
    for (int i = 0; endless ? access(go, F_OK) != 0 : i < 2500; i++) {
        printf("<%d:%06d:abcdefghijklmnopqrstuvwxyz0123456789>\n", rank, i);
        if (i == 100)
            fault_mark("output");
    }
    fflush(stdout);
    fault_mark("written");
    return 0;
}

int main(int argc, char **argv)
{
    const char *number = getenv("HVD_WORKER"); /* of elastic jobs */
    number = number ? number : getenv("HVD_RANK");
    if (argc != 3 || !number)
        return 2;
    directory = argv[2];
    rank = (int)strtol(number, NULL, 10);
    fault_mark_number("worker", getpid());
    leave_grandchild();
    if (strcmp(argv[1], "output") == 0)
        return writing(true);
    if (strcmp(argv[1], "draining") == 0)
        return writing(false);
    if (strcmp(argv[1], "teardown") == 0) {
        signal(SIGTERM, on_term);
        fault_mark("running");
        stay();
        for (;;)
            pause();
    }
    return strncmp(argv[1], "elastic", 7) == 0 ? fault_train() : with_library(argv[1]);
}
