#include "launcher/parts/preload_transfer.h"

#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/log.h"

#define QUEUE_MAX  (256u << 10) /* bytes of files that wait for a host's transport */
#define WINDOW_MAX (16u << 20)  /* a session grants no more than it has written, and its window */

static void announce(struct job *j, Hvd__Preload *asked)
{
    CONTROL(m, PRELOAD, preload, asked);
    for (uint32_t i = 0; i < j->plan.host_count; i++) {
        struct host *h = job_host_of_plan(j, i);
        h->preload.started = true;
        host_send(h, &m);
    }
}

void job_preload_start(struct job *j)
{
    const struct preload *p = &j->preload;
    struct err e = ERR_INIT;
    if (p->count == 0) {
        fsm_post(&j->fsm, JOB_EV_PRELOADED);
        return;
    }
    Hvd__PreloadFile *item = calloc(p->count, sizeof *item), **list = calloc(p->count, sizeof *list);
    Hvd__Preload asked = HVD__PRELOAD__INIT;
    for (size_t i = 0; item && list && i < p->count; i++) {
        hvd__preload_file__init(list[i] = &item[i]);
        item[i].name = (char *)(uintptr_t)p->file[i].name;
        item[i].size = (uint64_t)p->file[i].st.st_size;
        item[i].executable = p->file[i].st.st_mode & 0111;
        item[i].digest.data = p->file[i].digest;
        item[i].digest.len = sizeof p->file[i].digest;
    }
    asked.file = list;
    asked.n_file = p->count;
    j->phases.preloading = clock_now();
    if (item && list) {
        announce(j, &asked);
    } else {
        err_set(&e, ERR_MEMORY, "no memory for --preload");
        job_fault_err(j, &e);
    }
    free(item);
    free(list);
}

/* Sends what it takes: its credit, as long as its transport keeps up. */
static void pump(struct job *j, struct host *h)
{
    uint8_t bytes[FRAME_DATA_MAX];
    struct err e = ERR_INIT;
    uint32_t index;
    ptrdiff_t n = 0;
    while (h->preload.started && host_state(h) == HOST_READY &&
           channel_bulk_waiting(&h->channel) < QUEUE_MAX &&
           (n = preload_read(&j->preload, &h->preload, &index, bytes, sizeof bytes, &e)) > 0)
        host_send_file(h, index, bytes, (size_t)n);
    if (n < 0)
        job_fault_err(j, &e);
}

const char *job_preload_credit(struct job *j, struct host *h, uint32_t bytes)
{
    struct preload_place *place = &h->preload;
    if (!place->started || place->done || place->granted + bytes > j->preload.bytes + WINDOW_MAX)
        return "there is no file for it";
    place->granted += bytes;
    place->credit += bytes;
    if (bytes > 0)
        job_preload_moved(j);
    pump(j, h);
    return NULL;
}

void job_preload_go_on(struct job *j, struct host *h)
{
    if (h->preload.started && !h->preload.done)
        pump(j, h);
}

const char *job_preload_done(struct job *j, struct host *h)
{
    if (!h->preload.started || !preload_is_sent(&j->preload, &h->preload))
        return "it was not sent all files";
    h->preload.done = true;
    for (uint32_t i = 0; i < j->plan.host_count; i++)
        if (!job_host_of_plan(j, i)->preload.done)
            return NULL;
    log_info("%llu KiB of files were copied to %u hosts in %.0f ms",
             (unsigned long long)(j->preload.bytes / 1024), j->plan.host_count,
             (double)(clock_now() - j->phases.preloading) / NSEC_PER_MSEC);
    fsm_post(&j->fsm, JOB_EV_PRELOADED);
    return NULL;
}
