/* A program that serves a session, the collectives engine or the PMIx server: a process at the end of a
 * socket, whose silence and end are noticed.
 *
 * The process ends when its socket is closed. It has failed when it died unasked, broke the protocol, or did
 * not say for too long that it moves. The owner is told of a failure once, with a sentence. The owner owns
 * the session's end of the socket, and closes it in let_go. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#include "agent/guard/heartbeat.h"
#include "common/base/err.h"
#include "common/base/log.h"

struct child_events {
    /* Handle what it has sent up to now. */
    void (*drain)(void *ctx);
    /* Close the socket, and call child_let_go. */
    void (*let_go)(void *ctx);
    /* It has failed, as the sentence says. Once, after let_go. */
    void (*failed)(void *ctx, const char *text);
    /* It was asked to end and did not end well. */
    void (*notice)(void *ctx, enum log_level level, const char *text);
};

struct child_program {
    const char *program; /* its file, beside the modules */
    char **envp;         /* NULL: none; borrowed for the start */
    int cgroup_fd;       /* -1: the session's */
    uint32_t start_ms;   /* from its start to its first word */
    uint32_t silence_ms; /* then between two of its words */
};

struct child {
    uv_loop_t *loop;
    const char *title;
    const struct child_events *events;
    void *ctx;
    uv_timer_t timer; /* while it runs: is it silent? Then: between closing its socket and SIGKILL */
    bool has_timer, ending, failed;
    struct heartbeat heart;
    uint32_t silence_ms;
    pid_t pid; /* 0: none that lives */
};

/* `title`, "the collectives engine", begins the sentences. Nothing runs yet. */
void child_init(struct child *c, uv_loop_t *loop, const char *title, const struct child_events *events,
                void *ctx);
/* Starts it with one end of a socket pair as its descriptor 3. The other end, or -1 with *e and nothing left.
 */
int child_start(struct child *c, const struct child_program *program, struct err *e);
/* It has said that it moves. */
void child_moves(struct child *c);
/* "<title> (pid N) <fmt>" is why it has failed. The first reason is the one that is told; none when it was
 * asked to end. */
void child_fail(struct child *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Its socket was closed: it is killed when it does not end by itself. */
void child_let_go(struct child *c);
/* It is asked to end; let_go is called. */
void child_end(struct child *c);
/* True when `pid` was it. */
bool child_reaped(struct child *c, pid_t pid, uint32_t status, uint32_t signal);
/* The timer is closed when the loop has run again. */
void child_close(struct child *c);
