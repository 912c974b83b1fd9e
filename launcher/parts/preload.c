/* --preload: every host of the plan gets the files before its workers start. All hosts are sent to at
 * once, and each as fast as it takes the bytes. */
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "launcher/cli/programs.h"
#include "launcher/job/core.h"
#include "launcher/parts/parts.h"
#include "launcher/parts/preload_files.h"

#define QUEUE_MAX  (256u << 10) /* bytes of files that wait for a host's transport */
#define WINDOW_MAX (16u << 20)  /* a session grants no more than it has written, and its window */

struct preload_state {
    struct preload files;
    uint64_t began;
};

static struct preload_state *state_of(const struct job *j)
{
    return job_state(j, &part_preload);
}

static struct preload_place *place_of(const struct job *j, const struct host *h)
{
    return job_host_state(j, &part_preload, h);
}

const char *preload_local_path(const struct job *j, const char *command)
{
    const struct preload *p = &state_of(j)->files;
    uint32_t number = preload_of(p, command);
    return number ? p->file[number - 1].path : NULL;
}

/* ---- before the hosts ---------------------------------------------------------------------------------- */

/* A command that is a file of --preload is not looked for on the hosts. Hosts that get files need no
 * directory that they share. */
static void edit_preflight(const struct job *j, const struct preload *p)
{
    Hvd__Preflight *asked = j->common.preflight;
    if (p->count == 0)
        return;
    if (preload_of(p, asked->command[0]))
        asked->n_command = 0;
    asked->or_home = true;
    for (size_t i = 0; i < asked->n_program; i++) {
        asked->program[i]->preloaded = preload_of(p, asked->program[i]->command) > 0;
        asked->program[i]->or_home = true;
    }
}

static int open_files(struct job *j, struct err *e)
{
    struct preload_state *s = state_of(j);
    const struct programs *programs = &j->config->programs;
    if (preload_files_open(&s->files, &j->config->preload, e) < 0)
        return -1;
    for (size_t i = 0; i < programs->count; i++)
        if (preload_check_command(&s->files, programs->item[i].command[0], e) < 0)
            return -1;
    edit_preflight(j, &s->files);
    return 0;
}

/* ---- from the plan to the workers ---------------------------------------------------------------------- */

static void announce_files(struct job *j, Hvd__Preload *asked)
{
    CONTROL(m, PRELOAD, preload, asked);
    for (uint32_t i = 0; i < j->plan.host_count; i++) {
        struct host *h = job_host_of_plan(j, i);
        place_of(j, h)->started = true;
        host_send(h, &m);
    }
}

static bool send_files(struct job *j)
{
    struct preload_state *s = state_of(j);
    const struct preload *p = &s->files;
    struct err e = ERR_INIT;
    if (p->count == 0)
        return false;
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
    s->began = clock_now();
    if (item && list) {
        announce_files(j, &asked);
    } else {
        err_set(&e, ERR_MEMORY, "no memory for --preload");
        job_fault_err(j, &e);
    }
    free(item);
    free(list);
    return true;
}

static bool waits_for_host(const struct job *j, const struct host *h)
{
    return !place_of(j, h)->done;
}

/* Sends what the host takes: its credit, as long as its transport keeps up. */
static void pump_files(struct job *j, struct host *h)
{
    struct preload_state *s = state_of(j);
    struct preload_place *place = place_of(j, h);
    uint8_t bytes[FRAME_DATA_MAX];
    struct err e = ERR_INIT;
    uint32_t index;
    ptrdiff_t n = 0;
    while (place->started && host_state(h) == HOST_READY && channel_bulk_waiting(&h->channel) < QUEUE_MAX &&
           (n = preload_read(&s->files, place, &index, bytes, sizeof bytes, &e)) > 0)
        host_send_file(h, index, bytes, (size_t)n);
    if (n < 0)
        job_fault_err(j, &e);
}

static const char *on_credit(struct job *j, struct host *h, const Hvd__Control *m)
{
    struct preload_state *s = state_of(j);
    struct preload_place *place = place_of(j, h);
    uint32_t bytes = m->credit->bytes;
    if (m->credit->stream != STREAM_FILE)
        return job_not_mine;
    if (!place->started || place->done || place->granted + bytes > s->files.bytes + WINDOW_MAX)
        return "there is no file for it";
    place->granted += bytes;
    place->credit += bytes;
    if (bytes > 0)
        start_timeout_restart(j);
    pump_files(j, h);
    return NULL;
}

static void go_on(struct job *j, struct host *h)
{
    const struct preload_place *place = place_of(j, h);
    if (place->started && !place->done)
        pump_files(j, h);
}

static const char *on_preloaded(struct job *j, struct host *h, const Hvd__Control *m)
{
    struct preload_state *s = state_of(j);
    struct preload_place *place = place_of(j, h);
    (void)m;
    if (!place->started || !preload_is_sent(&s->files, place))
        return "it was not sent all files";
    place->done = true;
    for (uint32_t i = 0; i < j->plan.host_count; i++)
        if (!place_of(j, job_host_of_plan(j, i))->done)
            return NULL;
    log_info("%llu KiB of files were copied to %u hosts in %.0f ms",
             (unsigned long long)(s->files.bytes / 1024), j->plan.host_count,
             (double)(clock_now() - s->began) / NSEC_PER_MSEC);
    job_prepared(j);
    return NULL;
}

static int fill_spawn(struct job *j, Hvd__Spawn *m, struct err *e)
{
    const struct preload *p = &state_of(j)->files;
    (void)e;
    if (p->count == 0)
        return 0;
    start_timeout_restart(j);
    m->or_home = true;
    m->preloaded = preload_of(p, m->argv[0]);
    for (size_t i = 0; i < m->n_program; i++) {
        m->program[i]->or_home = true;
        m->program[i]->preloaded = preload_of(p, m->program[i]->argv[0]);
    }
    return 0;
}

static void free_files(struct job *j)
{
    preload_files_close(&state_of(j)->files);
}

static const struct job_message messages[] = {
    {HVD__CONTROL__BODY_PRELOADED, false, on_preloaded},
    {HVD__CONTROL__BODY_CREDIT, false, on_credit},
    {0, false, NULL},
};

const struct job_part part_preload = {
    .state_size = sizeof(struct preload_state),
    .host_state_size = sizeof(struct preload_place),
    .message = messages,
    .open = open_files,
    .prepare = send_files,
    .waits_for = waits_for_host,
    .spawn = fill_spawn,
    .writable = go_on,
    .free = free_files,
};
