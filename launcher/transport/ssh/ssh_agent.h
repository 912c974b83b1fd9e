/* A client of ssh-agent that never blocks: lists identities and has data signed, over its unix socket on the
 * loop. (libssh2's own waits in recv(), and an agent may ask its user first.) */
#pragma once

#include <stdbool.h>
#include <uv.h>

#include "common/base/buf.h"

#define SSH_AGENT_MESSAGE_MAX (256 * 1024)

struct ssh_agent {
    uv_poll_t poll;
    int fd; /* -1: not open */
    struct buf out, in;
    bool busy;                   /* a question is on its way */
    bool failed;                 /* the agent has gone or talks nonsense */
    void (*answered)(void *ctx); /* also when it failed */
    void *ctx;
};

/* -1 when there is nobody at `path`; nothing is open then. */
int ssh_agent_open(struct ssh_agent *a, uv_loop_t *loop, const char *path, void (*answered)(void *ctx),
                   void *ctx);
/* Closes the socket; `closed` comes from the loop, with `data` in the handle, when that may be freed. Only
 * for an open agent. */
void ssh_agent_close(struct ssh_agent *a, uv_close_cb closed, void *data);

void ssh_agent_ask_identities(struct ssh_agent *a);
void ssh_agent_ask_signature(struct ssh_agent *a, const uint8_t *blob, size_t blob_len, const uint8_t *data,
                             size_t len);

/* Calls `each` for every identity of an answer; false when the answer is not a list of identities. Pure. */
bool ssh_agent_identities(const uint8_t *answer, size_t len,
                          void (*each)(void *ctx, const uint8_t *blob, size_t blob_len,
                                       const uint8_t *comment, size_t comment_len),
                          void *ctx);
/* The signature without the name of its algorithm, as a slice of the answer; false when the agent refused.
 * Pure. */
bool ssh_agent_signature(const uint8_t *answer, size_t len, const uint8_t **signature, size_t *signature_len);

/* The answer without its length, once not busy; NULL when it failed. Valid until the next question. */
const uint8_t *ssh_agent_answer(const struct ssh_agent *a, size_t *len);
