/* On a terminal, one line that says which hosts are still awaited and in which phase; nothing elsewhere. */
#include <stdio.h>
#include <unistd.h>

#include "common/base/log.h"
#include "launcher/job/core.h"
#include "launcher/parts/parts.h"

#define FIRST_MS 500
#define EVERY_MS 250
#define NAMED    3

struct progress_state {
    bool active, shown;
};

static void show_line(struct job *j)
{
    struct progress_state *s = job_state(j, &part_progress);
    char line[256];
    uint32_t ready = 0, named = 0;
    int used = 0;
    for (uint32_t i = 0; i < j->host_count; i++)
        ready += host_state(&j->host[i]) >= HOST_READY;
    used = snprintf(line, sizeof line, "hvdrun: %u of %u hosts ready; waiting for", ready, j->host_count);
    for (uint32_t i = 0; i < j->host_count && named < NAMED; i++) {
        const struct host *h = &j->host[i];
        if (host_state(h) < HOST_CONNECTING || host_state(h) > HOST_GREETING)
            continue;
        used += snprintf(line + used, sizeof line - (size_t)used, "%s %.24s (%s)", named ? "," : "", h->label,
                         host_phase(h));
        named++;
    }
    if (j->host_count - ready > named)
        snprintf(line + used, sizeof line - (size_t)used, ", ...");
    log_say("\r\033[K%.160s", line);
    s->shown = true;
    job_timer_start(j, JOB_TIMER_PROGRESS, EVERY_MS, show_line);
}

static void start_progress(struct job *j)
{
    struct progress_state *s = job_state(j, &part_progress);
    s->active = isatty(STDERR_FILENO);
    if (s->active)
        job_timer_start(j, JOB_TIMER_PROGRESS, FIRST_MS, show_line);
}

/* Takes the line away. */
static void stop_progress(struct job *j)
{
    struct progress_state *s = job_state(j, &part_progress);
    if (!s->active)
        return;
    s->active = false;
    job_timer_stop(j, JOB_TIMER_PROGRESS);
    if (s->shown)
        log_say("\r\033[K");
}

static int on_placed(struct job *j, struct err *e)
{
    (void)e;
    stop_progress(j);
    return 0;
}

const struct job_part part_progress = {
    .state_size = sizeof(struct progress_state),
    .start = start_progress,
    .placed = on_placed,
    .ending = stop_progress,
};
