/* The simulation: what its files share.
 *
 * One process, one thread, no real time. Every engine and every rank of a job is a fiber that runs the
 * production sources; a scheduler picks the next fiber, from a seed. Four things are substituted at link
 * time: the clock, the links between hosts (links.c), the system calls that wait (system.c), and the
 * processes' ends (host.c). Memory is real: regions and segments are mapped by every rank at an address of
 * its own, and the compiler calls us before each access to them (instrument.c), where a rank may be set back
 * or die.
 *
 *   fiber.c  fibers, time, the scheduler      plan.c    what a run does, from the seed; the right results
 *   host.c   engines, their sessions, deaths  member.c  what a rank does, through hvd.h
 *   sim.c    runs, and what must hold of them
 *   elastic.c   runs of elastic jobs: ranks and hosts come, go and die
 *   elastic_sets.c  what the ranks of these do with process sets
 *   launcher.c  what hvdrun does in them: it names memberships
 *   agreement.c how long that takes, with many hosts
 *
 * A rank's libhvd is a copy of the library opened anew, so each has its own global state. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "common/base/buf.h"
#include "common/protocol/control.pb-c.h"

#ifndef SIM_HOSTS /* the program of many hosts has others */
#define SIM_HOSTS 6
#define SIM_RANKS 4 /* of a host */
#endif
#define SIM_MEMBERS (SIM_HOSTS * SIM_RANKS)
#define USEC        1000ull
#define MSEC        1000000ull
#define SEC         1000000000ull

/* ---- chance -------------------------------------------------------------------------------------------- */

struct chance {
    uint64_t state;
};
static inline uint64_t chance_next(struct chance *c)
{
    uint64_t z = c->state += 0x9e3779b97f4a7c15ull; /* splitmix64 */
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}
static inline uint64_t chance_below(struct chance *c, uint64_t limit)
{
    return chance_next(c) % limit;
}
static inline bool chance_one_in(struct chance *c, uint64_t n)
{
    return chance_below(c, n) == 0;
}

/* ---- fibers (fiber.c) ---------------------------------------------------------------------------------- */

enum fiber_state { FIBER_NONE, FIBER_READY, FIBER_WAITING, FIBER_ENDED, FIBER_DEAD };
enum fiber_role { ROLE_ENGINE, ROLE_MEMBER };

struct fiber {
    enum fiber_state state;
    enum fiber_role role;
    uint32_t host, index; /* index: rank of the job, or host */
    void (*run)(void *arg);
    void *arg;
    void *context, *stack;
    uint64_t wake_at; /* while it waits; 0: not by time */
    bool poked;
    uint64_t futex; /* the word on which it sleeps; 0: awake */
    uint64_t points, die_at;
    int error; /* its errno */
};

extern uint64_t sim_now;
extern struct fiber *sim_current; /* NULL: the scheduler */
extern struct chance sim_timing;
extern bool sim_verbose;
extern bool sim_steady; /* each message takes STEADY_NS, and work hardly any time */
#define STEADY_NS MSEC

void fiber_start(struct fiber *f, void (*run)(void *arg), void *arg);
void fiber_free(struct fiber *f);
/* The current fiber goes on later. */
void fiber_yield(void);
/* Until it is poked, or sim_now is `until` (0: never). true: it was poked. */
bool fiber_wait(uint64_t until);
void fiber_poke(struct fiber *f);
/* A place where the current fiber may be set back, or die. */
void sim_point(void);
/* The current fiber never goes on. */
void fiber_die(void);
/* How often it is set back: once in `mean` points. */
void sim_pace(uint64_t mean);
/* Runs all until `done` or the time is over. false: it was over. */
bool sim_run(struct fiber *const *fiber, size_t fibers, bool (*done)(void), uint64_t limit);
void sim_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Shared memory is mapped into this part of the address space, so that an access is told from others. */
#define SIM_SHARED_BITS 44
static inline bool sim_is_shared(const volatile void *at)
{
    return (uintptr_t)at >> SIM_SHARED_BITS == 2;
}

/* ---- hosts (host.c) ------------------------------------------------------------------------------------ */

struct sim_member {
    struct fiber fiber;
    uint32_t rank, local;
    int pidfd;               /* the engine's has the same counter; -1: it has none */
    struct sockaddr_un name; /* of its socket */
    socklen_t name_length;
    uint64_t ends_at, told_at; /* when the engine's pidfd is readable, and when the sessions say so; 0: not */
};

struct engine;
struct sim_host {
    struct fiber fiber;
    struct engine *engine;
    uint32_t first_rank, ranks;
    int session; /* our end */
    uint32_t session_sent;
    struct buf heard; /* elastic: what the engine has said */
    int listener;
    struct sockaddr_un name; /* of the listener */
    socklen_t name_length;
    uint64_t waits, die_at_wait; /* epoll_wait's calls; the one at which it dies */
    bool failed;                 /* engine_loop ended with an error */
};

struct job {
    bool elastic; /* a rank is a worker then, and `size` the workers that there were so far */
    uint32_t hosts, size;
    struct sim_host host[SIM_HOSTS];
    struct sim_member member[SIM_MEMBERS];
    bool flat; /* the engines' mode */
    uint64_t fusion_bytes;
    bool crowded;
};
extern struct job job;

/* Makes the engines of job.hosts hosts with job.host[].ranks ranks each. */
void job_start(void);
void job_start_members(void (*run)(void *member));
/* Elastic: a host, or a worker, that comes later. */
void job_add_host(uint32_t ranks);
void job_add_member(uint32_t host, void (*run)(void *member));
/* The worker's process ends, by another's will. */
void job_kill(struct sim_member *m);
/* A message of the session to its engine; `passed`: a descriptor beside it, or -1. */
void job_say(struct sim_host *h, Hvd__Engine *message, int passed);
/* Runs the actions of sessions that are due. Returns when the next one is due; 0: none. */
uint64_t job_events(void);
/* A fiber has died: what the kernel does then. */
void job_died(struct fiber *f);
void job_free(void);
/* The process of this host's engine ends. */
void job_engine_dies(struct sim_host *h);

/* ---- elastic jobs (launcher.c, elastic.c) -------------------------------------------------------------- */

void launcher_begin(void);
/* Hears the engines, and acts. Returns when something is due; 0: nothing is. */
uint64_t launcher_events(void);
void launcher_rank_gone(uint32_t worker, bool well);
void launcher_host_lost(uint32_t host);
/* Its workers are to leave. */
void launcher_let_go(uint32_t host);
void launcher_worker_added(uint32_t worker, uint32_t host);
void launcher_end(void);
/* The job cannot go on, and everybody was ended. */
bool launcher_gave_up(void);
/* One run of a seed; -1: something did not hold, and was said. */
int elastic_run(uint64_t seed);
uint64_t elastic_memberships(void);
/* When the last membership was named. */
uint64_t launcher_named_at(void);
/* agreement.c: a change of the ranks on so many hosts; -1: over the limits. */
int agreement_run(uint32_t hosts);

/* ---- the network (links.c) ----------------------------------------------------------------------------- */

void net_reset(void);
/* Pokes the engines for which something has come; the time of the next thing, 0: none. */
uint64_t net_events(void);
/* From now on nothing passes between the two; they find out later. */
void net_cut(uint32_t a, uint32_t b);
void net_host_died(uint32_t host);
/* The messages of a host to others since net_count_anew. */
void net_count_anew(void);
uint32_t net_sent(uint32_t host);

/* ---- system calls (system.c) --------------------------------------------------------------------------- */

/* Returns how many mappings of shared memory were left. */
unsigned system_reset(void);
unsigned system_open_files(void);
/* Releases the descriptors and mappings of a process that ended. */
void system_release(const struct fiber *owner);
/* Sleepers on the same word, whoever mapped it. */
uint64_t system_futex_key(const void *word);
