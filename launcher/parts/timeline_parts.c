/* --timeline-filename: hosts that share no directory with hvdrun send their parts of the timeline.
 *
 * Beside the timeline lies an empty file, the mark, while the job runs. A host where the mark is not seen
 * sends its files before it says Ended. Each becomes the file that the rank or the engine would have written
 * here, and launcher/job/timeline.c makes one timeline of all files. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/file.h"
#include "common/base/log.h"
#include "common/base/trace.h"
#include "launcher/elastic/elastic.h"
#include "launcher/job/core.h"
#include "launcher/parts/parts.h"
#include "launcher/transport/transport.h"

#define WINDOW    (1u << 20) /* bytes that a host may send ahead */
#define PART_MAX  ((uint64_t)TRACE_BYTES + (64u << 20))
#define SLOW_FROM ((uint64_t)16 << 20) /* so many bytes of one host take their time: the user is told */

struct timeline_state {
    char base[PATH_MAX], mark[PATH_MAX];
    bool marked; /* the mark is there; without it, the parts stay on the hosts */
};

struct fetched {
    uint32_t number; /* UINT32_MAX: the engine */
    uint64_t size, got;
    bool over;
};

struct host_timeline {
    struct fetched *part; /* NULL: the host has told none */
    uint32_t count, left;
    char path[PATH_MAX]; /* of the part that is open */
    int fd;              /* valid while `open` */
    bool open, refused;
    bool told;      /* the host has said which parts there are */
    bool cut_short; /* a part ended before its size: the files there stay */
    uint32_t owed;  /* bytes for the next credit */
};

static struct timeline_state *state_of(const struct job *j)
{
    return job_state(j, &part_timeline_parts);
}

static struct host_timeline *timeline_of(const struct job *j, const struct host *h)
{
    return job_host_state(j, &part_timeline_parts, h);
}

int timeline_path(const struct job *j, char *path, size_t size)
{
    const char *name = j->config->timeline_filename;
    char dir[PATH_MAX / 2] = "";
    if (!name || strstr(name, "%r") || strcmp(name, "DYNAMIC") == 0)
        return EINVAL;
    if (name[0] != '/' && !getcwd(dir, sizeof dir))
        return errno;
    int n = snprintf(path, size, "%s%s%s", dir, dir[0] ? "/" : "", name);
    return n < 0 || (size_t)n >= size ? ENAMETOOLONG : 0;
}

enum timeline_place timeline_part_place(const struct job *j, const struct host *h, uint32_t number)
{
    const struct host_timeline *t = timeline_of(j, h);
    if (h->ops == &transport_local)
        return TIMELINE_NOWHERE;
    if (!t->told)
        return TIMELINE_UNKNOWN;
    for (uint32_t i = 0; i < t->count; i++)
        if (t->part[i].number == number)
            return t->part[i].over && t->part[i].got == t->part[i].size && !t->refused ? TIMELINE_NOWHERE
                                                                                       : TIMELINE_ON_HOST;
    return TIMELINE_NOWHERE;
}

/* ---- the list of a host -------------------------------------------------------------------------------- */

/* Is it a process of that host? */
static bool is_of_host(struct job *j, const struct host *h, uint32_t number)
{
    return number == UINT32_MAX || job_rank_of_host(j, h, number);
}

static bool is_there_before(const struct host_timeline *t, uint32_t count, uint32_t number)
{
    for (uint32_t i = 0; i < count; i++)
        if (t->part[i].number == number)
            return true;
    return false;
}

static void send_credit(struct host *h, uint32_t bytes)
{
    Hvd__Credit credit = HVD__CREDIT__INIT;
    credit.stream = STREAM_FILE;
    credit.bytes = bytes;
    CONTROL(m, CREDIT, credit, &credit);
    host_send(h, &m);
}

static void end_transfer(struct host *h, bool all)
{
    Hvd__TimelineTaken taken = HVD__TIMELINE_TAKEN__INIT;
    taken.all = all;
    CONTROL(m, TIMELINE_TAKEN, timeline_taken, &taken);
    host_send(h, &m);
}

static const char *on_parts(struct job *j, struct host *h, const Hvd__Control *m)
{
    const Hvd__TimelineParts *told = m->timeline_parts;
    struct host_timeline *t = timeline_of(j, h);
    uint64_t bytes = 0;
    if (!j->common.timeline_mark)
        return "nobody has asked for it";
    if (told->n_part > (size_t)j->room.ranks + 1) {
        end_transfer(h, false);
        return "it has more parts than processes";
    }
    t->part = calloc(told->n_part + 1, sizeof *t->part);
    for (size_t i = 0; t->part && i < told->n_part; i++) {
        const Hvd__TimelinePart *p = told->part[i];
        if (!is_of_host(j, h, p->number) || is_there_before(t, (uint32_t)i, p->number) ||
            p->size > PART_MAX) {
            end_transfer(h, false);
            return "it has parts that cannot be";
        }
        t->part[i] = (struct fetched){.number = p->number, .size = p->size};
        bytes += p->size;
    }
    t->told = true;
    t->count = t->left = t->part ? (uint32_t)told->n_part : 0;
    if (told->n_part == 0)
        return NULL; /* the directory is shared, or the program writes no timeline */
    t->refused = !t->part || !state_of(j)->marked;
    if (t->refused) {
        end_transfer(h, false);
        return NULL;
    }
    if (bytes > SLOW_FROM)
        log_say("hvdrun: %s sends its timeline, %llu MiB; ^C twice leaves it there\n", h->label,
                (unsigned long long)(bytes >> 20));
    send_credit(h, WINDOW);
    return NULL;
}

/* ---- the bytes ----------------------------------------------------------------------------------------- */

static void drop_open_part(struct host_timeline *t)
{
    if (!t->open)
        return;
    close(t->fd);
    unlink(t->path);
    t->open = false;
}

static void refuse_rest(struct host *h, struct host_timeline *t, int errnum)
{
    log_warning("--timeline-filename: cannot write %s: %s", t->path, strerror(errnum));
    drop_open_part(t);
    t->refused = true;
    end_transfer(h, false);
}

static int open_part(const struct job *j, const struct host *h, struct host_timeline *t, uint32_t number)
{
    char who[TRACE_WHO_MAX];
    struct err e = ERR_INIT;
    if (number == UINT32_MAX)
        trace_engine_who(h->label, who);
    else
        snprintf(who, sizeof who, "%u", number);
    if (trace_path(state_of(j)->base, who, t->path, sizeof t->path, &e) < 0)
        return ENAMETOOLONG;
    t->fd = open(t->path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
    t->open = t->fd >= 0;
    return t->open ? 0 : errno;
}

static void give_credit(struct host *h, struct host_timeline *t, uint32_t bytes)
{
    t->owed += bytes;
    if (t->owed < WINDOW / 4)
        return;
    send_credit(h, t->owed);
    t->owed = 0;
}

static void end_part(struct host *h, struct host_timeline *t, const struct fetched *p)
{
    t->cut_short |= p->got < p->size;
    if (p->got < p->size || p->size == 0)
        drop_open_part(t);
    if (t->open && close(t->fd) < 0) {
        int errnum = errno;
        t->open = false;
        unlink(t->path);
        refuse_rest(h, t, errnum);
        return;
    }
    t->open = false;
    if (--t->left == 0)
        end_transfer(h, !t->cut_short);
}

int timeline_parts_data(struct job *j, struct host *h, const struct frame *f, struct err *e)
{
    struct host_timeline *t = timeline_of(j, h);
    struct fetched *p = f->rank < t->count ? &t->part[f->rank] : NULL;
    bool ends = f->flags & FRAME_FLAG_EOF;
    if (!p || p->over || f->length > p->size - p->got || (f->length == 0 && !ends))
        return err_set(e, ERR_PROTOCOL, "it sent bytes of a timeline that it has not told");
    p->got += f->length;
    p->over = ends;
    if (t->refused)
        return 0;
    int errnum = t->open ? 0 : open_part(j, h, t, p->number);
    if (errnum == 0 && f->length > 0 && write_all(t->fd, f->payload, f->length) < 0)
        errnum = errno;
    if (errnum) {
        refuse_rest(h, t, errnum);
        return 0;
    }
    give_credit(h, t, f->length);
    if (ends)
        end_part(h, t, p);
    return 0;
}

/* ---- hooks --------------------------------------------------------------------------------------------- */

/* An elastic job may get some later. */
static bool has_other_hosts(const struct job *j)
{
    bool has = j->config->elastic;
    for (uint32_t i = 0; i < j->host_count; i++)
        has |= j->host[i].ops != &transport_local;
    return has;
}

static int make_mark(struct job *j, struct err *e)
{
    struct timeline_state *s = state_of(j);
    (void)e;
    if (!has_other_hosts(j) || timeline_path(j, s->base, sizeof s->base) != 0)
        return 0;
    int n = snprintf(s->mark, sizeof s->mark, "%s.%s.mark", s->base, j->name);
    if (n < 0 || (size_t)n >= sizeof s->mark)
        return 0;
    int fd = open(s->mark, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    s->marked = fd >= 0; /* not, when there is no such directory here */
    if (s->marked)
        close(fd);
    j->common.timeline_mark = s->mark;
    return 0;
}

static void on_host_closed(struct job *j, struct host *h)
{
    drop_open_part(timeline_of(j, h));
}

static void remove_mark(struct job *j)
{
    struct timeline_state *s = state_of(j);
    if (s->marked)
        unlink(s->mark);
    s->marked = false;
}

static void free_parts(struct job *j)
{
    remove_mark(j);
    for (uint32_t i = 0; j->host && i < j->host_count; i++)
        free(timeline_of(j, &j->host[i])->part);
}

static const struct job_message messages[] = {{HVD__CONTROL__BODY_TIMELINE_PARTS, true, on_parts},
                                              {0, false, NULL}};

const struct job_part part_timeline_parts = {
    .state_size = sizeof(struct timeline_state),
    .host_state_size = sizeof(struct host_timeline),
    .message = messages,
    .placed = make_mark,
    .host_closed = on_host_closed,
    .done = remove_mark,
    .free = free_parts,
};
