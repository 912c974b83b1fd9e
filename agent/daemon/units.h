/* systemd on the daemon's loop: asks it for units and hears of their ends (common/modules/systemd.h).
 *
 * Nothing here waits, but for units_list, which is for the start. When the connection ends, so does the
 * daemon (lost): all that it knows is on disk, and systemd starts it again. */
#pragma once

#include <uv.h>

#include "common/modules/systemd.h"

struct units {
    const struct systemd_ops *ops;
    struct systemd *systemd;
    uv_poll_t poll;
    uv_timer_t timer;
    void (*lost)(void *ctx, const struct err *e);
    void *ctx;
};

int units_open(struct units *u, uv_loop_t *loop, const struct systemd_events *events,
               void (*lost)(void *ctx, const struct err *e), void *ctx, struct err *e);
/* The handles' close callbacks come from the loop. */
void units_close(struct units *u);
int units_start(struct units *u, const struct systemd_service *service, struct err *e);
int units_list(struct units *u, const char *pattern, void (*see)(void *ctx, const char *unit), struct err *e);
