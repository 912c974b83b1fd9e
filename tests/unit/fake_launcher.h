/* A launcher of few words: starts `hvdagent session` over a socketpair, speaks the control channel, and keeps
 * what it was told. For tests that must end a channel, withhold credit or kill at a moment of their choosing.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/protocol/channel.h"

#define FAKE_RANKS 256

struct fake_rank {
    bool spawned, exited;
    uint32_t pid;
    uint32_t status, signal;
    bool by_us, not_shut_down, told_peer;
    bool eof[3];
    char *text[3]; /* its output, with a NUL at the end */
    size_t len[3];
    unsigned unfinished, line_ends, frames;
    uint32_t granted; /* of stdin */
};

struct fake {
    uint32_t later_protocols; /* that it speaks, and no other */
    int fd;
    pid_t agent; /* the guard */
    struct channel channel;
    bool welcomed, refused, ended, closed, broken;
    uint32_t session_pid, slots, free_port, refused_code, leftovers;
    char version[64], containment[32], refused_text[1024], notice[1024];
    char fault[1024]; /* the first */
    unsigned exited_before_fault;
    unsigned spawned, exited, pings;
    bool stingy; /* gives no credit back */
    struct fake_rank rank[FAKE_RANKS];
};

struct fake_job {
    const char *const *argv; /* NULL at its end */
    unsigned workers;
    const char *wdir;
    uint32_t window;        /* 0: 1 MiB */
    bool has_stdin;         /* of rank 0 */
    const char *const *env; /* further variables, or NULL */
};

/* Starts the agent; `containment` NULL or a value for HVD_CONTAINMENT. */
void fake_start(struct fake *f, const char *containment);
/* Any message, of bytes as they are. */
void fake_say(struct fake *f, const void *message, size_t len);
/* Any message, of bytes as they are. */
void fake_say(struct fake *f, const void *message, size_t len);
void fake_hello(struct fake *f, const char *version, uint32_t heartbeat_ms, uint32_t grace_ms);
void fake_go(struct fake *f);
void fake_spawn(struct fake *f, const struct fake_job *job);
void fake_signal(struct fake *f, int number);
void fake_teardown(struct fake *f, uint32_t grace_ms);
void fake_credit(struct fake *f, uint32_t rank, uint32_t stream, uint32_t bytes);
void fake_input(struct fake *f, uint32_t rank, const void *bytes, size_t len, bool eof);
void fake_bye(struct fake *f);
void fake_ping(struct fake *f);
/* Handles what comes until *flag (a bool) is set or `ms` have passed; returns *flag. NULL: until the time is
 * over. */
bool fake_wait(struct fake *f, const bool *flag, unsigned ms);
bool fake_wait_exits(struct fake *f, unsigned count, unsigned ms);
/* Hangs up. */
void fake_hang_up(struct fake *f);
/* Waits for the agent's own end; its status as waitpid gives it, -1 after `ms`. */
int fake_agent_status(struct fake *f, unsigned ms);
void fake_free(struct fake *f);

/* How many processes have the word `mark` in their environment or command line and are not zombies. */
unsigned fake_count(const char *mark);
/* The same, waiting at most `ms` for it to become `wanted`. */
bool fake_count_becomes(const char *mark, unsigned wanted, unsigned ms);
/* Counts the job directories and cgroups with the name of this test process's job. */
unsigned fake_traces(void);
bool fake_traces_become(unsigned wanted, unsigned ms);
