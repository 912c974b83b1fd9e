/* --preload: every host of the plan gets the files before its workers start. All hosts are sent to at
 * once, and each as fast as it takes the bytes. */
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/err.h"
#include "common/base/log.h"
#include "common/net/auth.h"
#include "common/options/options.h"
#include "common/protocol/control.pb-c.h"
#include "launcher/cli/programs.h"
#include "launcher/job/core.h"
#include "launcher/parts/parts.h"

#define QUEUE_MAX  (256u << 10) /* bytes of files that wait for a host's transport */
#define WINDOW_MAX (16u << 20)  /* a session grants no more than it has written, and its window */

/* ---- the files ----------------------------------------------------------------------------------------- */

/* The files are opened and hashed before a host is reached. They are read again for each
 * host, at its own pace; nothing of them stays in memory. */

struct preload_file {
    const char *path; /* as it was given */
    const char *name; /* there */
    int fd;
    struct stat st; /* when it was hashed */
    uint8_t digest[AUTH_DIGEST_SIZE];
};

struct preload {
    struct preload_file *file;
    size_t count;
    uint64_t bytes; /* of all */
};

/* The progress of one host. */
struct preload_place {
    size_t file;
    uint64_t offset;
    uint64_t credit;  /* bytes that it takes now */
    uint64_t granted; /* bytes, so far */
    bool started, done;
};

#define FILES_MAX 1024 /* agent/session/preload_files.h */
#define READ_SIZE (256u << 10)

struct preload_state {
    struct preload files;
    uint64_t began;
};

/* ---- before a host is reached -------------------------------------------------------------------------- */

static int refuse_changed(const struct preload_file *f, struct err *e)
{
    return err_set(e, ERR_SYSTEM, "--preload: %s has changed while it was copied", f->path);
}

static bool is_unchanged(const struct preload_file *f)
{
    struct stat now;
    return fstat(f->fd, &now) == 0 && now.st_size == f->st.st_size &&
           now.st_mtim.tv_sec == f->st.st_mtim.tv_sec && now.st_mtim.tv_nsec == f->st.st_mtim.tv_nsec;
}

static int add_all(struct preload_file *f, const struct auth_ops *auth, void *digest, uint8_t *bytes,
                   struct err *e)
{
    uint64_t at = 0, size = (uint64_t)f->st.st_size;
    while (at < size) {
        ssize_t n = pread(f->fd, bytes, READ_SIZE, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(e, errno, "--preload: cannot read %s", f->path);
        if (n == 0)
            return refuse_changed(f, e);
        if (auth->digest_add(digest, bytes, (size_t)n) < 0)
            return err_set(e, ERR_SYSTEM, "--preload: OpenSSL makes no SHA-256");
        at += (uint64_t)n;
    }
    return at == size && is_unchanged(f) ? 0 : refuse_changed(f, e);
}

static int hash_file(struct preload_file *f, const struct auth_ops *auth, struct err *e)
{
    uint8_t *bytes = malloc(READ_SIZE);
    void *digest = auth->digest_begin();
    int rc = bytes && digest ? add_all(f, auth, digest, bytes, e)
                             : err_set(e, ERR_MEMORY, "--preload: no memory to read %s", f->path);
    if (digest && auth->digest_end(digest, rc == 0 ? f->digest : NULL) < 0)
        rc = err_set(e, ERR_SYSTEM, "--preload: OpenSSL makes no SHA-256");
    free(bytes);
    return rc;
}

/* O_NONBLOCK: a FIFO that nobody writes is refused, not waited for. */
static int open_file(struct preload_file *f, struct err *e)
{
    f->fd = open(f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (f->fd < 0)
        return err_set(e, ERR_USAGE, "--preload: cannot open %s: %s", f->path, strerror(errno));
    if (fstat(f->fd, &f->st) < 0)
        return err_sys(e, errno, "--preload: cannot read %s", f->path);
    if (S_ISDIR(f->st.st_mode)) {
        err_set(e, ERR_USAGE, "--preload: %s is a directory", f->path);
        return err_hint(e, "an archive of it can be copied, and unpacked there");
    }
    if (!S_ISREG(f->st.st_mode))
        return err_set(e, ERR_USAGE, "--preload: %s is no regular file", f->path);
    return 0;
}

static int check_names(const struct preload *p, size_t i, struct err *e)
{
    for (size_t k = 0; k < i; k++)
        if (strcmp(p->file[k].name, p->file[i].name) == 0)
            return err_set(e, ERR_USAGE, "--preload: %s and %s would both become %s", p->file[k].path,
                           p->file[i].path, p->file[i].name);
    return 0;
}

/* -1 with *e: a file that cannot be sent, two of one name. Then, too, *p is to be closed. */
static int preload_files_open(struct preload *p, const struct option_list *list, struct err *e)
{
    const struct auth_ops *auth = list->count ? auth_open(e) : NULL;
    *p = (struct preload){0};
    if (list->count == 0)
        return 0;
    if (list->count > FILES_MAX)
        return err_set(e, ERR_USAGE, "--preload: %zu files are more than %d", list->count, FILES_MAX);
    p->file = auth ? calloc(list->count, sizeof *p->file) : NULL;
    if (!p->file)
        return auth ? err_set(e, ERR_MEMORY, "no memory for --preload") : -1;
    for (size_t i = 0; i < list->count; i++) {
        const char *path = list->item[i], *slash = strrchr(path, '/');
        p->file[i] = (struct preload_file){.path = path, .name = slash ? slash + 1 : path, .fd = -1};
        p->count++;
        if (open_file(&p->file[i], e) < 0 || check_names(p, i, e) < 0)
            return -1;
    }
    for (size_t i = 0; i < p->count; i++) {
        if (hash_file(&p->file[i], auth, e) < 0)
            return -1;
        p->bytes += (uint64_t)p->file[i].st.st_size;
    }
    return 0;
}

static void preload_files_close(struct preload *p)
{
    for (size_t i = 0; i < p->count; i++)
        if (p->file[i].fd >= 0)
            close(p->file[i].fd);
    free(p->file);
    *p = (struct preload){0};
}

/* The file, counted from 1, that the first word of a command means: named as it was given, or ./ and its
 * name. 0: none. */
static uint32_t preload_of(const struct preload *p, const char *command)
{
    bool here = strncmp(command, "./", 2) == 0;
    for (size_t i = 0; i < p->count; i++)
        if (strcmp(p->file[i].path, command) == 0 || (here && strcmp(p->file[i].name, command + 2) == 0))
            return (uint32_t)i + 1;
    return 0;
}

/* That file, if there is one, can be executed. */
static int preload_check_command(const struct preload *p, const char *command, struct err *e)
{
    uint32_t number = preload_of(p, command);
    if (number && !(p->file[number - 1].st.st_mode & 0111))
        return err_set(e, ERR_NOT_EXECUTABLE, "cannot execute %s: it is not executable", command);
    return 0;
}

/* ---- on the way to a host ------------------------------------------------------------------------------ */

/* Empty files have no bytes to be sent. */
static void skip_sent(const struct preload *p, struct preload_place *place)
{
    while (place->file < p->count && place->offset >= (uint64_t)p->file[place->file].st.st_size) {
        place->file++;
        place->offset = 0;
    }
}

/* All was read for that host. */
static bool preload_is_sent(const struct preload *p, const struct preload_place *place)
{
    struct preload_place next = *place;
    skip_sent(p, &next);
    return next.file == p->count;
}

/* The next bytes for a host, of file place->file, and *place behind them. 0: it has no credit, or all was
 * read; -1 with *e: a file has changed since it was hashed. *index becomes the file's. */
static ptrdiff_t preload_read(const struct preload *p, struct preload_place *place, uint32_t *index,
                              void *bytes, size_t size, struct err *e)
{
    skip_sent(p, place);
    if (place->file == p->count || place->credit == 0)
        return 0;
    const struct preload_file *f = &p->file[place->file];
    uint64_t left = (uint64_t)f->st.st_size - place->offset;
    size = left < size ? (size_t)left : size;
    size = place->credit < size ? (size_t)place->credit : size;
    ssize_t n = pread(f->fd, bytes, size, (off_t)place->offset);
    if (n < 0 && errno != EINTR)
        return err_sys(e, errno, "--preload: cannot read %s", f->path);
    if (n == 0 || ((uint64_t)n == left && !is_unchanged(f)))
        return refuse_changed(f, e);
    *index = (uint32_t)place->file;
    place->offset += n > 0 ? (uint64_t)n : 0;
    place->credit -= n > 0 ? (uint64_t)n : 0;
    return n > 0 ? n : 0;
}

/* ---- the part ------------------------------------------------------------------------------------------ */

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
    uint32_t index = 0;
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
