/* --flight-record: the last operations of each rank, which the hosts tell before they end the job.
 *
 * Every host is asked right before its Teardown, and answers at once, so the answers are here before its
 * Ended. They go into one file. Without the option that is done when the job fails, in the user's directory
 * of states (the XDG base directory specification), where the newest files are kept. A job that records
 * nothing writes no file. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "launcher/elastic/elastic.h"
#include "launcher/job/core.h"
#include "launcher/parts/parts.h"

#define OPERATIONS_MAX 262144u /* of all ranks; each is a line of some 200 bytes */
#define EACH_MAX       512u    /* of a rank */
#define EACH_LEAST     8u
#define EVENTS_MAX     256u /* of a host */
#define KEPT           20   /* files in the directory of states */
#define SUFFIX         ".flight.json"

struct flight_state {
    char path[PATH_MAX];
    FILE *file; /* NULL: not open */
    uint32_t operations, ranks;
    FILE *events; /* of sessions, which follow the operations; NULL: none have come */
    char *events_text;
    size_t events_size;
    int error; /* errno of what failed first */
    bool asked;
};

struct host_flight {
    uint32_t told; /* ranks */
};

static struct flight_state *state_of(const struct job *j)
{
    return job_state(j, &part_flight);
}

/* ---- the place ----------------------------------------------------------------------------------------- */

/* Makes the directories of the path that are not there. 0 or an errno. */
static int make_directories(char *path)
{
    for (char *at = path + 1;; at++) {
        char end = *at;
        if (end != '/' && end != '\0')
            continue;
        *at = '\0';
        int rc = mkdir(path, 0700) < 0 && errno != EEXIST ? errno : 0;
        *at = end;
        if (rc != 0 || end == '\0')
            return rc;
    }
}

/* 0 or an errno. */
static int state_directory(char *path, size_t size)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    int n = state && state[0] == '/' ? snprintf(path, size, "%s/hvdrun", state)
            : home && home[0] == '/' ? snprintf(path, size, "%s/.local/state/hvdrun", home)
                                     : -1;
    return n < 0 ? ENOENT : (size_t)n >= size ? ENAMETOOLONG : make_directories(path);
}

static bool is_record(const char *name)
{
    size_t len = strlen(name), end = strlen(SUFFIX);
    return len > end && strcmp(name + len - end, SUFFIX) == 0;
}

/* Removes the oldest files, so that there is room for one more. */
static void drop_old_files(const char *directory)
{
    for (int files = KEPT; files >= KEPT;) {
        DIR *dir = opendir(directory);
        char oldest[NAME_MAX + 1] = "";
        struct timespec when = {0};
        struct stat st;
        if (!dir)
            return;
        files = 0;
        for (struct dirent *d; (d = readdir(dir));) {
            if (!is_record(d->d_name) || fstatat(dirfd(dir), d->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                continue;
            bool older = !oldest[0] || st.st_mtim.tv_sec < when.tv_sec ||
                         (st.st_mtim.tv_sec == when.tv_sec && st.st_mtim.tv_nsec < when.tv_nsec);
            if (older)
                snprintf(oldest, sizeof oldest, "%s", d->d_name);
            when = older ? st.st_mtim : when;
            files++;
        }
        bool removed = files < KEPT || unlinkat(dirfd(dir), oldest, 0) == 0;
        closedir(dir);
        if (!removed)
            return;
    }
}

/* 0 or an errno. */
static int choose_path(struct job *j, struct flight_state *s)
{
    char directory[PATH_MAX];
    const char *given = j->config->flight_record;
    int errnum = 0;
    if (given)
        snprintf(directory, sizeof directory, "%s", given);
    else
        errnum = state_directory(directory, sizeof directory);
    if (errnum != 0)
        return errnum;
    if (!given)
        drop_old_files(directory);
    char again[16] = "";
    if (j->epoch->number > 0)
        snprintf(again, sizeof again, ".%u", j->epoch->number);
    int n = snprintf(s->path, sizeof s->path, "%s/%s%s" SUFFIX, directory, j->name, again);
    return n < 0 || (size_t)n >= sizeof s->path ? ENAMETOOLONG : 0;
}

/* ---- the file ------------------------------------------------------------------------------------------ */

static void open_file(struct job *j, struct flight_state *s)
{
    int fd = -1;
    s->error = choose_path(j, s);
    if (s->error == 0)
        fd = open(s->path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (s->error == 0 && fd < 0)
        s->error = errno;
    s->file = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (!s->file)
        return;
    fprintf(s->file, "{\"hvdrun\": \"%s\", \"job\": ", HVD_VERSION);
    json_put_string(s->file, j->name);
    fprintf(s->file, ", \"ranks\": %u, \"failed\": %s, \"cause\": ", j->plan.size,
            j->outcome.failed ? "true" : "false");
    json_put_string(s->file, j->outcome.text);
    fprintf(s->file, ",\n\"operations\": [");
}

/* On the clock of --report. */
static double seconds_at(const struct job *j, const struct host *h, uint64_t theirs)
{
    return ((double)host_clock_ours(&h->beat.clock, theirs) - (double)j->epoch->began) / 1e9;
}

static const char *status_text(int32_t status)
{
    static const char *const names[] = {"ok",         "not initialized", "invalid",     "mismatch",
                                        "peer",       "engine",          "memory",      "forked",
                                        "system",     "in progress",     "set unknown", "set foreign",
                                        "set exists", "timeout",         "left"};
    if (status > 0)
        return "pending";
    return status > -(int)(sizeof names / sizeof *names) ? names[-status] : "unknown";
}

static bool is_engine(const Hvd__Flight *w)
{
    return w->rank == UINT32_MAX;
}

static void write_operation(struct job *j, const struct host *h, const Hvd__Flight *w,
                            const Hvd__FlightOperation *o)
{
    FILE *out = state_of(j)->file;
    fprintf(out, "%s\n{\"rank\": ", state_of(j)->operations++ ? "," : "");
    if (is_engine(w))
        fprintf(out, "null, \"host\": ");
    else
        fprintf(out, "%u, \"host\": ", w->rank);
    json_put_string(out, h->label);
    fprintf(out, ", \"pid\": %u, \"thread\": %u, \"number\": %u, \"tensor\": ", w->pid, o->thread, o->number);
    json_put_string(out, o->tensor);
    fprintf(out, ", \"operation\": %u, \"kind\": ", o->operation);
    json_put_string(out, o->kind);
    fprintf(out, ", \"type\": ");
    json_put_string(out, o->type);
    fprintf(out, ", \"set\": %d, \"count\": %llu, \"bytes\": %llu, \"began\": %.6f, \"ended\": ", o->set,
            (unsigned long long)o->count, (unsigned long long)o->bytes, seconds_at(j, h, o->began));
    if (o->status > 0)
        fprintf(out, "null");
    else
        fprintf(out, "%.6f", seconds_at(j, h, o->ended));
    fprintf(out, ", \"status\": \"%s\"}", status_text(o->status));
}

/* Behind the operations of all hosts. */
static void keep_events(struct job *j, struct flight_state *s, const struct host *h, const Hvd__Flight *w)
{
    if (!s->events)
        s->events = open_memstream(&s->events_text, &s->events_size);
    for (size_t i = 0; s->events && i < w->n_event; i++) {
        fprintf(s->events, "%s\n{\"host\": ", ftello(s->events) > 0 ? "," : "");
        json_put_string(s->events, h->label);
        fprintf(s->events, ", \"pid\": %u, \"time\": %.6f, \"text\": ", w->pid,
                seconds_at(j, h, w->event[i]->time));
        json_put_string(s->events, w->event[i]->text);
        fprintf(s->events, "}");
    }
}

static uint32_t most_of_each(const struct job *j)
{
    uint32_t each = j->plan.size ? OPERATIONS_MAX / j->plan.size : EACH_MAX;
    return each > EACH_MAX ? EACH_MAX : each < EACH_LEAST ? EACH_LEAST : each;
}

static const char *on_flight(struct job *j, struct host *h, const Hvd__Control *m)
{
    struct flight_state *s = state_of(j);
    struct host_flight *mine = job_host_state(j, &part_flight, h);
    const Hvd__Flight *w = m->flight;
    if (!s->asked)
        return "nobody has asked for it";
    if (!j->config->elastic && !is_engine(w) && !job_rank_of_host(j, h, w->rank))
        return "that rank is not there";
    if (mine->told++ > j->room.ranks + 1 || w->n_operation > most_of_each(j))
        return "it tells of more operations than were asked for";
    if (w->n_event > EVENTS_MAX)
        return "it tells of more events than a session keeps";
    keep_events(j, s, h, w);
    if (w->n_operation == 0 || s->error || s->operations >= OPERATIONS_MAX)
        return NULL;
    if (!s->file)
        open_file(j, s);
    s->ranks += s->file != NULL && !is_engine(w);
    for (size_t i = 0; s->file && i < w->n_operation; i++)
        write_operation(j, h, w, w->operation[i]);
    return NULL;
}

/* ---- hooks --------------------------------------------------------------------------------------------- */

/* A directory that is named is wanted: the job does not begin without. */
static int check_directory(struct job *j, struct err *e)
{
    const char *given = j->config->flight_record;
    struct stat st;
    if (!given || mkdir(given, 0700) == 0)
        return 0;
    if (errno == EEXIST && stat(given, &st) == 0 && !S_ISDIR(st.st_mode))
        errno = ENOTDIR;
    else if (errno == EEXIST && access(given, W_OK | X_OK) == 0)
        return 0;
    return err_set(e, ERR_USAGE, "--flight-record: cannot write into %s: %s", given, strerror(errno));
}

static bool is_wanted(const struct job *j)
{
    if (j->config->flight_record)
        return true;
    return j->outcome.failed && !j->outcome.unread && !j->stop.signal;
}

static void ask_hosts(struct job *j)
{
    struct flight_state *s = state_of(j);
    Hvd__FlightWanted wanted = HVD__FLIGHT_WANTED__INIT;
    wanted.most = most_of_each(j);
    CONTROL(m, FLIGHT_WANTED, flight_wanted, &wanted);
    if (s->asked || !j->planned || !is_wanted(j))
        return;
    s->asked = true;
    for (uint32_t i = 0; i < j->host_count; i++)
        if (j->host[i].planned && host_state(&j->host[i]) == HOST_RUNNING)
            host_send(&j->host[i], &m);
}

static void close_file(struct flight_state *s)
{
    fprintf(s->file, "\n],\n\"events\": [%s\n]}\n", s->events_text ? s->events_text : "");
    bool failed = ferror(s->file) != 0;
    if ((fclose(s->file) != 0 || failed) && s->error == 0)
        s->error = errno ? errno : EIO;
    s->file = NULL;
}

static void end_file(struct job *j)
{
    struct flight_state *s = state_of(j);
    if (s->events)
        (void)fclose(s->events);
    s->events = NULL;
    if (s->file)
        close_file(s);
    free(s->events_text);
    s->events_text = NULL;
}

static void say_path(const struct job *j)
{
    const struct flight_state *s = state_of(j);
    if (s->error && j->config->flight_record)
        log_warning("--flight-record: cannot write %s: %s", s->path, strerror(s->error));
    else if (s->error)
        log_info("the last operations of the ranks are not written: %s", strerror(s->error));
    else if (s->ranks > 0)
        log_say("hvdrun: the last operations of %u rank%s: %s\n", s->ranks, s->ranks == 1 ? "" : "s",
                s->path);
}

static const struct job_message messages[] = {{HVD__CONTROL__BODY_FLIGHT, true, on_flight}, {0, false, NULL}};

const struct job_part part_flight = {
    .state_size = sizeof(struct flight_state),
    .host_state_size = sizeof(struct host_flight),
    .message = messages,
    .open = check_directory,
    .ending = ask_hosts,
    .done = end_file,
    .say = say_path,
};
