/* The socket to the session. core.c writes to it, session.c reads from it. */
#ifndef HVD_COLLECTIVES_ENGINE_SESSION_H
#define HVD_COLLECTIVES_ENGINE_SESSION_H

#include "collectives/engine/core.h"
#include "common/base/buf.h"
#include "common/protocol/frame.h"

struct session_socket {
    struct watch watch;
    struct buf in, out;
    uint32_t in_sequence, out_sequence;
    int passed_fd; /* came beside a frame; -1: none */
};

void session_ready(struct engine *engine, struct watch *watch, uint32_t events);

#endif
