/* The parts of a session: a feature each, with its state, its processes and its moments in one file.
 *
 * session.c holds the table. Hooks are called in the order of the table, `close` and `free` in the reverse
 * order. To remove a part, remove its file, its row of the table, its state in session.h and its section
 * below. */
#pragma once

#include <stddef.h>

#include "agent/session/session.h"
#include "agent/worker/reap.h"
#include "agent/worker/worker_env.h"

/* A process of a part that workers may need: it ends after them. Hooks may be NULL but for pid and end. */
struct session_server {
    pid_t (*pid)(const struct session *s); /* 0: no process lives */
    /* Tells the process to end, as soon as no other process needs it. Is called again when a child has
     * ended. */
    void (*end)(struct session *s);
    void (*kill)(struct session *s);
    /* Handles all that the process has sent up to now. */
    void (*drain)(struct session *s);
    /* Calls of `w` end with an error that another process has caused. */
    bool (*has_told)(const struct session *s, const struct worker *w);
    uint32_t end_ms; /* the process takes so long to end; 0: less than a grace period */
};

/* A hook that is NULL has nothing to do. */
struct session_part {
    const char *name;
    struct {
        size_t size, at;
    } state; /* SESSION_STATE; zeros: the part has none */
    /* The session begins; the state is all zeros. */
    int (*open)(struct session *s, struct err *e);
    /* Hello was accepted: the job has a name. */
    void (*accepted)(struct session *s);
    /* The job's directory was made. */
    int (*directory)(struct session *s, struct err *e);
    /* Between Spawn and the first worker: fills in what the workers' environment says of the part. */
    int (*prepare)(struct session *s, struct worker_env_job *env, struct err *e);
    /* Then, with all of `env` known. 1: the workers wait until the part posts EV_SPAWN or EV_REFUSED. */
    int (*start)(struct session *s, struct worker_env_job *env, struct err *e);
    /* All workers execute their programs. */
    void (*running)(struct session *s);
    /* A rank of any host has ended. */
    void (*rank_ended)(struct session *s, Hvd__RankEnded *ended);
    /* A worker of this host has ended and is reported with `told`. */
    void (*reported)(struct session *s, const struct worker *w, const Hvd__Exited *told);
    /* The engine's counters have come. */
    void (*counted)(struct session *s);
    /* True when `child` was a process of the part. */
    bool (*reaped)(struct session *s, const struct reaped *child);
    /* Queued messages for the launcher were written as far as possible; the loop is about to sleep. */
    void (*written)(struct session *s);
    /* The job begins to end. */
    void (*ending)(struct session *s);
    /* The job's processes are about to get SIGTERM, or (`all`) SIGKILL. True: not before the part has posted
     * EV_RELEASED, which takes MPS_CLIENTS_MS at most. */
    bool (*delay_end)(struct session *s, bool all);
    bool (*delays_end)(const struct session *s);
    const struct session_server *server;
    /* Closes handles; the loop runs once more before `free`. */
    void (*close)(struct session *s);
    void (*free)(struct session *s);
};

/* The member of struct session that points to the state of a part. parts.c allocates and frees it. */
#define SESSION_STATE(member)                                                                                \
    {                                                                                                        \
        sizeof(*((struct session *)NULL)->member), offsetof(struct session, member)                          \
    }

/* For each part that has the hook, in the order of the table. */
#define EACH_PART(s, p, hook)                                                                                \
    for (const struct session_part *const *at_ = (s)->parts, *p; (p = *at_) != NULL; at_++)                  \
        if (p->hook)

/* ---- parts.c: walks over the table ----------------------------------------------------------------- */
int session_parts_open(struct session *s, struct err *e);
void session_parts_rank_ended(struct session *s, Hvd__RankEnded *ended);
bool session_parts_delay_end(struct session *s, bool all);
bool session_parts_are_delaying(const struct session *s);
void session_parts_close(struct session *s);
void session_parts_free(struct session *s);

#define SESSION_SERVERS_MAX 7

struct session_servers {
    pid_t pid[SESSION_SERVERS_MAX + 1]; /* 0 at its end */
};
struct session_servers session_servers_list(const struct session *s);
void session_servers_end(struct session *s);
void session_servers_drain(struct session *s);
bool session_servers_told(const struct session *s, const struct worker *w);
/* How long the servers that live may take to end. */
uint32_t session_servers_end_ms(const struct session *s);

/* ---- services of parts for other files of the session -------------------------------------------------- */
/* The part of each file is session_part_NAME. A function that takes a Control handles that message of the
 * launcher, and returns NULL or the reason why the message is refused although it is legal. */
extern const struct session_part session_part_liveness, session_part_programs, session_part_preload,
    session_part_status, session_part_binding, session_part_rendezvous, session_part_gpus,
    session_part_engine, session_part_mps, session_part_stacks, session_part_report, session_part_spawning,
    session_part_error_file, session_part_elastic, session_part_timeline;

/* liveness.c: the launcher, the guard and this session show each other that they live. */
void session_heartbeat_start(struct session *s, uint32_t heartbeat_ms);
/* Shows that the session lives when the loop could not for a while. */
void session_heartbeat_busy(struct session *s);

/* programs.c: the workers' programs, directories and environments. */
struct session_program {
    char path[4096], wdir[4096];
    struct worker_env env;
};
/* Empty where none of the program's ranks is here. */
struct session_program *session_program_get(struct session *s, size_t i);
/* The workers' directories, by program. */
const char *const *session_programs_wdir(const struct session *s);
/* The environment of this host's first program, without any rank's own variables. */
char **session_programs_base(struct session *s);

/* preload.c: files for the workers (--preload). */
const char *session_preload_begin(struct session *s, const Hvd__Control *m);
void session_preload_data(struct session *s, const struct frame *f);
/* Path of the `number`-th file, counted from 1; false: there is no such file. */
bool session_preload_path(const struct session *s, uint32_t number, char *out, size_t size);

/* binding.c: the workers' processors. */
/* Counts session_job.units, when Hello asks for that. */
int session_count_units(struct session *s, const Hvd__Hello *hello, struct err *e);
/* By worker; NULL: no worker is bound. */
const struct cpus *session_cpus(const struct session *s);
/* NULL: the i-th worker is not bound. */
const struct cpus *session_cpus_of(const struct session *s, size_t i);
/* For --report-bindings; `text` must outlive the message. */
void session_bound(const struct session *s, size_t i, Hvd__Spawned *told, char *text, size_t size);

/* rendezvous.c: the workers' libraries, and links to other sessions. */
bool session_workers_are_crowded(const struct session *s);
const char *session_links_order(struct session *s, const Hvd__Control *m);
const char *session_links_told(struct session *s, const Hvd__Control *m);

/* engine.c: the collectives engine. */
pid_t session_engine_pid(const struct session *s);
/* The ranks of an elastic job change. */
void session_engine_membership(struct session *s, Hvd__Membership *m);
void session_engine_links(struct session *s, Hvd__Links *links);
/* Asks the engine to count, and for what is `pending`; false: there is no engine to ask. The hook `counted`
 * follows. */
bool session_engine_count(struct session *s, bool pending);
/* The last counters; NULL: none. *at: when they came. */
Hvd__Counters *session_engine_counters(const struct session *s, uint64_t *at);
/* Likewise, of those that tell pending operations. */
Hvd__Counters *session_engine_looked(const struct session *s, uint64_t *at);
/* The recorder of the workers' operations; without memory when there is none. */
const struct flight *session_flight(const struct session *s);
/* The launcher wants the last operations. */
const char *session_tell_flight(struct session *s, const Hvd__Control *m);

/* status/events.c: what the session logs from now on is kept, for the flight recorder. */
void session_keep_events(void);
void session_tell_events(struct session *s);

/* status/stacks.c: where the workers are, for the launcher's Inspect. */
const char *session_inspect(struct session *s, const Hvd__Control *m);
/* The same for a status: begins to look, and calls session_stacks_found, perhaps from within. Does nothing
 * while the workers are looked at for the launcher. */
void session_stacks_look(struct session *s, uint32_t limit_ms);
/* Have the tools not ended yet? */
bool session_stacks_are_looking(const struct session *s);
/* Fills in what was found; it stays until the next look. */
void session_stacks_tell(const struct session *s, Hvd__JobStatus *out);

/* status/status.c: answers hvdctl, and the launcher. */
const char *session_tell_status(struct session *s, const Hvd__Control *m);
/* The workers were looked at. */
void session_stacks_found(struct session *s);
/* Keeps what a rank wrote. */
void session_status_output(struct session *s, uint32_t rank, enum frame_stream stream, const uint8_t *bytes,
                           size_t len);

/* status/gpu_look.c: the GPUs that workers may see. NULL: no memory. */
struct gpu_look *gpu_look_open(struct session *s);
void gpu_look_close(struct gpu_look *g);
void gpu_look_free(struct gpu_look *g);
bool gpu_look_reaped(struct gpu_look *g, pid_t pid);
/* Asks whether they are slower than usual; session_gpus_known is called then. false: there are none, or they
 * cannot be asked now. */
bool gpu_look_ask(struct gpu_look *g);
/* Gpu.slowed of the rank's GPU, by its local rank; 0: nothing slows it, or it is not known. */
uint64_t gpu_look_slowed(const struct gpu_look *g, uint32_t rank);
/* status/status.c: they have answered, or will not. */
void session_gpus_known(struct session *s);

/* status/ras.c: NCCL's account of the job, from a worker's process. NULL: no memory. */
struct ras_ask *ras_ask_open(struct session *s);
void ras_ask_close(struct ras_ask *r);
void ras_ask_free(struct ras_ask *r);
/* Asks; session_ras_known is called then. false: no worker listens. */
bool ras_ask_start(struct ras_ask *r);
/* The answer is lent to the status. */
void ras_ask_tell(struct ras_ask *r, Hvd__JobStatus *out);
/* status/status.c: it has told, or will not. */
void session_ras_known(struct session *s);

/* status/handicap.c: fills in *out, and returns it; NULL: nothing is unusual. */
struct usage;
Hvd__Handicap *handicap_tell(const struct usage *u, Hvd__Handicap *out);
/* The same with the speed of the processor, and the reasons of the GPU. */
Hvd__Handicap *handicap_tell_speed(const struct usage *u, uint64_t gpu_slowed, Hvd__Handicap *out);
/* Of this host; NULL: it was never too hot. */
Hvd__Heat *heat_tell(Hvd__Heat *out);

/* status/samples.c: of the status's part, which calls these from its hooks. */
struct samples;
/* NULL: no memory. */
struct samples *samples_open(struct session *s);
/* The workers run. */
void samples_start(struct samples *m);
/* The engine's counters have come. */
void samples_counted(struct samples *m);
void samples_close(struct samples *m);
void samples_free(struct samples *m);

/* timeline.c: parts of the timeline for the launcher. */
/* The launcher ends the job and named this mark; "": it wants no parts. */
void session_timeline_want(struct session *s, const char *mark);
/* Nothing of the job is left here. true: parts are under way to the launcher. */
bool session_timeline_is_due(struct session *s);
void session_timeline_credit(struct session *s, uint32_t bytes);
const char *session_timeline_taken(struct session *s, const Hvd__Control *m);
/* Nobody waits for the rest. */
void session_timeline_drop(struct session *s);

/* ---- steps of the session ------------------------------------------------------------------------------ */
/* hello.c */
const char *session_hello(struct session *s, const Hvd__Control *m);
void session_free_job(struct session *s);
/* spawn.c */
const char *session_spawn(struct session *s, const Hvd__Control *m);
/* Starts all workers; posts EV_EXECUTED or EV_REFUSED, now or later. */
void session_start_workers(struct session *s);
/* Tells the launcher the pids of the workers from the `first` on. */
void session_send_spawned(struct session *s, size_t first);
/* Workers of an elastic job that come later. */
const char *session_recruit(struct session *s, const Hvd__Control *m);

/* report.c: the managed agent may give slots of this session to others. */
const char *session_shrink(struct session *s, const Hvd__Control *m);

/* elastic.c: memberships of an elastic job, and what is asked of it on this host. */
const char *session_membership(struct session *s, const Hvd__Control *m);
void session_rank_entered(struct session *s, const Hvd__EngineRank *rank);
void session_rank_stage(struct session *s, const Hvd__EngineRank *rank);
/* The worker's rank in the present membership; UINT32_MAX: none. */
uint32_t session_member_rank(const struct session *s, uint32_t worker);
/* Fills in what the status has of memberships; its memory stays until the next call. */
void session_tell_memberships(struct session *s, Hvd__JobStatus *out);
/* The job shall have another number of ranks; the ranks here shall leave. NULL, or why that cannot be. */
const char *session_ask_resize(struct session *s, uint32_t ranks, const char *by);
const char *session_ask_leave(struct session *s, const char *reason);
/* The launcher was asked to let the ranks here go. */
bool session_leaves(const struct session *s);
/* channel.c: the launcher's messages and the workers' output. */
extern const struct stdio_events session_stdio_events;
/* Outlets read on when the bulk queue has room again. */
void session_resume_output(struct session *s);
int session_channel_open(struct session *s, struct err *e);
void session_channel_close(struct session *s);
