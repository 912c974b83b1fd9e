/* One host of the job: its transport, its control channel, its lifecycle.
 *
 *   QUEUED -> CONNECTING -> (SENDING) -> GREETING -> READY -> RUNNING -> ENDING -> LEAVING -> CLOSED
 *
 * CONNECTING covers the transport's phases; SENDING is --send-agent; GREETING is from our Hello to the
 * session's Welcome; READY waits for the others; RUNNING from Spawn; ENDING from Teardown to the session's
 * Ended; LEAVING until the transport has closed. Whatever goes wrong ends in CLOSED with an error that names
 * the host and the phase. The table is in host.c. */
#ifndef HVD_LAUNCHER_HOST_HOST_H
#define HVD_LAUNCHER_HOST_HOST_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "common/protocol/channel.h"
#include "common/base/fsm.h"
#include "common/protocol/legal.h"
#include "launcher/cli/config.h"
#include "launcher/host/host_clock.h"
#include "launcher/host/agent_upload_stream.h"
#include "launcher/host/host_words.h"
#include "launcher/plan/hosts.h"
#include "launcher/parts/preload_files.h"
#include "launcher/transport/transport.h"

enum host_state {
    HOST_QUEUED,
    HOST_CONNECTING,
    HOST_SENDING,
    HOST_GREETING,
    HOST_READY,
    HOST_RUNNING,
    HOST_ENDING,
    HOST_LEAVING,
    HOST_CLOSED
};

struct host_run;

struct host_events {
    /* Welcome came and is right: the host can take Spawn. */
    void (*ready)(void *ctx, struct host_run *h, const Hvd__Welcome *welcome);
    /* Messages that are legal in the host's state (host_legal.c). Returns NULL, or why this one is not: half
     * a sentence. It is ignored then. */
    const char *(*message)(void *ctx, struct host_run *h, const Hvd__Control *message);
    void (*data)(void *ctx, struct host_run *h, const struct frame *f);
    /* Its transport has taken bytes that waited. */
    void (*writable)(void *ctx, struct host_run *h);
    /* Nothing of the job is left there but `ended->leftover`. */
    void (*ended)(void *ctx, struct host_run *h, const Hvd__Ended *ended);
    /* h->waiting says where it stands in the queue of its managed agent; empty: the wait is over. */
    void (*waiting)(void *ctx, struct host_run *h);
    /* h->node says which node it is: it asks its managed agent for a lease after host_go. */
    void (*held)(void *ctx, struct host_run *h);
    /* h->unresolved says why: its name is looked up again and again. */
    void (*unresolved)(void *ctx, struct host_run *h);
    /* It is CLOSED. h->err is empty when it went as it should. The last callback. */
    void (*closed)(void *ctx, struct host_run *h);
};

/* What all hosts of a job share. */
struct host_common {
    uv_loop_t *loop;
    const struct config *config;
    const struct host_events *events;
    void *ctx;
    const char *job;               /* its name */
    const uint8_t *key;            /* JOB_KEY_SIZE bytes */
    const char *program_dir;       /* hvdrun's own directory */
    const char *hostname;          /* of this machine */
    char *agent_local;             /* path of the hvdagent beside us */
    char *const *agent_arguments;  /* what it is told, ended by NULL */
    char *agent_command;           /* the shell command line that becomes a session elsewhere */
    const struct sent_agent *sent; /* what hosts without an agent get; NULL: nothing */
    char **interfaces;             /* of --network-interfaces */
    size_t interface_count;
    uint32_t host_count;
    bool hold;                 /* they ask for leases one after the other */
    Hvd__Preflight *preflight; /* what sessions are to look for */
};

#define JOB_KEY_SIZE 32

struct host_run {
    const struct host_common *common;
    const struct host *spec;
    char label[300];     /* its name, for people */
    uint32_t index;      /* in the host_list and as session id */
    uint32_t plan_index; /* in plan->host once planned */
    bool planned;
    struct fsm fsm;
    const struct transport_ops *ops;
    struct transport *transport;
    struct transport *replaced; /* the built-in SSH that could not, freed at the end */
    struct transport_target target;
    enum transport_phase phase;
    struct channel channel;
    struct legal legal;      /* of what it sends */
    struct host_words words; /* what it may still say */
    bool spawned;            /* it was given workers */
    struct err err;          /* why it failed; the first cause */
    const char *failed_in;   /* the phase in which it did */
    bool managed;            /* by the managed agent of the host: what we started only leads there */
    bool agent_died;         /* err says which process of it did */
    uint32_t guard_pid, session_pid;
    char stderr_tail[512]; /* what the remote shell or agent said last, for the error */
    size_t stderr_len;
    uint64_t last_heard;    /* clock_now of the last byte */
    uint64_t spoke_at;      /* when it was last sent what renews the lease of its session */
    uint64_t torn_at;       /* when it was last asked to end; 0: never */
    uint64_t answers_since; /* it was sent what it answers at once; 0: nothing */
    bool unconfirmed;       /* its session had ended, but nothing was heard of the guard's end */
    bool suspect;           /* silent for too long; given up if still silent after the socket was drained */
    const char *unresolved; /* why its name has no address so far; NULL: it has, or needs none */
    bool unresolved_told;   /* to the user */
    char waiting[512];      /* for a lease, where in the queue; empty: it does not */
    bool waited;            /* it did, and that is over */
    char node[40];          /* its name among managed nodes, when it was held; else empty */
    bool held;              /* since then, and neither ready nor closed */
    bool asked;             /* and may have its lease by now */
    uint32_t ranks;         /* as many will be here; 0: that is not known before the network */
    bool late;              /* it was what --start-timeout waited for */
    bool slow;              /* given up at the end of a good job: no fault of it */
    uint64_t lost_at;       /* when it closed though it may still have workers; 0: it was not lost */
    struct host_sending sending;
    uint64_t sending_since; /* the files */
    struct preload_place preload;
    uint64_t hello_sent;
    uint64_t spawn_sent; /* 0: it was not */
    uint64_t ping_sent;
    struct host_clock clock;
    unsigned clock_pings; /* that were sent to learn of its clock */
    uint32_t free_port;   /* there, for MASTER_PORT */
    uint32_t coordinator_port;
    uint32_t *worker_port; /* there, one for each rank, if the job's contracts need them */
    size_t worker_ports;
    Hvd__Welcome *told; /* its Welcome when it names limits or problems (limits_keep), else NULL */
    char *address;      /* where it can be reached, numeric; from Welcome or the transport */
};

void host_init(struct host_run *h, const struct host_common *common, const struct host *spec, uint32_t index);
void host_free(struct host_run *h);

enum host_state host_state(const struct host_run *h);
/* The phase or state it is in, for people: "authentication", "hello", "running". */
const char *host_phase(const struct host_run *h);

/* Keeps the phase in which the first thing went wrong. */
void host_note_phase(struct host_run *h);

void host_start(struct host_run *h);
/* To one that is held. */
void host_go(struct host_run *h);
/* From READY to RUNNING. */
void host_spawn(struct host_run *h, const Hvd__Spawn *spawn);
/* Ends it, whatever it does: a session is asked to end its workers, a connection under way is dropped. */
void host_teardown(struct host_run *h, Hvd__Teardown *teardown);
/* Gives it up with this error (unless it has one): the transport is closed at once. */
void host_give_up(struct host_run *h, const struct err *why);
/* A message to a session that has welcomed us; dropped otherwise. */
void host_send(struct host_run *h, const Hvd__Control *message);
/* The same, but it waits for host_flush, or for the next message: several then leave in one write. */
void host_queue(struct host_run *h, const Hvd__Control *message);
void host_flush(struct host_run *h);
int host_send_stdin(struct host_run *h, uint32_t rank, const void *bytes, size_t len);
/* Bytes of a file of Preload, to a host that is READY. */
void host_send_file(struct host_run *h, uint32_t index, const void *bytes, size_t len);

/* host_heartbeat.c: sends a ping; gives the host up when it was silent for the heartbeat time-out. */
#define HOST_BEATS 16 /* in a heartbeat time-out: that often it is to be called */
void host_heartbeat(struct host_run *h, uint64_t now);
/* It answers at once what it is sent now, and is not pinged until it does: pings might renew the lease of a
 * host that cannot answer. */
void host_expect(struct host_run *h);
/* Nothing was heard of it for so long, or since host_expect, that it may be cut off. */
bool host_is_silent(const struct host_run *h, uint64_t now);
/* When a session that nobody reaches any more has ended its workers by itself. */
uint64_t host_lease_end(const struct host_run *h);
/* The host answers with its time. */
void host_ping(struct host_run *h);
/* It has: what we asked at `asked`. */
void host_measure_clock(struct host_run *h, uint64_t theirs, uint64_t asked);
/* host_hello.c: fills it with what points into *h and what that points to. */
void host_hello(const struct host_run *h, Hvd__Hello *hello);
/* host_welcome.c: keeps what it says; -1 with *e when it is of another version, or cannot be true. */
int host_take_welcome(struct host_run *h, const Hvd__Welcome *w, struct err *e);
/* host_lease.c: takes what `hvdagent attach` says about a lease before there is a session. */
void host_hear_lease(void *ctx, const Hvd__Control *message);
/* host_exit.c: takes what came on the remote stderr; fills h->err with why its transport has closed. */
void host_hear(void *ctx, const uint8_t *bytes, size_t len);
#define HOST_INSTALL_HINT                                                                                    \
    "install hvdrun on that host, say where hvdagent is with --agent-path, or copy it with --send-agent"
void host_explain_end(struct host_run *h, const struct transport_end *end);
/* The remote command has ended by itself and said how: with it, the guard. 255 is what a carrying program
 * says of itself. */
bool host_end_is_known(const struct host_run *h, const struct transport_end *end);

#endif
