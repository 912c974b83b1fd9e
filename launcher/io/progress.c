#include "launcher/io/progress.h"

#include <stdio.h>
#include <unistd.h>

#include "common/base/log.h"

#define FIRST_MS 500
#define EVERY_MS 250
#define NAMED    3

static void show(uv_timer_t *timer)
{
    struct progress *p = timer->data;
    char line[256];
    uint32_t ready = 0, named = 0;
    int used = 0;
    for (uint32_t i = 0; i < p->count; i++)
        ready += host_state(&p->host[i]) >= HOST_READY;
    used = snprintf(line, sizeof line, "hvdrun: %u of %u hosts ready; waiting for", ready, p->count);
    for (uint32_t i = 0; i < p->count && named < NAMED; i++) {
        const struct host *h = &p->host[i];
        if (host_state(h) < HOST_CONNECTING || host_state(h) > HOST_GREETING)
            continue;
        used += snprintf(line + used, sizeof line - (size_t)used, "%s %.24s (%s)", named ? "," : "", h->label,
                         host_phase(h));
        named++;
    }
    if (p->count - ready > named)
        snprintf(line + used, sizeof line - (size_t)used, ", ...");
    log_say("\r\033[K%.160s", line);
    p->shown = true;
}

void progress_start(struct progress *p, uv_loop_t *loop, const struct host *host, uint32_t count)
{
    if (!isatty(STDERR_FILENO))
        return;
    p->host = host;
    p->count = count;
    p->active = true;
    uv_timer_init(loop, &p->timer);
    p->timer.data = p;
    uv_timer_start(&p->timer, show, FIRST_MS, EVERY_MS);
    uv_unref((uv_handle_t *)&p->timer);
}

void progress_stop(struct progress *p)
{
    if (!p->active)
        return;
    p->active = false;
    uv_close((uv_handle_t *)&p->timer, NULL);
    if (p->shown)
        log_say("\r\033[K");
}
