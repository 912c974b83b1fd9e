/* A session as a launcher sees it, without one: speaks the control channel on standard input and output and
 * plays workers that end at once with status 0. `at` says what else it does at each stage. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/protocol/channel.h"

enum agent_stage {
    AGENT_ATTACHED, /* before the session's magic, as hvdagent attach; only fake_agent_attach may be used */
    AGENT_OPENED,   /* nothing was heard or said yet */
    AGENT_HELLO,    /* Hello has come */
    AGENT_WELCOMED, /* Welcome was sent */
    AGENT_FILES,    /* Preload has come */
    AGENT_SPAWN,    /* Spawn has come */
    AGENT_SPAWNED,  /* its workers run */
    AGENT_INSPECT,  /* somebody wants to know where they are; only when `lingers` */
    AGENT_EXITED,   /* they have ended */
    AGENT_TEARDOWN, /* Teardown has come */
    AGENT_ENDED,    /* and was answered */
    AGENT_STAGES
};

#define FAKE_AGENT_PID  4242u
#define FAKE_AGENT_PEAK 777u /* KiB of each worker */

struct fake_agent {
    void (*at)(struct fake_agent *a, enum agent_stage stage);
    void *ctx;
    bool lingers; /* its workers end with the job */
    struct channel channel;
    uint32_t rank[64], ranks;
    bool exited, over;
};

/* Until the launcher has gone, or says Bye; returns the exit status. */
int fake_agent_run(struct fake_agent *a);
/* Any message, of bytes as they are. */
void fake_agent_say(struct fake_agent *a, const void *message, size_t len);
/* As hvdagent attach; -1 when it is too long for that. */
int fake_agent_attach(struct fake_agent *a, const Hvd__Control *m);
void fake_agent_send(struct fake_agent *a, const Hvd__Control *m);
