/* One host of the job: its transport, its control channel, its lifecycle.
 *
 *   QUEUED -> CONNECTING -> (SENDING) -> GREETING -> READY -> RUNNING -> ENDING -> LEAVING -> CLOSED
 *
 * CONNECTING covers the transport's phases; SENDING is --send-agent; GREETING is from our Hello to the
 * session's Welcome; READY waits for the others; RUNNING from Spawn; ENDING from Teardown to the session's
 * Ended; LEAVING until the transport has closed. Every failure ends in CLOSED with an error that names the
 * host and the phase. The table is in host.c. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "common/base/fsm.h"
#include "common/protocol/channel.h"
#include "common/protocol/legal.h"
#include "launcher/cli/config.h"
#include "launcher/host/agent_upload.h"
#include "launcher/host/host_clock.h"
#include "launcher/host/host_words.h"
#include "launcher/plan/hosts.h"
#include "launcher/transport/transport.h"

/* clang-format off */
/* A row: the state, its name for people. */
#define HOST_STATES(X)            \
    X(QUEUED,     "queued")       \
    X(CONNECTING, "connecting")   \
    X(SENDING,    "sending")      \
    X(GREETING,   "greeting")     \
    X(READY,      "ready")        \
    X(RUNNING,    "running")      \
    X(ENDING,     "ending")       \
    X(LEAVING,    "leaving")      \
    X(CLOSED,     "closed")
/* clang-format on */

#define AS_STATE(name, text) HOST_##name,
enum host_state { HOST_STATES(AS_STATE) };
#undef AS_STATE

struct host;

struct host_events {
    /* Welcome came and is right: the host can take Spawn. */
    void (*ready)(void *ctx, struct host *h, const Hvd__Welcome *welcome);
    /* Messages that are legal in the host's state (host_legal.c). Returns NULL, or why this one is not: half
     * a sentence. It is ignored then. */
    const char *(*message)(void *ctx, struct host *h, const Hvd__Control *message);
    void (*data)(void *ctx, struct host *h, const struct frame *f);
    /* Its transport has taken bytes that waited. */
    void (*writable)(void *ctx, struct host *h);
    /* Nothing of the job is left there but `ended->leftover`. */
    void (*ended)(void *ctx, struct host *h, const Hvd__Ended *ended);
    /* h->lease.waiting says where it stands in the queue of its managed agent; empty: the wait is over. */
    void (*waiting)(void *ctx, struct host *h);
    /* h->lease.node says which node it is: it asks its managed agent for a lease after host_go. */
    void (*held)(void *ctx, struct host *h);
    /* h->name says why: its name is looked up again and again. */
    void (*unresolved)(void *ctx, struct host *h);
    /* It is CLOSED. h->err is empty when it went as it should. The last callback. */
    void (*closed)(void *ctx, struct host *h);
};

/* The data that all hosts of a job share. */
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
    char *const *agent_arguments;  /* of hvdagent, ended by NULL */
    char *agent_command;           /* the shell command line that becomes a session elsewhere */
    const struct sent_agent *sent; /* for hosts without an agent; NULL: nothing is sent */
    char **interfaces;             /* of --network-interfaces */
    size_t interface_count;
    uint32_t host_count;
    bool hold;                 /* they ask for leases one after the other */
    char *timeline_mark;       /* for Teardown; NULL: the timeline stays where it is */
    Hvd__Preflight *preflight; /* questions that the sessions answer before the start */
};

#define JOB_KEY_SIZE 32

/* The processes of the agent of a host, and their ends. */
struct host_agent {
    bool managed;                    /* the host's daemon holds the session; our process only leads to it */
    bool died;                       /* host.err says which process of the agent died */
    uint32_t guard_pid, session_pid; /* 0: not known */
    bool unconfirmed;                /* the session has ended; the end of the guard was not confirmed */
};

/* Times of what was heard and sent, on the launcher's clock; host_heartbeat.c uses them. */
struct host_beat {
    uint64_t last_heard;    /* of the last byte */
    uint64_t hello_sent;    /* 0: not yet */
    uint64_t spoke_at;      /* of the last message that renews the lease of the session */
    uint64_t torn_at;       /* of the last Teardown; 0: never */
    uint64_t answers_since; /* of a message that the host answers at once; 0: none */
    uint64_t ping_sent;
    bool suspect; /* silent for too long; given up if still silent after the socket was drained */
    struct host_clock clock;
    unsigned clock_pings; /* pings that measured the host's clock */
};

/* A wait for a lease of the host's daemon (launcher/parts/lease_order.c). */
struct host_lease {
    char waiting[512]; /* the place in the daemon's queue; empty: the host does not wait */
    bool waited;       /* the wait is over */
    char node[40];     /* the host's name among managed nodes, once it was held; else empty */
    bool held;         /* it said its node, and is neither ready nor closed */
    bool asked;        /* it was told to ask for its lease */
    bool busy;         /* it was refused: other jobs have the slots */
};

struct host {
    const struct host_common *common;
    const struct host_spec *spec;
    char label[300];     /* its name, for people */
    uint32_t index;      /* in the host_list and as session id */
    uint32_t plan_index; /* in plan->host once planned */
    bool planned;
    struct fsm fsm;
    const struct transport_ops *ops;
    struct transport *transport;
    struct transport *replaced; /* a built-in SSH that gave way to the ssh program; freed at the end */
    struct transport_target target;
    enum transport_phase phase;
    struct {
        const char *why; /* it has no address yet; NULL: it has one, or needs none */
        bool unknown;    /* then: the resolver says that there is no such name */
    } name;
    struct channel channel;
    struct legal legal;      /* the messages that it may send */
    struct host_words words; /* how many more lines of it are shown */
    struct err err;          /* why it failed; the first cause */
    const char *failed_in;   /* the phase of the first cause */
    struct host_agent agent;
    char stderr_tail[512]; /* the last line of the remote stderr, for the error */
    size_t stderr_len;
    struct host_beat beat;
    struct host_lease lease;
    struct host_sending sending;
    uint32_t ranks;      /* ranks that will run here; 0: not known before the host is reached */
    uint64_t spawn_sent; /* when it was given workers; 0: never */
    bool late;           /* --start-timeout waited for this host */
    bool slow;           /* given up at the end of a good job, which is no fault */
    uint64_t lost_at;    /* when it closed although its workers may still run; 0: it was not lost */
    char *address;       /* numeric, from Welcome or the transport; NULL: not known */
};

void host_init(struct host *h, const struct host_common *common, const struct host_spec *spec,
               uint32_t index);
void host_free(struct host *h);

enum host_state host_state(const struct host *h);
/* The phase or state it is in, for people: "authentication", "hello", "running". */
const char *host_phase(const struct host *h);

/* Keeps the phase in which the first thing went wrong. */
void host_note_phase(struct host *h);

void host_start(struct host *h);
/* Tells a held host to ask for its lease. */
void host_go(struct host *h);
/* Gives the host its workers: from READY to RUNNING. */
void host_spawn(struct host *h, const Hvd__Spawn *spawn);
/* Ends the host in any state: a session is asked to end its workers, a connection under way is dropped. */
void host_teardown(struct host *h, Hvd__Teardown *teardown);
/* Closes the transport at once. The host keeps this error, unless it has an earlier one. */
void host_give_up(struct host *h, const struct err *why);
/* Sends a message, whatever the state of the host. */
void host_push(struct host *h, const Hvd__Control *message);
/* Sends a message to a session that has welcomed us; drops it otherwise. */
void host_send(struct host *h, const Hvd__Control *message);
/* Sends a message with host_flush, or with the next message: several messages then leave in one write. */
void host_queue(struct host *h, const Hvd__Control *message);
void host_flush(struct host *h);
int host_send_stdin(struct host *h, uint32_t rank, const void *bytes, size_t len);
/* Sends bytes of a file of Preload to a host that is READY. */
void host_send_file(struct host *h, uint32_t index, const void *bytes, size_t len);

/* host_heartbeat.c: sends a ping; gives the host up when it was silent for the heartbeat time-out. */
#define HOST_BEATS 16 /* calls of host_heartbeat in a heartbeat time-out */
void host_heartbeat(struct host *h, uint64_t now);
/* The host was sent a message that it answers at once. It gets no ping before the answer: pings might
 * renew the lease of a host that cannot answer. */
void host_expect(struct host *h);
/* True when the host may be cut off: it was silent for half the time-out, or since host_expect. */
bool host_is_silent(const struct host *h, uint64_t now);
/* The time by which a session that cannot be reached has ended its workers by itself. */
uint64_t host_lease_end(const struct host *h);
/* Takes the host's time from the answer to a ping that was sent at `asked`. */
void host_measure_clock(struct host *h, uint64_t theirs, uint64_t asked);
/* host_hello.c: fills *hello; its pointers lead into *h. */
void host_hello(const struct host *h, Hvd__Hello *hello);
/* host_welcome.c: keeps the content; -1 with *e when the version differs or a value is impossible. */
int host_take_welcome(struct host *h, const Hvd__Welcome *w, struct err *e);
/* host_lease.c: takes what `hvdagent attach` says about a lease before there is a session. */
void host_hear_lease(void *ctx, const Hvd__Control *message);
/* host_exit.c: takes bytes of the remote stderr. */
void host_hear(void *ctx, const uint8_t *bytes, size_t len);
#define HOST_INSTALL_HINT                                                                                    \
    "install hvdrun on that host, say where hvdagent is with --agent-path, or copy it with --send-agent"
/* Fills h->err with the reason why the transport has closed. */
void host_explain_end(struct host *h, const struct transport_end *end);
/* True when the remote command, and the guard with it, has ended by itself with a known status. 255 is the
 * status of an ssh program that failed itself. */
bool host_end_is_known(const struct host *h, const struct transport_end *end);
