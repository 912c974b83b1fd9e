/* culprit KIND RANK: all ranks reduce "layer.0.weight" to "layer.3.weight" again and again. After some rounds
 * the given rank does what KIND says, for hvdctl why to find out:
 *
 *   loop       computes without an end         pipe      reads from a pipe that nobody writes to
 *   file       waits for a lock of a file      mutex     locks a mutex that it holds
 *   stop       is stopped                      order     reduces "layer.2.weight" before "layer.1.weight"
 *   sleep      sleeps                          child     waits for a child that sleeps
 *   set        does not come to an operation of a process set with rank 0
 *   extra      calls one operation more than the others: "validation"
 *   async      reduces all layers at one time, and computes before the second of them
 *   barrier    waits in hvd_barrier, where the others reduce
 *   broadcast  the root of a broadcast does not come
 *   late       has not called hvd_init
 *   shutdown   does not call hvd_shutdown, but computes
 *   socket     reads from a socket             healthy   nothing: all go on
 *   slow       computes for 3 ms between rounds, the others for 1 ms, and all go on
 *   join       computes, when the others are in hvd_join
 *   circle     is one of those that each send to the next rank before they receive
 *   finish     sleeps after hvd_shutdown, when the others have ended
 *   pause      sleeps for half a second, once; there are few rounds, and all go on */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/e2e/worker.h"

#define LAYERS 4
#define ROUNDS 20

static const char *kind;
static hvd_set pair;

static void reduce_layer(const char *name)
{
    float x = 1, sum;

    must(hvd_allreduce(name, &x, &sum, 1, HVD_FLOAT32, HVD_SUM, NULL), name);
}

static void compute_for_ever(void)
{
    for (volatile double x = 1;; x = x * 1.0000001 + 1e-9)
        ;
}

static void compute_for(int ms)
{
    struct timespec now, end;

    clock_gettime(CLOCK_MONOTONIC, &end);
    for (end.tv_nsec += (long)ms * 1000000; end.tv_nsec >= 1000000000; end.tv_nsec -= 1000000000)
        end.tv_sec++;
    do
        clock_gettime(CLOCK_MONOTONIC, &now);
    while (now.tv_sec < end.tv_sec || (now.tv_sec == end.tv_sec && now.tv_nsec < end.tv_nsec));
}

static void read_for_ever(int fd)
{
    char byte;

    if (read(fd, &byte, 1) < 0)
        perror("read");
}

static void wait_for_lock(void)
{
    char path[200];
    int held, wanted;

    snprintf(path, sizeof path, "%s/culprit.lock", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    held = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    wanted = open(path, O_RDWR | O_CLOEXEC);
    if (held < 0 || wanted < 0 || flock(held, LOCK_EX) != 0 || unlink(path) != 0)
        perror(path);
    flock(wanted, LOCK_EX);
}

static void lock_twice(void)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

    pthread_mutex_lock(&lock);
    pthread_mutex_lock(&lock);
}

static void wait_for_child(void)
{
    pid_t child = fork();

    if (child == 0) {
        execlp("sleep", "sleep", "1000", (char *)NULL);
        _exit(127);
    }
    waitpid(child, NULL, 0);
}

static void be_culprit(void)
{
    int fd[2];
    float x = 1;

    if (strcmp(kind, "loop") == 0)
        compute_for_ever();
    else if (strcmp(kind, "pipe") == 0 && pipe(fd) == 0)
        read_for_ever(fd[0]);
    else if (strcmp(kind, "socket") == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, fd) == 0)
        read_for_ever(fd[0]);
    else if (strcmp(kind, "file") == 0)
        wait_for_lock();
    else if (strcmp(kind, "mutex") == 0)
        lock_twice();
    else if (strcmp(kind, "stop") == 0)
        raise(SIGSTOP);
    else if (strcmp(kind, "order") == 0)
        reduce_layer("layer.2.weight");
    else if (strcmp(kind, "sleep") == 0 || strcmp(kind, "set") == 0 || strcmp(kind, "broadcast") == 0)
        sleep(1000);
    else if (strcmp(kind, "child") == 0)
        wait_for_child();
    else if (strcmp(kind, "extra") == 0)
        must(hvd_allreduce("validation", &x, &x, 1, HVD_FLOAT32, HVD_SUM, NULL), "validation");
    else if (strcmp(kind, "barrier") == 0)
        must(hvd_barrier(NULL), "barrier");
}

/* Each waits for the next one to receive. */
static void send_in_circle(void)
{
    float x = 1;
    int next = (hvd_rank() + 1) % hvd_size();
    char name[40];

    snprintf(name, sizeof name, "activation.%d", hvd_rank());
    must(hvd_send(name, &x, 1, HVD_FLOAT32, next, NULL), name);
}

/* All begin all layers, then wait for them. */
static void reduce_at_once(int culprit, int round)
{
    static float x[LAYERS];
    hvd_handle handle[LAYERS];
    char name[40];

    for (int layer = 0; layer < LAYERS; layer++) {
        snprintf(name, sizeof name, "layer.%d.weight", layer);
        if (round == ROUNDS && layer == 1 && hvd_rank() == culprit)
            compute_for_ever();
        must(hvd_allreduce_async(name, &x[layer], &x[layer], 1, HVD_FLOAT32, HVD_SUM, NULL, &handle[layer]),
             name);
    }
    for (int layer = 0; layer < LAYERS; layer++)
        must(hvd_wait(handle[layer]), "hvd_wait");
}

static void train_round(int culprit, int round)
{
    char name[40];
    float x = 1;

    if (strcmp(kind, "async") == 0) {
        reduce_at_once(culprit, round);
        return;
    }

    if (round == ROUNDS && strcmp(kind, "set") == 0 && (hvd_rank() == 0 || hvd_rank() == culprit)) {
        const hvd_options in_pair = {.set = pair};
        if (hvd_rank() == culprit)
            be_culprit();
        must(hvd_allreduce("pair", &x, &x, 1, HVD_FLOAT32, HVD_SUM, &in_pair), "pair");
    }
    if (round == ROUNDS && strcmp(kind, "circle") == 0)
        send_in_circle();
    if (round == ROUNDS && strcmp(kind, "join") == 0) {
        int joined_last;
        if (hvd_rank() == culprit)
            compute_for_ever();
        must(hvd_join(&joined_last), "hvd_join");
    }
    if (round == ROUNDS && strcmp(kind, "broadcast") == 0) {
        if (hvd_rank() == culprit)
            be_culprit();
        must(hvd_broadcast("start", &x, 1, HVD_FLOAT32, culprit, NULL), "start");
    }
    for (int layer = 0; layer < LAYERS; layer++) {
        snprintf(name, sizeof name, "layer.%d.weight", layer);
        if (round == ROUNDS && layer == 1 && hvd_rank() == culprit)
            be_culprit();
        reduce_layer(name);
    }
}

int main(int argc, char **argv)
{
    int culprit = argc == 3 ? (int)strtol(argv[2], NULL, 10) : -1, ranks[2] = {0, culprit};

    if (argc != 3)
        return 2;
    kind = argv[1];
    if (strcmp(kind, "late") == 0 && getenv("HVD_RANK") && strtol(getenv("HVD_RANK"), NULL, 10) == culprit)
        sleep(1000);
    must(hvd_init(), "hvd_init");
    if (strcmp(kind, "set") == 0)
        must(hvd_set_add(ranks, 2, &pair), "hvd_set_add");
    bool endless = strcmp(kind, "healthy") == 0 || strcmp(kind, "slow") == 0 || strcmp(kind, "pause") == 0;
    for (int round = 0; round <= ROUNDS || endless; round++) {
        if (round == ROUNDS)
            printf("ready\n");
        fflush(stdout);
        train_round(culprit, round);
        if (strcmp(kind, "healthy") == 0)
            usleep(1000);
        if (strcmp(kind, "pause") == 0)
            usleep(round == 2 * ROUNDS && hvd_rank() == culprit ? 600000 : 100000);
        if (strcmp(kind, "slow") == 0)
            compute_for(hvd_rank() == culprit ? 3 : 1);
    }
    if (strcmp(kind, "shutdown") == 0 && hvd_rank() == culprit)
        compute_for_ever();
    bool stays = strcmp(kind, "finish") == 0 && hvd_rank() == culprit;
    must(hvd_shutdown(), "hvd_shutdown");
    if (stays)
        sleep(1000);
    return 0;
}
