/* --timeline-filename: the files of ranks (of workers, in an elastic job) and engines become one. All
 * of them date their events by the wall clock, and their processes have different numbers, so the one file is
 * an array of all their events.
 *
 * The parts are read where hvdrun runs: of ranks on this host, of others in a directory that hosts share, and
 * those that hosts have sent (launcher/parts/timeline_parts.c). The user is told where the rest lies. A name
 * with %r asks for separate files, which stay as they are. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "common/base/ranks.h"
#include "common/base/trace.h"
#include "launcher/elastic/elastic.h"
#include "launcher/job/core.h"
#include "launcher/job/report.h"
#include "launcher/parts/parts.h"
#include "launcher/transport/transport.h"

#define TAIL 16 /* bytes at the end of a part, at most: a newline, the bracket, a newline */

struct merging {
    char path[PATH_MAX], partial[PATH_MAX];
    int fd;
    time_t began; /* of the job; a file's time may be a tick before */
    char **part;  /* the files that were added, which are removed at the end */
    uint32_t parts;
    int error; /* errno of what failed first */
};

/* ---- one part ------------------------------------------------------------------------------------------ */

static void put_bytes(struct merging *m, const char *bytes, size_t n)
{
    if (m->error == 0 && write_all(m->fd, bytes, n) < 0)
        m->error = errno;
}

/* The end of the last event: what follows is the closing bracket, if the process came to write it. */
static off_t find_end(int fd, off_t size)
{
    char tail[TAIL];
    off_t from = size > TAIL ? size - TAIL : 0;
    ssize_t n = pread(fd, tail, sizeof tail, from);
    while (n > 0 && strchr("]\n ,", tail[n - 1]))
        n--;
    return from + (n > 0 ? n : 0);
}

/* The events between the brackets. */
static void copy_events(struct merging *m, int fd, off_t size)
{
    char bytes[1 << 16];
    off_t end = find_end(fd, size), at = 1;
    put_bytes(m, m->parts > 1 ? "," : "[", 1);
    while (at < end && m->error == 0) {
        size_t most = end - at < (off_t)sizeof bytes ? (size_t)(end - at) : sizeof bytes;
        ssize_t n = pread(fd, bytes, most, at);
        if (n <= 0) {
            m->error = n < 0 ? errno : EIO;
            return;
        }
        put_bytes(m, bytes, (size_t)n);
        at += n;
    }
}

/* The descriptor of a part of this job, which is no older than the job; -1: there is none. */
static int open_part(const struct merging *m, const char *path, off_t *size)
{
    struct stat st;
    char first = 0;
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return -1;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 2 && st.st_mtime >= m->began &&
        pread(fd, &first, 1, 0) == 1 && first == '[') {
        *size = st.st_size;
        return fd;
    }
    close(fd);
    return -1;
}

static bool note_part(struct merging *m, const char *path)
{
    char **grown = reallocarray(m->part, m->parts + 1, sizeof *grown);
    m->part = grown ? grown : m->part;
    char *copy = grown ? strdup(path) : NULL;
    if (copy)
        m->part[m->parts++] = copy;
    else
        m->error = ENOMEM;
    return copy;
}

/* false: `who` has no part here. */
static bool add_part(struct merging *m, const char *who)
{
    char path[PATH_MAX];
    struct err e = ERR_INIT;
    off_t size;
    int fd = trace_path(m->path, who, path, sizeof path, &e) == 0 ? open_part(m, path, &size) : -1;
    if (fd < 0)
        return false;
    if (note_part(m, path))
        copy_events(m, fd, size);
    close(fd);
    return true;
}

/* ---- all of them --------------------------------------------------------------------------------------- */

static int open_merged(struct merging *m, const struct job *j)
{
    int errnum = timeline_path(j, m->path, sizeof m->path);
    if (errnum)
        return errnum;
    int k = snprintf(m->partial, sizeof m->partial, "%s.%s", m->path, j->name);
    if (k < 0 || (size_t)k >= sizeof m->partial)
        return ENAMETOOLONG;
    m->fd = open(m->partial, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    return m->fd < 0 ? errno : 0;
}

/* The processes of a host, by the numbers that their files have. */
struct numbers {
    const char *noun, *mark; /* rank, or worker of an elastic job; the same in a name of files */
    const uint32_t *number;
    uint32_t *own; /* to be freed */
    uint32_t count;
};

static struct numbers list_numbers(const struct job *j, const struct host *h)
{
    const struct plan_host *p = &j->plan.host[h->plan_index];
    struct numbers n = {"rank", "RANK", p->rank, NULL, p->ranks};
    if (j->config->elastic) {
        n.noun = "worker";
        n.mark = "WORKER";
        n.number = n.own = elastic_workers_of(j, h->plan_index, &n.count);
    }
    return n;
}

static bool add_process(struct merging *m, uint32_t number)
{
    char who[16];
    snprintf(who, sizeof who, "%u", number);
    return add_part(m, who);
}

/* Two sessions of an elastic job may have run on one host. */
static bool is_first_of_label(const struct job *j, uint32_t index)
{
    for (uint32_t i = 0; i < index; i++)
        if (j->host[i].planned && strcmp(j->host[i].label, j->host[index].label) == 0)
            return false;
    return true;
}

/* Says which files hvdrun cannot read. `known`: the host has told that there are such files. */
static void say_missing(const struct merging *m, const struct host *h, const struct numbers *n,
                        const uint32_t *missing, uint32_t count, bool known)
{
    char list[120], path[PATH_MAX];
    const char *all = count == 1 ? "" : "s", *verb = !known ? "may lie" : count == 1 ? "lies" : "lie";
    struct err e = ERR_INIT;
    if (trace_path(m->path, n->mark, path, sizeof path, &e) == 0)
        log_say("hvdrun: the timeline%s of %s%s %s %s on %s: %s\n", all, n->noun, all,
                ranks_text_short(missing, count, list, sizeof list), verb, h->label, path);
}

static void add_host(struct merging *m, const struct job *j, const struct host *h)
{
    struct numbers n = list_numbers(j, h);
    uint32_t *missing = calloc(n.count + 1, sizeof *missing), count = 0;
    bool known = true;
    for (uint32_t k = 0; k < n.count; k++) {
        if (add_process(m, n.number[k]) || !missing)
            continue;
        enum timeline_place place = timeline_part_place(j, h, n.number[k]);
        known &= place != TIMELINE_UNKNOWN;
        if (place != TIMELINE_NOWHERE)
            missing[count++] = n.number[k];
    }
    if (count > 0)
        say_missing(m, h, &n, missing, count, known);
    free(missing);
    free(n.own);
}

static void add_all(struct merging *m, const struct job *j)
{
    for (uint32_t i = 0; i < j->host_count && m->error == 0; i++) {
        const struct host *h = &j->host[i];
        char who[TRACE_WHO_MAX];
        if (!h->planned)
            continue;
        add_host(m, j, h);
        if (is_first_of_label(j, i)) /* an engine that had nothing to do has none */
            (void)add_part(m, trace_engine_who(h->label, who));
    }
}

static void close_merged(struct merging *m)
{
    put_bytes(m, "\n]\n", 3);
    if (close(m->fd) < 0 && m->error == 0)
        m->error = errno;
    if (m->error == 0 && m->parts > 0 && rename(m->partial, m->path) < 0)
        m->error = errno;
    if (m->error || m->parts == 0)
        unlink(m->partial);
}

void timeline_collect(const struct job *j)
{
    struct merging m = {.fd = -1};
    if (!j->phases.running || timeline_path(j, m.path, sizeof m.path) == EINVAL)
        return;
    m.began = time(NULL) - (time_t)((clock_now() - j->began) / NSEC_PER_SEC) - 1;
    m.error = open_merged(&m, j);
    if (m.error == ENOENT) /* hosts have that directory, and this one has not */
        m.error = 0;
    add_all(&m, j);
    if (m.fd >= 0)
        close_merged(&m);
    if (m.error)
        log_warning("--timeline-filename: cannot write %s: %s; the files of ranks and engines lie beside it",
                    m.path, strerror(m.error));
    else if (m.parts > 0)
        log_say("hvdrun: the timeline is %s (%u processes)\n", m.path, m.parts);
    for (uint32_t i = 0; i < m.parts; i++) {
        if (!m.error)
            (void)unlink(m.part[i]);
        free(m.part[i]);
    }
    free(m.part);
}
