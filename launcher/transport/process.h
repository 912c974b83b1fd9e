/* A transport over a child process of ours: its stdin and stdout are one end of a socketpair, its stderr a
 * pipe. local.c and exec.c share this file; they differ in the program that is executed and in its end. */
#pragma once

#include <stdbool.h>

#include "launcher/transport/transport.h"

struct process_spec {
    char *const *argv;        /* argv[0] is searched on PATH; only read during process_start */
    const char *peer_address; /* a string that lives for ever, or NULL */
    unsigned term_after_ms; /* SIGTERM so long after we closed the stream; the child had time to end on EOF */
    unsigned exit_after_ms; /* the same after the session has closed it */
    bool lingers; /* the child's own child may outlive it and still speak: the stream's end counts, not the
                     child's */
    bool carrier; /* the child only carries the stream: 255 is its own failure, as ssh has it */
};

struct transport *process_start(uv_loop_t *loop, const struct process_spec *spec,
                                const struct transport_events *events, void *ctx, struct err *e);
size_t process_write(struct transport *t, const void *bytes, size_t len);
void process_close(struct transport *t);
const char *process_peer_address(struct transport *t);
void process_destroy(struct transport *t);
