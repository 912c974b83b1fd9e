/* The wire as a backend sees it: frames to and from the hosts of the job. engine/links provides it; a test
 * may too. */
#ifndef HVD_BACKENDS_WIRE_H
#define HVD_BACKENDS_WIRE_H

#include <stddef.h>
#include <stdint.h>

#include "common/err.h"

#define LINKS_CONTROL_MAX (64u << 10) /* bytes of one control frame */
#define LINKS_BULK_MAX                                                                                       \
    (1u << 20) /* bytes of one bulk frame: what a control frame may have to wait behind                      \
                */

/* First byte of a control frame: readiness has the types below it, backends from it on. */
#define BACKEND_CONTROL_TYPE 32

/* What a bulk frame is, in the words of the backend that sends it; opaque to the links. */
struct link_bulk {
    uint64_t sequence; /* operation: its number on the execution list */
    uint64_t offset;   /* bytes */
    uint32_t length;   /* at most LINKS_BULK_MAX */
    uint16_t channel;  /* phase of the operation */
};

/* A bulk frame on its way. The owner provides it; it and the data stay valid and unchanged until done(). */
struct link_send {
    struct link_bulk head;
    const void *data;
    /* status 0: the kernel has taken all of it; -1: the link is lost. */
    void (*done)(struct link_send *send, int status);
    void *ctx;
    struct link_send *next; /* the links' own */
};

struct links;

struct wire_ops {
    int (*send_control)(struct links *links, uint32_t host, const void *data, size_t size, struct err *e);
    int (*send_bulk)(struct links *links, uint32_t host, struct link_send *send, struct err *e);
};

#endif
