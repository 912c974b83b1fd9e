/* A job without hvdrun and hvdagent, for tests of the collectives: engines are started as a session starts
 * them, workers are forks of the test program, and the parent plays all sessions and the launcher. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdatomic.h>
#include <sys/types.h>

#define JOB_HOSTS_MAX 4
#define JOB_RANKS_MAX 16

/* A fault of an engine, once `fault_after` ranks have called job_ready. So it comes when the test wants it,
 * however slow the machine is. */
enum job_fault {
    JOB_NO_FAULT,
    JOB_KILL_ENGINE,   /* of host 0: it is dead when job_await_fault returns */
    JOB_STARVE_ENGINE, /* of the last host: it gets hardly any more memory */
    JOB_FREEZE_ENGINE, /* of the last host: SIGSTOP */
};

struct job {
    /* set by the caller */
    int hosts, per_host;
    bool by_node;                                   /* ranks go round the hosts */
    int (*worker)(const struct job *job, int rank); /* its return value becomes the exit status */
    void *ctx;
    int silent_sessions; /* 1: nobody tells the engines how a worker ended */
    int without_links;   /* the engine of host number so many - 1 is said to connect no ranks; 0: of none */
    int without_fit;     /* likewise, to cut tensors as release 0.1.0 does */
    int late_ms;         /* the first host hears so much later where the others are */
    int processors;      /* that each engine is said to have; 0: those it has */
    int elsewhere;       /* the engine of host number so many - 1 is said to be elsewhere; 0: of none */
    int stall_ms;        /* a stall ends the job after that; 0: never */
    enum job_fault fault;
    int fault_after; /* ranks */

    /* the result */
    int status[JOB_RANKS_MAX];  /* as of waitpid; -1: had to be killed when the time was up */
    int initialized, shut_down; /* how many ranks the engines said so of */
    int engine_status[JOB_HOSTS_MAX];
    bool timed_out;
    uint64_t fault_at; /* by clock_now; 0: it has not come */

    /* the harness's own */
    struct job_signs *signs; /* shared with the workers */
    char dir[64];
    uint8_t key[32], token[16];
    int session[JOB_HOSTS_MAX], listener[JOB_HOSTS_MAX], links;
    pid_t engine[JOB_HOSTS_MAX], pid[JOB_RANKS_MAX];
    int pidfd[JOB_RANKS_MAX];
    char *link[JOB_HOSTS_MAX];
    uint32_t port[JOB_HOSTS_MAX], rank_link_hosts[JOB_HOSTS_MAX], machine[JOB_HOSTS_MAX];
    uint32_t processors_of[JOB_HOSTS_MAX], pieces_fit[JOB_HOSTS_MAX], sent[JOB_HOSTS_MAX];
};

/* How ranks lie on hosts. */
struct job_shape {
    int hosts, per_host;
    bool by_node;
};

#define JOB_SECONDS 60

/* A job of that shape, ready to be run. */
struct job job_of(struct job_shape shape, int (*worker)(const struct job *job, int rank));
/* Runs one for JOB_SECONDS; job_must_succeed: every rank has ended well and called hvd_shutdown, or the test
 * fails. */
struct job job_ran(struct job_shape shape, int (*worker)(const struct job *job, int rank));
void job_must_succeed(struct job job);
/* Zeroed memory that the parent and all workers of later jobs share. */
void *job_shared(size_t size);
/* A worker's: waits until *counter has been raised to `value` by all others. */
void job_await(const _Atomic int *counter, int value);

/* A worker's: as far as it is concerned the fault may come now; and until it has come, saying so itself. */
void job_ready(const struct job *job);
void job_await_fault(const struct job *job);

/* Runs it to its end, or for at most `seconds`: under a sanitizer, more. */
void job_run(struct job *job, int seconds);
/* All workers ended with status 0 and every engine too. Prints what did not. */
bool job_succeeded(const struct job *job);
/* The host of a rank, and its number on that host. */
int job_host(const struct job *job, int rank);
int job_local_rank(const struct job *job, int rank);
/* A worker's check: prints file, line and hvd_last_error, and ends the worker with status 1. */
#define job_check(condition) ((condition) ? (void)0 : job_failed(#condition, __FILE__, __LINE__))
void job_failed(const char *what, const char *file, int line) __attribute__((noreturn));
/* Before a function that only fills and checks a thread's own memory: ThreadSanitizer, which sees what
 * threads of one process do, would take minutes for it. */
#define job_unwatched __attribute__((no_sanitize("thread")))
