/* The socket to the session. core.c writes to it, session.c reads from it. */
#pragma once

#include "collectives/engine/core.h"
#include "common/base/buf.h"
#include "common/protocol/frame.h"

struct session_socket {
    struct watch watch;
    struct buf in, out;
    uint32_t in_sequence, out_sequence;
    int passed[2]; /* came beside the first frame: the worker socket, the flight recorder; -1: none */
};

/* Takes the session's configuration, once, with the socket on which the ranks connect (the engine closes it).
 * -1 with *e: the configuration is wrong, or a part does not start. */
int engine_configure(struct engine *engine, const Hvd__EngineConfig *config, int listener, struct err *e);
void session_ready(struct engine *engine, struct watch *watch, uint32_t events);
