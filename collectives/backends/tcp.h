/* The TCP backend: collectives over the engine's links. See tcp.c for its story.
 *
 * The engine owns the links and hands on what is the backend's: every bulk frame, and control frames whose
 * first byte is at least BACKEND_CONTROL_TYPE. It calls backend->ops->fail when a link is lost. */
#pragma once

#include <stdint.h>

#include "collectives/backends/backend.h"
#include "common/base/err.h"
#include "common/net/link_bulk.h"

/* First byte of a control frame: readiness and the engine's parts have the types below it, backends from it
 * on. */
#define BACKEND_CONTROL_TYPE 32

struct links;

/* The wire as a backend sees it: frames to the hosts of the job. The engine's links provide it; a test may
 * too. */
struct wire_ops {
    int (*send_control)(struct links *links, uint32_t host, const void *data, size_t size, struct err *e);
    int (*send_bulk)(struct links *links, uint32_t host, struct link_send *send, struct err *e);
};

/* Links themselves (common/net/links.h). */
extern const struct wire_ops links_wire;

struct backend_tcp_config {
    struct links *links;
    const struct wire_ops *wire; /* &links_wire */
    uint32_t self, hosts;
    uint64_t eager_bytes; /* up to this, data goes without asking; 0: the default. The same on every host */
};

struct backend *backend_tcp_new(const struct backend_tcp_config *config, struct err *e);
/* To be called from the links' events of the same names. -1 with *e: that peer is broken; fail the job. */
int backend_tcp_control(struct backend *backend, uint32_t host, const void *data, size_t size, struct err *e);
void *backend_tcp_bulk_place(struct backend *backend, uint32_t host, const struct link_bulk *head);
int backend_tcp_bulk_arrived(struct backend *backend, uint32_t host, const struct link_bulk *head,
                             struct err *e);
