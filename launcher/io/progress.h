/* On a terminal, one line that says which hosts are still awaited and in which phase; nothing elsewhere. */
#ifndef HVD_LAUNCHER_IO_PROGRESS_H
#define HVD_LAUNCHER_IO_PROGRESS_H

#include <stdbool.h>
#include <uv.h>

#include "launcher/host/host.h"

struct progress {
    uv_timer_t timer;
    const struct host *host;
    uint32_t count;
    bool active, shown;
};

/* Shows the line from half a second after now, until progress_stop. */
void progress_start(struct progress *p, uv_loop_t *loop, const struct host *host, uint32_t count);
/* Takes the line away. Idempotent. */
void progress_stop(struct progress *p);

#endif
