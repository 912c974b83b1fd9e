/* The wire as a backend sees it: frames to and from the hosts of the job. The engine's links provide it; a
 * test may too. */
#ifndef HVD_COLLECTIVES_BACKENDS_WIRE_H
#define HVD_COLLECTIVES_BACKENDS_WIRE_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/net/link_bulk.h"

/* First byte of a control frame: readiness has the types below it, backends from it on. */
#define BACKEND_CONTROL_TYPE 32

struct links;

struct wire_ops {
    int (*send_control)(struct links *links, uint32_t host, const void *data, size_t size, struct err *e);
    int (*send_bulk)(struct links *links, uint32_t host, struct link_send *send, struct err *e);
};

/* Links themselves (common/net/links.h). */
extern const struct wire_ops links_wire;

#endif
