/* The process hvd-pmix: the PMIx server of one host. Calls go down this list:
 *
 *   main.c             the process, and the messages of its session
 *   pmix_server.c      the start of the library; requests and news of other hosts go to the files below
 *   pmix_upcalls.c     the library's table of calls to its host
 *   pmix_collective.c  operations of several ranks: fence, connect, disconnect, groups
 *   pmix_modex.c       the puts of a rank of another host (direct modex)
 *   pmix_publish.c     publish, lookup, unpublish; pmix_store.c keeps the values
 *   pmix_events.c      events for the ranks of all hosts; the death of a rank is one
 *   pmix_answers.c     queries and job control
 *   pmix_log.c         text of ranks' libraries for the user
 *   pmix_core.c        clocks, arguments, questions to servers
 *   pmix_session.c     operations over the tree of hosts (tree.h), which the session carries out
 *
 * The library has one thread and calls its host on that thread; those calls only copy. Everything else
 * happens on the loop, which calls the library's call-backs and functions: none of them waits. */
#pragma once

#include <pmix.h>
#include <pmix_server.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "agent/rendezvous/pmix_client/pmix.h"
#include "agent/rendezvous/pmix_client/pmix_relay.h"
#include "agent/rendezvous/pmix_server/upcall_queue.h"

/* A request of another host, to be answered with tree_answer. */
struct pmix_asked {
    uint32_t host;
    uint64_t ticket;
};

struct pmix_server {
    struct rendezvous *r;
    /* Serves a request of another host, or of this one (pmix_ask). */
    void (*serve)(struct pmix_asked asked, const uint8_t *data, size_t len);
    struct upcall_queue upcalls;
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

/* The library is one a process, and so is its server. The library's thread finds the server here. */
extern struct pmix_server pmix_server;

/* The first byte of a request or a broadcast of another host. */
enum pmix_message {
    PMIX_MESSAGE_MODEX,
    PMIX_MESSAGE_JOINED,
    PMIX_MESSAGE_PUBLISH,
    PMIX_MESSAGE_LOOKUP,
    PMIX_MESSAGE_UNPUBLISH,
    PMIX_MESSAGE_EVENT,
    PMIX_MESSAGE_SIGNAL
};

/* ---- pmix_core.c --------------------------------------------------------------------------------------- */
/* A clock for one wait: calls `run` once after `ms`, unless it is stopped before. NULL when `ms` is 0. */
struct pmix_clock;
struct pmix_clock *pmix_clock_start(uint64_t ms, void (*run)(void *ctx), void *ctx);
void pmix_clock_stop(struct pmix_clock *clock); /* may be NULL */
/* The seconds of PMIX_TIMEOUT in milliseconds, 0 when there is none. */
uint64_t pmix_timeout_of(const pmix_info_t *info, size_t count);
bool pmix_is_ours(const char *space);
/* Asks the server of a host, which may be this one. `done` as of tree_request. */
void pmix_ask(uint32_t host, const uint8_t *data, size_t len, tree_done *done, void *ctx);
void pmix_answer(const struct pmix_asked *asked, const struct err *why, const void *data, size_t len);

/* ---- pmix_session.c ------------------------------------------------------------------------------------ */
/* As of tree.h, without a service: all operations here are those of PMIx. */
void pmix_tree_open(struct pmix_relay *session);
uint64_t pmix_tree_gather(const void *id, size_t id_len, const uint32_t *host, size_t hosts, const void *blob,
                          size_t len, tree_done *done, void *ctx);
void pmix_tree_cancel(uint64_t handle, const struct err *why);
void pmix_tree_forget(const void *id, size_t id_len);
uint64_t pmix_tree_request(uint32_t host, const void *data, size_t len, tree_done *done, void *ctx);
void pmix_tree_answer(uint32_t host, uint64_t ticket, const struct err *why, const void *data, size_t len);
void pmix_tree_broadcast(const void *data, size_t len);
/* The end of an operation, as the session tells it. */
void pmix_session_result(const Hvd__Pmix *m);

/* ---- pmix_server.c ------------------------------------------------------------------------------------- */
struct pmix_listening {
    uint16_t port;
    char **environment; /* for the library's clients, NULL at the end */
};

/* `before_workers`: the environment reaches the workers. -1 with *e. */
int pmix_server_start(struct rendezvous *r, bool before_workers, struct pmix_listening *out, struct err *e);
/* r->end[rank] describes the end. */
void pmix_server_rank_ended(uint32_t rank);
/* A broadcast of another host. */
void pmix_server_told(const uint8_t *data, size_t len);
/* A request of another host. */
void pmix_server_asked(struct pmix_asked asked, const uint8_t *data, size_t len);

/* ---- pmix_upcalls.c ------------------------------------------------------------------------------------ */
extern pmix_server_module_t pmix_upcalls;

/* ---- pmix_topology.c ----------------------------------------------------------------------------------- */
/* Keeps hwloc from loading plugins, which ask displays and drivers and cost more than all the rest. Sets the
 * environment, so before there are threads. `empty`: an empty directory. */
void pmix_topology_without_plugins(const char *empty);
/* Finds the processors, caches and devices of this machine, for the library and its clients. Any thread.
 * t->topology is NULL when it is not known, as always when this was built without hwloc. */
void pmix_topology_find(pmix_topology_t *t);
/* The objects of the machine that these processors ("0-3") are in, as clients compare them; to be freed.
 * NULL: the topology is not known. After PMIx_server_init. */
char *pmix_topology_locality(const char *cpus);

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
