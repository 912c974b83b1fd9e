/* Jobs of one rank on each of several hosts, whose ranks have connections of their own: what the tests of
 * client/link/ share. */
#pragma once

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "collectives/client/link/message.h"
#include "collectives/client/names.h"
#include "collectives/client/operation.h"

#include <check.h> /* behind: it has a macro fail() */

#include "tests/unit/job.h"
#include "tests/unit/run_test.h"

#define USED_BY_SOME __attribute__((unused))

#define OFTEN (2 * (int)LINK_FIRST) /* so often, and a name is on the link */

/* Hosts of one rank each, with a processor for each rank or for all of them. */
struct kind {
    int hosts, processors;
};
static USED_BY_SOME const struct kind kinds[] = {{2, 1}, {3, 8}, {4, 8}, {3, 1}, {4, 1}};
#define KINDS ((int)(sizeof kinds / sizeof *kinds))
static USED_BY_SOME const struct kind two = {2, 1}, three = {3, 8}, three_crowded = {3, 1};

typedef int worker_main(const struct job *job, int rank);

static USED_BY_SOME struct job job_of_kind(struct kind kind, worker_main *worker)
{
    struct job job = job_of((struct job_shape){kind.hosts, 1, false}, worker);
    job.processors = kind.processors;
    return job;
}

static USED_BY_SOME void run_way(struct kind kind, worker_main *worker, int way)
{
    struct job job = job_of_kind(kind, worker);
    job.ctx = &way;
    job_run(&job, JOB_SECONDS);
    job_must_succeed(job);
}

/* A test of a job that succeeds. */
#define SUCCEEDS(test, kind, worker)                                                                         \
    START_TEST(test)                                                                                         \
    {                                                                                                        \
        run_way(kind, worker, 0);                                                                            \
    }                                                                                                        \
    END_TEST

static USED_BY_SOME bool was_carried(const char *name)
{
    const struct tensor *t = tensor_known(client.set[HVD_WORLD], name);
    return t && t->view.member_slot[0]->carried == t->sequence;
}

/* The first connection to another rank at `fd` or behind it; -1: there is none. */
static USED_BY_SOME int next_connection(int fd)
{
    for (; fd < 256; fd++) {
        struct sockaddr_storage a;
        socklen_t size = sizeof a;
        if (getpeername(fd, (struct sockaddr *)&a, &size) == 0 && a.ss_family != AF_UNIX)
            return fd;
    }
    return -1;
}

/* With two ranks each has one connection only. */
static USED_BY_SOME int own_connection(void)
{
    return next_connection(3);
}

static USED_BY_SOME int count_connections(void)
{
    int n = 0;
    for (int fd = next_connection(3); fd >= 0; fd = next_connection(fd + 1))
        n++;
    return n;
}

static USED_BY_SOME void sum_once(const char *name, size_t count)
{
    float *x = calloc(count, sizeof *x);
    job_check(x);
    for (size_t i = 0; i < count; i++)
        x[i] = (float)(i % 1000) + (float)client.rank;
    job_check(hvd_allreduce(name, x, x, count, HVD_FLOAT32, HVD_SUM, NULL) == HVD_SUCCESS);
    for (size_t i = 0; i < count; i++)
        job_check(x[i] == (float)client.size * ((float)(i % 1000) + (float)(client.size - 1) / 2));
    free(x);
}

static USED_BY_SOME void sum_often(const char *name, size_t count)
{
    for (int i = 0; i < OFTEN; i++)
        sum_once(name, count);
}

static USED_BY_SOME struct link_operation raw_operation(const char *name, float *x, size_t count)
{
    static _Atomic uint32_t carried;
    return (struct link_operation){.name = name,
                                   .sequence = LINK_FIRST,
                                   .op = {.kind = SHM_ALLREDUCE,
                                          .dtype = HVD_FLOAT32,
                                          .op = HVD_SUM,
                                          .prescale = 1,
                                          .postscale = 1,
                                          .count = count},
                                   .in = x,
                                   .out = x,
                                   .bytes = count * sizeof *x,
                                   .carried = &carried};
}

static USED_BY_SOME enum link_step step_until_decided(struct linked_name *linked,
                                                      const struct link_operation *o)
{
    enum link_step step = LINK_WAITS;
    for (uint64_t until = clock_now() + 5 * NSEC_PER_SEC; step == LINK_WAITS && clock_now() < until;)
        step = rank_link_step(linked, o);
    return step;
}

static USED_BY_SOME void shrink_buffers(int bytes)
{
    for (int fd = next_connection(3); fd >= 0; fd = next_connection(fd + 1)) {
        job_check(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes) == 0);
        job_check(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes) == 0);
    }
}

/* ---- ends ---------------------------------------------------------------------------------------------- */

/* Each rank ends with that exit status. */
static USED_BY_SOME void job_must_end(struct job *job, int status)
{
    job_run(job, JOB_SECONDS);
    ck_assert(!job->timed_out);
    for (int r = 0; r < job->hosts; r++)
        ck_assert_int_eq(job->status[r], status << 8);
}

static void stop_for_a_while(int number)
{
    (void)number;
    if (fork() == 0) {
        usleep(4000000);
        kill(getppid(), SIGCONT);
        _exit(0);
    }
    raise(SIGSTOP);
}

/* This rank is stopped after 0.2 s, for 4 s. */
static USED_BY_SOME void stop_soon(void)
{
    const struct itimerval soon = {.it_value = {.tv_usec = 200000}};
    signal(SIGALRM, stop_for_a_while);
    job_check(setitimer(ITIMER_REAL, &soon, NULL) == 0);
}

static int sum_until_failure(const struct job *job, int rank)
{
    size_t count = *(const size_t *)job->ctx;
    float *x = calloc(count, sizeof *x);
    int status = HVD_SUCCESS;
    job_check(x && hvd_init() == HVD_SUCCESS);
    sum_often("x", 2);
    if (rank == 0)
        job_ready(job);
    while (status == HVD_SUCCESS)
        status = hvd_allreduce("x", x, x, count, HVD_FLOAT32, HVD_MAX, NULL);
    job_check(status == HVD_ERR_ENGINE || status == HVD_ERR_PEER);
    free(x);
    hvd_shutdown();
    return 3;
}

/* The engine of the first host dies beside allreduces of so many elements. */
static USED_BY_SOME void lose_an_engine(struct kind kind, size_t count)
{
    struct job job = job_of_kind(kind, sum_until_failure);
    job.ctx = &count;
    job.fault = JOB_KILL_ENGINE;
    job.fault_after = 1;
    job_must_end(&job, 3);
}
