/* The PMIx server of one host, as its own files see it: the process hvd-pmix.
 *
 *   main.c             the process; what its session says
 *   pmix_session.c     tree.h, for this process: its session does it
 *   pmix_server.c      the start of the library, registration of the job
 *   pmix_upcalls.c     the library's calls to us: copied on the library's thread, handed to the loop
 *   pmix_collective.c  operations of several ranks: fence, connect, disconnect, groups
 *   pmix_joined.c      how often we have joined each of them
 *   pmix_modex.c       what a rank of another host has put (direct modex)
 *   pmix_publish.c     publish, lookup, unpublish; what is published lives in pmix_store.c
 *   pmix_events.c      events, to the ranks of all hosts; the death of a rank is one
 *   pmix_answers.c     queries and job control
 *   pmix_log.c         what ranks' libraries say to the user
 *
 * The library has one thread and calls us on it; nothing is done there but copying. Everything else happens
 * on the loop, which calls the library's call-backs and functions: none of them waits. */
#ifndef HVD_AGENT_RENDEZVOUS_PMIX_SERVER_PMIX_SERVER_H
#define HVD_AGENT_RENDEZVOUS_PMIX_SERVER_PMIX_SERVER_H

#include <pmix.h>
#include <pmix_server.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "agent/rendezvous/pmix_client/pmix.h"
#include "agent/rendezvous/pmix_client/pmix_relay.h"
#include "agent/rendezvous/pmix_server/pmix_bridge.h"
#include "agent/rendezvous/pmix_server/pmix_topology.h"

struct pmix_server {
    struct rendezvous *r;
    struct bridge bridge;
    pmix_nspace_t space;
    pmix_topology_t topology;
    struct collective *collective;
    struct joined *joined;
    struct modex *modex;
    struct modex_answer *modex_answer;
    struct published *published;
    struct lookup *lookup;
    struct own_question *own_question;
    uint64_t tickets;
    bool spawn_was_refused;
};

/* The library is one a process, and so is its server; the library's thread finds it here. */
extern struct pmix_server pmix_server;

/* What a request or a broadcast of another host is about: its first byte. */
enum pmix_message {
    PMIX_MESSAGE_MODEX,
    PMIX_MESSAGE_JOINED,
    PMIX_MESSAGE_PUBLISH,
    PMIX_MESSAGE_LOOKUP,
    PMIX_MESSAGE_UNPUBLISH,
    PMIX_MESSAGE_EVENT,
    PMIX_MESSAGE_SIGNAL
};

/* A request of another host, to be answered with exchange_answer. */
struct pmix_asked {
    uint32_t host;
    uint64_t ticket;
};

/* A wait's own clock: calls `run` once after `ms`, unless it is stopped before. NULL when `ms` is 0. */
struct pmix_clock;
struct pmix_clock *pmix_clock_start(uint64_t ms, void (*run)(void *ctx), void *ctx);
void pmix_clock_stop(struct pmix_clock *clock); /* may be NULL */

/* ---- pmix_upcalls.c ------------------------------------------------------------------------------------ */
extern pmix_server_module_t pmix_upcalls;
/* The seconds of PMIX_TIMEOUT in milliseconds, 0 when there is none. */
uint64_t pmix_timeout_of(const pmix_info_t *info, size_t count);
bool pmix_is_ours(const char *space);
/* Asks the server of a host, which may be this one. `done` as of exchange_request. */
void pmix_ask(uint32_t host, const uint8_t *data, size_t len, exchange_done *done, void *ctx);
void pmix_answer(const struct pmix_asked *asked, const struct err *why, const void *data, size_t len);

/* ---- pmix_session.c ------------------------------------------------------------------------------------ */
struct exchange *pmix_session_exchange(struct pmix_relay *session);
/* What the session said of an operation. */
void pmix_session_result(const Hvd__Pmix *m);

/* ---- pmix_server.c ------------------------------------------------------------------------------------- */
struct pmix_listening {
    uint16_t port;
    char **environment; /* what the library wants its clients to have, NULL at the end */
};

/* `before_workers`: they will be told. -1 with *e. */
int pmix_server_start(struct rendezvous *r, bool before_workers, struct pmix_listening *out, struct err *e);
/* r->end[rank] says how. */
void pmix_server_rank_ended(uint32_t rank);
/* By another host, as all others. */
void pmix_server_told(const uint8_t *data, size_t len);
void pmix_asked(struct pmix_asked asked, const uint8_t *data, size_t len);

/* ---- pmix_collective.c --------------------------------------------------------------------------------- */
pmix_status_t pmix_fence(const pmix_proc_t procs[], size_t count, const pmix_info_t info[], size_t infos,
                         char *data, size_t len, pmix_modex_cbfunc_t done, void *ctx);
pmix_status_t pmix_connect(const pmix_proc_t procs[], size_t count, const pmix_info_t info[], size_t infos,
                           pmix_op_cbfunc_t done, void *ctx);
pmix_status_t pmix_disconnect(const pmix_proc_t procs[], size_t count, const pmix_info_t info[], size_t infos,
                              pmix_op_cbfunc_t done, void *ctx);
pmix_status_t pmix_group(pmix_group_operation_t operation, char name[], const pmix_proc_t procs[],
                         size_t count, const pmix_info_t info[], size_t infos, pmix_info_cbfunc_t done,
                         void *ctx);
void pmix_collective_rank_ended(uint32_t rank);
void pmix_collective_asked(struct pmix_asked asked, const uint8_t *data, size_t len);

/* ---- pmix_joined.c ------------------------------------------------------------------------------------- */
struct joined { /* how many operations of an id we have joined; how many we have said we never will */
    struct joined *next;
    uint32_t count, refused;
    char id[];
};

/* Made when there is none; NULL without memory. */
struct joined *pmix_joined_of(const char *id);
/* On all hosts alike; the exchange forgets it too. */
void pmix_joined_forget(const char *id);

/* ---- pmix_modex.c -------------------------------------------------------------------------------------- */
pmix_status_t pmix_modex(const pmix_proc_t *proc, const pmix_info_t info[], size_t infos,
                         pmix_modex_cbfunc_t done, void *ctx);
void pmix_modex_rank_ended(uint32_t rank);
void pmix_modex_asked(struct pmix_asked asked, const uint8_t *data, size_t len);

/* ---- pmix_publish.c, pmix_store.c ---------------------------------------------------------------------- */
pmix_status_t pmix_publish(const pmix_proc_t *proc, const pmix_info_t info[], size_t infos,
                           pmix_op_cbfunc_t done, void *ctx);
pmix_status_t pmix_lookup(const pmix_proc_t *proc, char **keys, const pmix_info_t info[], size_t infos,
                          pmix_lookup_cbfunc_t done, void *ctx);
pmix_status_t pmix_unpublish(const pmix_proc_t *proc, char **keys, const pmix_info_t info[], size_t infos,
                             pmix_op_cbfunc_t done, void *ctx);
void pmix_store_asked(struct pmix_asked asked, uint8_t what, const uint8_t *data, size_t len);
void pmix_store_rank_ended(uint32_t rank);

/* ---- pmix_events.c ------------------------------------------------------------------------------------- */
pmix_status_t pmix_register_events(pmix_status_t *codes, size_t count, const pmix_info_t info[], size_t infos,
                                   pmix_op_cbfunc_t done, void *ctx);
pmix_status_t pmix_deregister_events(pmix_status_t *codes, size_t count, pmix_op_cbfunc_t done, void *ctx);
pmix_status_t pmix_notify(pmix_status_t code, const pmix_proc_t *source, pmix_data_range_t range,
                          pmix_info_t info[], size_t infos, pmix_op_cbfunc_t done, void *ctx);
void pmix_event_told(const uint8_t *data, size_t len);
void pmix_events_rank_ended(uint32_t rank);

/* ---- pmix_answers.c ------------------------------------------------------------------------------------ */
pmix_status_t pmix_query(pmix_proc_t *asker, pmix_query_t *queries, size_t count, pmix_info_cbfunc_t done,
                         void *ctx);
pmix_status_t pmix_job_control(const pmix_proc_t *asker, const pmix_proc_t targets[], size_t count,
                               const pmix_info_t directives[], size_t infos, pmix_info_cbfunc_t done,
                               void *ctx);
void pmix_signal_told(const uint8_t *data, size_t len);
pmix_status_t pmix_spawn(const pmix_proc_t *asker, const pmix_info_t info[], size_t infos,
                         const pmix_app_t apps[], size_t count, pmix_spawn_cbfunc_t done, void *ctx);

/* ---- pmix_log.c ---------------------------------------------------------------------------------------- */
void pmix_log(const pmix_proc_t *proc, const pmix_info_t data[], size_t count, const pmix_info_t directives[],
              size_t directive_count, pmix_op_cbfunc_t done, void *ctx);

#endif
