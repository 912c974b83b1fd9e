/* hvd_join_async: hvd_join in a thread of its own, which lives until every rank has joined or the job has
 * failed. A rank that computes meanwhile need not poll: it takes part in time all the same.
 *
 * The handle is that of the join's tensor. The thread holds the tensor's lock all the time, so a poll sees
 * that a thread waits, and a wait waits for the thread. The outcome stands in the tensor when the lock is
 * free, as for any operation that has ended. The next join or hvd_shutdown joins the thread itself. The
 * thread gets no signals. */
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "collectives/client/api/join.h"
#include "collectives/client/names.h"

/* Belongs to the thread that has claimed the join, and to hvd_shutdown. The join's own thread writes the
 * last three members when it has begun. */
static struct {
    bool exists; /* and was not waited for */
    pthread_t thread;
    int *last_rank;
    sem_t begun;
    hvd_handle handle; /* 0: it has not: */
    int status;
    char why[SHM_TEXT_MAX];
} joiner;

static void wait_for_thread(void)
{
    pthread_join(joiner.thread, NULL);
    joiner.exists = false;
}

void join_reap(void)
{
    int state = atomic_load(&client.state);
    /* A child of fork() has no such thread. */
    if (!joiner.exists || state == CLIENT_FORKED ||
        (state == CLIENT_JOINING && !region_poisoned(&client.region)))
        return;
    wait_for_thread();
}

/* The tensor is locked. */
static void end_join(struct tensor *end, int status, int last, int *last_rank)
{
    if (status == HVD_SUCCESS && last_rank)
        *last_rank = last;
    if (status != HVD_SUCCESS)
        snprintf(end->text, sizeof end->text, "%s", hvd_last_error());
    end->op.status = status;
    end->phase = PHASE_ENDED;
    join_release(status); /* first: a thread that sees the end may begin operations */
    pthread_mutex_unlock(&end->lock);
}

static void *take_part(void *unused)
{
    int *last_rank = joiner.last_rank;
    struct tensor *end;
    struct join *j = join_begin(&end);
    (void)unused;
    if (!j) {
        joiner.status = last_failure();
        snprintf(joiner.why, sizeof joiner.why, "%s", hvd_last_error());
    } else {
        end->generation++;
        joiner.handle = tensor_handle(end);
    }
    sem_post(&joiner.begun);
    if (j) {
        int last;
        int status = join_through(j, &last);
        end_join(end, status, last, last_rank);
    }
    return NULL;
}

static int make_thread(void)
{
    sigset_t all;
    sigfillset(&all); /* signals are for the program's own threads */
    sigset_t before;
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&joiner.thread, NULL, take_part, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error)
        return fail(HVD_ERR_SYSTEM, "cannot make a thread for hvd_join_async: %s", strerror(error));
    joiner.exists = true;
    return HVD_SUCCESS;
}

/* Returns when this rank has joined. */
static int start_thread(int *last_rank, hvd_handle *handle)
{
    if (joiner.exists) /* it has ended: this rank was free to join */
        wait_for_thread();
    joiner.last_rank = last_rank;
    joiner.handle = 0;
    sem_init(&joiner.begun, 0, 0);
    int status = make_thread();
    if (status == HVD_SUCCESS)
        while (sem_wait(&joiner.begun) != 0)
            ; /* a signal */
    sem_destroy(&joiner.begun);
    if (status == HVD_SUCCESS && joiner.handle == 0) {
        wait_for_thread();
        status = fail(joiner.status, "%s", joiner.why);
    }
    *handle = joiner.handle;
    return status;
}

/* A job of one rank: it is the last. */
static int start_solo(int *last_rank, hvd_handle *handle)
{
    struct tensor *end;
    int status = join_tensor(&end);
    if (status != HVD_SUCCESS)
        return status;
    end->generation++;
    *handle = tensor_handle(end);
    end_join(end, HVD_SUCCESS, 0, last_rank);
    return HVD_SUCCESS;
}

int hvd_join_async(int *last_rank, hvd_handle *handle)
{
    if (handle)
        *handle = 0;
    int status = client_check();
    if (status != HVD_SUCCESS)
        return status;
    if (!handle)
        return fail(HVD_ERR_INVALID, "the place for the handle is NULL");
    status = join_claim();
    if (status != HVD_SUCCESS)
        return status;
    status = client.solo ? start_solo(last_rank, handle) : start_thread(last_rank, handle);
    if (status != HVD_SUCCESS)
        join_release(status);
    return status;
}
