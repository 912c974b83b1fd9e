/* The files of the timeline that this host's workers and engine have written go to the launcher, before the
 * session says that the job has ended here.
 *
 * The launcher names a file of its own that lies beside the timeline. If that file is here too, hosts share
 * the directory and no part is told. The files here are removed when the launcher has all of them. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "agent/session/core.h"
#include "agent/session/parts.h"
#include "common/base/log.h"
#include "common/base/trace.h"

#define QUEUED_MAX (256u << 10) /* bytes that have not left yet */

struct timeline_file {
    Hvd__TimelinePart told;
    char *path;
};

struct session_timeline {
    char *mark; /* NULL: the launcher wants no parts */
    time_t began;
    bool begun, over;
    struct timeline_file *file;
    size_t count, next; /* `next` is being sent */
    off_t sent;         /* of that */
    int fd;             /* likewise; -1: it is not open */
    uint64_t granted;   /* bytes that the launcher takes */
};

/* ---- the files ----------------------------------------------------------------------------------------- */

static void close_file(struct session_timeline *t)
{
    if (t->fd >= 0)
        close(t->fd);
    t->fd = -1;
}

static void close_files(struct session *s)
{
    struct session_timeline *t = s->timeline;
    close_file(t);
    for (size_t i = 0; i < t->count; i++)
        free(t->file[i].path);
    free(t->file);
    t->file = NULL;
    t->count = 0;
    t->over = true;
}

/* Takes the file of `who`, if this job has written one. */
static void add_file(struct session *s, const char *who, uint32_t number)
{
    struct session_timeline *t = s->timeline;
    char path[PATH_MAX];
    struct stat st;
    struct err e = ERR_INIT;
    if (trace_path(s->spawn->tuning->timeline, who, path, sizeof path, &e) < 0)
        return;
    if (lstat(path, &st) < 0 || !S_ISREG(st.st_mode) || st.st_mtime < t->began)
        return;
    char *copy = strdup(path);
    if (!copy)
        return;
    struct timeline_file *file = &t->file[t->count++];
    *file = (struct timeline_file){.path = copy};
    hvd__timeline_part__init(&file->told);
    file->told.number = number;
    file->told.size = (uint64_t)st.st_size;
}

static void find_files(struct session *s)
{
    const Hvd__Spawn *spawn = s->spawn;
    char who[TRACE_WHO_MAX];
    s->timeline->file = calloc(s->workers.count + 1, sizeof *s->timeline->file);
    for (size_t i = 0; s->timeline->file && i < s->workers.count; i++) {
        snprintf(who, sizeof who, "%u", s->workers.item[i].rank);
        add_file(s, who, s->workers.item[i].rank);
    }
    if (s->timeline->file && spawn->host_index < spawn->n_host)
        add_file(s, trace_engine_who(spawn->host[spawn->host_index]->name, who), UINT32_MAX);
}

/* ---- sending ------------------------------------------------------------------------------------------- */

/* The file is over, at its size or before. */
static void end_file(struct session *s)
{
    struct session_timeline *t = s->timeline;
    (void)channel_send_data(&s->launcher.channel, (uint32_t)t->next, STREAM_FILE, FRAME_FLAG_EOF, NULL, 0);
    close_file(t);
    t->next++;
    t->sent = 0;
    session_schedule_check(s);
}

/* false: nothing more for now. */
static bool send_piece(struct session *s)
{
    struct session_timeline *t = s->timeline;
    char bytes[FRAME_DATA_MAX];
    if (t->next == t->count || channel_bulk_waiting(&s->launcher.channel) > QUEUED_MAX)
        return false;
    const struct timeline_file *file = &t->file[t->next];
    uint64_t left = file->told.size - (uint64_t)t->sent;
    size_t most = left < sizeof bytes ? (size_t)left : sizeof bytes;
    most = t->granted < most ? (size_t)t->granted : most;
    if (left > 0 && most == 0)
        return false;
    if (t->fd < 0)
        t->fd = open(file->path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    ssize_t n = most ? pread(t->fd, bytes, most, t->sent) : 0;
    if (n <= 0) {
        end_file(s);
        return true;
    }
    if (channel_send_data(&s->launcher.channel, (uint32_t)t->next, STREAM_FILE, 0, bytes, (size_t)n) < 0)
        return false;
    t->sent += n;
    t->granted -= (uint64_t)n;
    session_schedule_check(s);
    return true;
}

static void send_more(struct session *s)
{
    if (s->timeline->over || s->launcher.lost)
        return;
    while (send_piece(s))
        ;
}

static void tell_parts(struct session *s)
{
    struct session_timeline *t = s->timeline;
    Hvd__TimelineParts parts = HVD__TIMELINE_PARTS__INIT;
    Hvd__TimelinePart **list = calloc(t->count + 1, sizeof(Hvd__TimelinePart *));
    if (!list) {
        close_files(s);
        return;
    }
    for (size_t i = 0; i < t->count; i++)
        list[i] = &t->file[i].told;
    parts.part = list;
    parts.n_part = t->count;
    CONTROL(m, TIMELINE_PARTS, timeline_parts, &parts);
    session_send_control(s, &m);
    free(list);
}

static bool is_wanted(const struct session *s)
{
    return s->timeline->mark && s->spawn && s->spawn->tuning && s->spawn->tuning->timeline[0];
}

static bool is_directory_shared(const struct session *s)
{
    struct stat st;
    return stat(s->timeline->mark, &st) == 0 || errno != ENOENT;
}

bool session_timeline_is_due(struct session *s)
{
    struct session_timeline *t = s->timeline;
    if (!t->begun && !s->launcher.lost && is_wanted(s)) {
        if (!is_directory_shared(s))
            find_files(s);
        tell_parts(s);
    }
    t->begun = true;
    return t->count > 0 && !t->over && !s->launcher.lost;
}

/* ---- the launcher's words ------------------------------------------------------------------------------ */

void session_timeline_want(struct session *s, const char *mark)
{
    if (!s->timeline->mark && mark[0])
        s->timeline->mark = strdup(mark);
}

void session_timeline_credit(struct session *s, uint32_t bytes)
{
    s->timeline->granted += bytes;
    send_more(s);
}

const char *session_timeline_taken(struct session *s, const Hvd__Control *m)
{
    struct session_timeline *t = s->timeline;
    if (t->count == 0)
        return "no parts were told";
    bool all = m->timeline_taken->all && t->next == t->count;
    for (size_t i = 0; all && i < t->count; i++)
        (void)unlink(t->file[i].path);
    session_timeline_drop(s);
    return NULL;
}

void session_timeline_drop(struct session *s)
{
    close_files(s);
    session_schedule_check(s);
}

/* ---- hooks --------------------------------------------------------------------------------------------- */

static int open_timeline(struct session *s, struct err *e)
{
    s->timeline->fd = -1;
    s->timeline->began = time(NULL) - 1; /* a file's time may be a tick before */
    return 0;
}

static void free_timeline(struct session *s)
{
    close_files(s);
    free(s->timeline->mark);
}

const struct session_part session_part_timeline = {
    .name = "timeline",
    .state = SESSION_STATE(timeline),
    .open = open_timeline,
    .written = send_more,
    .free = free_timeline,
};
