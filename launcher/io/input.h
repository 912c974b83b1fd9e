/* hvdrun's stdin to one rank or to all: read only when every receiver has credit left, so a rank that does
 * not read stops the source and nothing piles up. The end of stdin is passed on; a rank that has ended is no
 * receiver any more. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "common/base/err.h"
#include "launcher/io/shared_poll.h"

struct input_events {
    /* len 0: the end of stdin. -1 when it cannot be queued. */
    int (*send)(void *ctx, uint32_t rank, const void *bytes, size_t len);
};

struct input {
    uv_loop_t *loop;
    const struct input_events *events;
    void *ctx;
    uint32_t first, count; /* the receivers: ranks first .. first + count - 1 */
    uint32_t *credit;      /* of each receiver */
    bool *gone;
    struct shared_poll poll;
    uv_idle_t idle; /* for a regular file, which cannot be polled */
    bool is_file, opened, ended;
};

/* True when stdin is worth forwarding: open and not /dev/null. */
bool input_is_useful(void);
int input_init(struct input *in, uv_loop_t *loop, uint32_t first, uint32_t count,
               const struct input_events *events, void *ctx, struct err *e);
/* A session takes `bytes` more for this rank. */
void input_credit(struct input *in, uint32_t rank, uint32_t bytes);
void input_rank_gone(struct input *in, uint32_t rank);
/* After SIGCONT: we may be in the terminal's foreground again. */
void input_resume(struct input *in);
/* Stops reading for good and closes its handles. Idempotent. */
void input_close(struct input *in);
