#include "agent/ctl/jobs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent/session/status/status_server.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/protocol/frame.h"
#include "common/protocol/message.h"

#define NAME "abcdefghijklmnopqrstuvwxyz0123456789-"

static int add_job(struct ctl_jobs *jobs, const char *name, uid_t uid, int directory)
{
    struct ctl_job *grown = realloc(jobs->item, (jobs->count + 1) * sizeof *grown);
    if (!grown)
        return -1;
    jobs->item = grown;
    struct ctl_job *job = &grown[jobs->count++];
    *job = (struct ctl_job){.uid = uid, .directory = directory};
    snprintf(job->name, sizeof job->name, "%s", name);
    return 0;
}

static bool is_of(int fd, uid_t uid)
{
    struct stat st;
    return fstat(fd, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == uid && !(st.st_mode & 022);
}

/* 0 also for what is no job's directory. */
static int look_at(struct ctl_jobs *jobs, int user, const char *name, uid_t uid)
{
    struct stat st;
    int fd = openat(user, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && (errno == EMFILE || errno == ENFILE))
        log_warning("a job is left out: %s", strerror(errno));
    if (fd < 0)
        return 0;
    if (strlen(name) < CTL_JOB_MAX && strspn(name, NAME) == strlen(name) && is_of(fd, uid) &&
        fstatat(fd, INQUIRY_SOCKET_NAME, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISSOCK(st.st_mode)) {
        if (add_job(jobs, name, uid, fd) == 0)
            return 0;
        close(fd);
        return -1;
    }
    close(fd);
    return 0;
}

/* Calls look_at for what lies in directory `at`; closes it. */
static int look_into(struct ctl_jobs *jobs, int at, uid_t uid)
{
    int rc = 0;
    size_t most = jobs->count + CTL_JOBS_OF_USER;
    DIR *d = fdopendir(at);
    if (!d) {
        close(at);
        return 0;
    }
    for (struct dirent *entry; rc == 0 && jobs->count < most && (entry = readdir(d));)
        if (entry->d_name[0] != '.')
            rc = look_at(jobs, dirfd(d), entry->d_name, uid);
    if (jobs->count == most)
        log_warning("user %u has the directories of %d jobs here, or more: more are left out", (unsigned)uid,
                    CTL_JOBS_OF_USER);
    closedir(d);
    return rc;
}

static int look_in_base(struct ctl_jobs *jobs, const char *base, uid_t uid)
{
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/hvd-%u", base, (unsigned)uid);
    if (base[0] != '/' || n < 0 || (size_t)n >= sizeof path)
        return 0;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return 0;
    if (is_of(fd, uid))
        return look_into(jobs, fd, uid);
    close(fd);
    return 0;
}

/* A name that is `prefix` and the number of a user. */
static bool names_user(const char *name, const char *prefix, uid_t *uid)
{
    size_t n = strlen(prefix);
    char *end;
    if (strncmp(name, prefix, n) != 0 || name[n] < '0' || name[n] > '9')
        return false;
    unsigned long number = strtoul(name + n, &end, 10);
    *uid = (uid_t)number;
    return *end == '\0' && number < UINT_MAX;
}

/* Every user who has a directory `prefix`UID in `where`. */
static int look_at_users(struct ctl_jobs *jobs, const char *where, const char *prefix)
{
    uid_t uid;
    int rc = 0;
    DIR *d = opendir(where);
    for (struct dirent *entry; d && rc == 0 && (entry = readdir(d));) {
        char base[PATH_MAX];
        if (!names_user(entry->d_name, prefix, &uid) || uid == geteuid())
            continue;
        snprintf(base, sizeof base, "%s/%u", where, (unsigned)uid);
        rc = look_in_base(jobs, prefix[0] ? where : base, uid);
    }
    if (d)
        closedir(d);
    return rc;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct ctl_job *)a)->name, ((const struct ctl_job *)b)->name);
}

static bool is_same_directory(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* The places where job_dir.h makes directories; variables may name a place that is among them already. */
static int look_at_own(struct ctl_jobs *jobs, uid_t self)
{
    char runtime[64];
    snprintf(runtime, sizeof runtime, "/run/user/%u", (unsigned)self);
    const char *base[] = {"/tmp", runtime, getenv("XDG_RUNTIME_DIR"), getenv("TMPDIR")};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < sizeof base / sizeof *base; i++) {
        bool again = !base[i];
        for (size_t k = 0; k < i && !again; k++)
            again = base[k] && is_same_directory(base[k], base[i]);
        rc = again ? 0 : look_in_base(jobs, base[i], self);
    }
    return rc;
}

int ctl_jobs_find(struct ctl_jobs *jobs, struct err *e)
{
    uid_t self = geteuid();
    *jobs = (struct ctl_jobs){NULL, 0};
    int rc = look_at_own(jobs, self);
    if (rc == 0 && self == 0)
        rc = look_at_users(jobs, "/run/user", "");
    if (rc == 0 && self == 0)
        rc = look_at_users(jobs, "/tmp", "hvd-");
    if (rc == 0 && jobs->count > 1)
        qsort(jobs->item, jobs->count, sizeof *jobs->item, by_name);
    if (rc == 0)
        return 0;
    ctl_jobs_free(jobs);
    return err_set(e, ERR_MEMORY, "no memory for the list of jobs");
}

void ctl_jobs_free(struct ctl_jobs *jobs)
{
    for (size_t i = 0; i < jobs->count; i++)
        close(jobs->item[i].directory);
    free(jobs->item);
    *jobs = (struct ctl_jobs){NULL, 0};
}

/* With or without the host's index. */
static bool is_name(const struct ctl_job *job, const char *word)
{
    const char *index = strrchr(job->name, '-');
    size_t len = strlen(word);
    return strcmp(job->name, word) == 0 ||
           (index && (size_t)(index - job->name) == len && strncmp(job->name, word, len) == 0);
}

static bool has_prefix(const struct ctl_job *job, const char *word)
{
    return word[0] && strncmp(job->name, word, strlen(word)) == 0;
}

static size_t count_those(const struct ctl_jobs *jobs, const char *word, size_t *first,
                          bool (*is)(const struct ctl_job *job, const char *word))
{
    size_t count = 0;
    for (size_t i = 0; i < jobs->count; i++)
        if (is(&jobs->item[i], word) && count++ == 0)
            *first = i;
    return count;
}

size_t ctl_jobs_named(const struct ctl_jobs *jobs, const char *word, size_t *first)
{
    size_t count = count_those(jobs, word, first, is_name);
    return count ? count : count_those(jobs, word, first, has_prefix);
}

/* ---- asking a session ---------------------------------------------------------------------------------- */

#define READ_SIZE (64u << 10)
#define NO_ANSWER "the session does not answer"

/* By the directory's descriptor: whatever its path names by now, it is the one that was looked at. */
static int connect_to(const struct ctl_job *job, int timeout_ms, struct err *e)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const struct timeval limit = {.tv_sec = timeout_ms / 1000, .tv_usec = timeout_ms % 1000 * 1000};
    struct ucred peer;
    socklen_t size = sizeof peer;
    snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/%s", job->directory,
             INQUIRY_SOCKET_NAME);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return err_sys(e, errno, "cannot make a socket");
    /* The limit of connect, too: a listener of another user may accept nothing. */
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) < 0) {
        int saved = errno;
        close(fd);
        if (saved == EAGAIN)
            return err_set(e, ERR_TIMEOUT, NO_ANSWER);
        if (saved == ECONNREFUSED || saved == ENOENT)
            return err_set(e, ERR_CLOSED, "job %s has ended", job->name);
        return err_sys(e, saved, "cannot reach the session of job %s", job->name);
    }
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == job->uid)
        return fd;
    close(fd);
    return err_set(e, ERR_CLOSED, "what answers for job %s is not its user's", job->name);
}

int ctl_ask_open(struct ctl_ask *a, const struct ctl_job *job, const Hvd__Inquiry *inquiry, int timeout_ms,
                 struct err *e)
{
    uint8_t bytes[FRAME_HEADER_SIZE + INQUIRY_MAX];
    size_t size = hvd__inquiry__get_packed_size(inquiry);
    struct frame f = {.length = (uint32_t)size, .kind = FRAME_CONTROL};
    a->fd = -1;
    buf_init(&a->in, FRAME_HEADER_SIZE + ANSWER_MAX + READ_SIZE);
    if (size > INQUIRY_MAX - FRAME_HEADER_SIZE)
        return err_set(e, ERR_USAGE, "too many ranks are asked for");
    a->fd = connect_to(job, timeout_ms, e);
    if (a->fd < 0)
        return -1;
    frame_encode_header(&f, bytes);
    hvd__inquiry__pack(inquiry, bytes + FRAME_HEADER_SIZE);
    if (send(a->fd, bytes, FRAME_HEADER_SIZE + size, MSG_NOSIGNAL) == (ssize_t)(FRAME_HEADER_SIZE + size))
        return 0;
    err_sys(e, errno, "cannot ask the session of job %s", job->name);
    ctl_ask_close(a);
    return -1;
}

void ctl_ask_close(struct ctl_ask *a)
{
    if (a->fd >= 0)
        close(a->fd);
    a->fd = -1;
    buf_free(&a->in);
}

/* 1: more is there; 0: the session has closed; -1 with *e. */
static int receive_bytes(struct ctl_ask *a, int timeout_ms, struct err *e)
{
    struct pollfd p = {.fd = a->fd, .events = POLLIN};
    int rc = poll(&p, 1, timeout_ms);
    if (rc == 0)
        return err_set(e, ERR_TIMEOUT, NO_ANSWER);
    if (rc < 0)
        return errno == EINTR ? 1 : err_sys(e, errno, "cannot wait for an answer");
    uint8_t *room = buf_reserve(&a->in, READ_SIZE);
    if (!room)
        return err_set(e, ERR_MEMORY, "no memory for an answer");
    ssize_t n = recv(a->fd, room, READ_SIZE, 0);
    if (n > 0)
        buf_commit(&a->in, (size_t)n);
    if (n < 0 && errno != EINTR)
        return errno == ECONNRESET ? 0 : err_sys(e, errno, "cannot read an answer");
    return n != 0;
}

Hvd__Answer *ctl_ask_next(struct ctl_ask *a, int timeout_ms, struct err *e)
{
    struct frame f;
    uint64_t until = clock_now() + (uint64_t)(timeout_ms < 0 ? 0 : timeout_ms) * NSEC_PER_MSEC;
    int rc = frame_decode(&a->in, &f, e);
    for (; rc == 0; rc = frame_decode(&a->in, &f, e)) {
        uint64_t now = clock_now();
        int left = timeout_ms < 0 ? -1 : now < until ? (int)((until - now) / NSEC_PER_MSEC) : 0;
        rc = receive_bytes(a, left, e);
        if (rc <= 0)
            return NULL;
    }
    Hvd__Answer *answer = rc > 0 ? message_unpack_answer(f.payload, f.length, e) : NULL;
    if (rc > 0)
        buf_consume(&a->in, FRAME_HEADER_SIZE + f.length);
    return answer;
}

Hvd__Answer *ctl_ask_status(const struct ctl_job *job, int timeout_ms, struct err *e)
{
    Hvd__Inquiry inquiry = HVD__INQUIRY__INIT;
    Hvd__Answer *answer = NULL;
    struct ctl_ask a;
    inquiry.kind = HVD__INQUIRY__KIND__STATUS;
    if (ctl_ask_open(&a, job, &inquiry, timeout_ms, e) < 0)
        return NULL;
    answer = ctl_ask_next(&a, timeout_ms, e);
    if (answer && answer->body_case != HVD__ANSWER__BODY_STATUS) {
        message_free(answer);
        answer = NULL;
    }
    if (!answer)
        err_set(e, ERR_CLOSED, "job %s has ended", job->name);
    ctl_ask_close(&a);
    return answer;
}
