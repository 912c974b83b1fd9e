/* The session's side of the PMIx server of its host: a process and a socket, as engine_host.h is for the
 * collectives engine.
 *
 * The PMIx library believes much of what its clients send: one that sends garbage may crash it. So it lives
 * in a process of its own, hvd-pmix, which supervises nothing. The session passes on between it and the rest
 * of the job: operations over the tree of hosts, ranks that have ended, its notices. When it dies unasked the
 * job ends with one line that says how.
 *
 *   none -> starting (the process runs, its library does not yet) -> ready -> ended
 *
 * `ended`: it was told to end (its socket closed), or it failed: it died, broke the protocol, or did not send
 * its Ping for too long and was killed. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "agent/session/child.h"
#include "agent/rendezvous/pmix_client/pmix.h"
#include "agent/rendezvous/pmix_client/pmix_relay.h"
#include "agent/rendezvous/rendezvous.h"
#include "common/protocol/legal.h"

struct pmix_host_events {
    /* `why` NULL: it listens on loopback at `port`, and `environment` (`count` of NAME=value) is what the
     * library wants its clients to have. Else it will never be. Once, unless it fails before. */
    void (*started)(void *ctx, const struct err *why, uint16_t port, char *const *environment, size_t count);
    /* It has failed, as the sentence says. Once. */
    void (*failed)(void *ctx, const char *text);
};

enum pmix_host_state { PMIX_HOST_NONE, PMIX_HOST_STARTING, PMIX_HOST_READY, PMIX_HOST_ENDED };

struct pmix_host {
    struct rendezvous *r;
    const struct pmix_host_events *events;
    void *ctx;
    enum pmix_host_state state;
    struct pmix_relay relay;
    struct child child;
    struct legal legal;           /* of what it sends */
    struct pmix_operation *first; /* gathers and questions of the server that have not ended */
};

/* All zeros: nobody has needed it. -1 with *e: there is none. */
int pmix_host_start(struct pmix_host *h, struct rendezvous *r, bool before_workers,
                    const struct pmix_host_events *events, void *ctx, struct err *e);
/* Until it has started, or failed to. -1 with *e in the second case. */
int pmix_host_await(struct pmix_host *h, struct err *e);
void pmix_host_rank_ended(struct pmix_host *h, uint32_t rank, const char *how);
/* Of another host; answered here when it has ended. */
void pmix_host_request(struct pmix_host *h, uint32_t from, uint64_t ticket, const uint8_t *data, size_t len);
void pmix_host_broadcast(struct pmix_host *h, uint32_t from, const uint8_t *data, size_t len);
/* Handles whatever it has sent up to now. */
void pmix_host_drain(struct pmix_host *h);
/* Tells it to end; after a short time it is killed. */
void pmix_host_end(struct pmix_host *h);
/* It has failed, or closed its socket without being asked, so that it is about to be reaped. */
bool pmix_host_is_failing(const struct pmix_host *h);
/* True when `pid` was it. */
bool pmix_host_reaped(struct pmix_host *h, pid_t pid, uint32_t status, uint32_t signal);
/* To be called when the tree is gone. */
void pmix_host_close(struct pmix_host *h);
