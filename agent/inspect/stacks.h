/* Finds out where the workers are before the job is ended: what each of their processes does, and the stacks
 * of its threads.
 *
 *   start    /proc is read for every living worker at once; without a tool that is the whole answer
 *   stacks   eu-stack, or gdb, runs for one process after the other, STACKS_AT_ONCE at a time, as a child of
 *            the session in the job's cgroup; for Python py-spy does, if the host has it; a worker is told
 *            when all its processes were looked at
 *   done     all workers are told; after the limit, the others are told without a stack
 *
 * A tool that is late is killed with all processes that it started. The kernel then releases the process that
 * the tool has traced. A process that was stopped before is stopped again; any other process goes on. Nothing
 * here waits for a tool: the reaper says when one has ended. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#include "agent/inspect/stacks_proc.h"
#include "agent/worker/worker.h"
#include "common/protocol/control.pb-c.h"

#define STACKS_AT_ONCE   4
#define STACKS_PROCESSES 3 /* of a worker */
#define STACKS_TOOL_MS   2000

struct stacks_events {
    /* A worker's answer; valid during the call. */
    void (*found)(void *ctx, Hvd__Where *where);
    /* No more will come. `tool` names those that the host has, "eu-stack, py-spy", or is empty. */
    void (*done)(void *ctx, const char *tool);
    /* True while the launcher does not read what it was told already: no tool is started then. */
    bool (*busy)(void *ctx);
};

struct stacks_worker;

struct stacks_run { /* a tool that runs */
    struct stacks *owner;
    pid_t pid; /* 0: none */
    struct stacks_worker *worker;
    size_t process;
    uint64_t deadline;
    bool late;
    int fd;
    uv_poll_t poll;
    char *text;
    size_t len;
};

struct stacks {
    uv_loop_t *loop;
    const struct stacks_events *events;
    void *ctx;
    bool opened, active;
    uv_timer_t timer;
    uint64_t limit;
    struct stacks_worker *worker;
    size_t count, next, told;
    struct stacks_run run[STACKS_AT_ONCE];
    char tool[4096]; /* path, or empty */
    bool is_gdb;
    char python_tool[4096]; /* likewise, of py-spy */
    int cgroup_fd;          /* of the tools */
};

/* Begins to look at the living ones of `workers`; ignored while it does already. At the latest after
 * `limit_ms` `done` comes, perhaps from within. A later look finds the workers as they are then. */
void stacks_start(struct stacks *stacks, uv_loop_t *loop, const struct stacks_events *events, void *ctx,
                  const struct workers *workers, int cgroup_fd, uint32_t limit_ms);
/* No longer busy: goes on. */
void stacks_resume(struct stacks *stacks);
/* True when `pid` was a tool. */
bool stacks_reaped(struct stacks *stacks, pid_t pid);
/* Kills the tools and says nothing more. */
void stacks_stop(struct stacks *stacks);
/* The handles' last callbacks come when the loop runs again. */
void stacks_close(struct stacks *stacks);

/* ---- from the tools' output ---------------------------------------------------------------------------- */

/* From what eu-stack and gdb print to stacks that can be compared: function names without addresses and
 * arguments, innermost first, one line for each different stack of a process's threads. Pure.
 *
 * Lines as "read < load < main" and "3 threads: futex_wait < worker", that of the main thread (`pid`) first.
 * Long stacks lose their middle; what does not fit into `size` is left out at the end. False when there is no
 * frame in `text`. */
bool stacks_parse(const char *text, pid_t pid, char *out, size_t size);
