#include "agent/ctl/jobs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/status/status_address.h"

#define LISTENS      0x10000 /* of the kernel's flags of a socket */
#define HVDRUNS_MAX  4096
#define JOB_NAME_MAX 64
#define NAME         "abcdefghijklmnopqrstuvwxyz0123456789-"

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
        fstatat(fd, STATUS_SOCKET_NAME, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISSOCK(st.st_mode)) {
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

/* ---- hvdruns ------------------------------------------------------------------------------------------- */

/* The name in a line of /proc/net/unix; NULL when no process listens at it. */
static const char *find_listener(char *line)
{
    unsigned flags;
    int at = 0;
    line[strcspn(line, "\n")] = '\0';
    if (sscanf(line, "%*s %*s %*s %x %*s %*s %*s %n", &flags, &at) != 1 || at == 0)
        return NULL;
    return flags & LISTENS ? line + at : NULL;
}

/* Everybody can take such a name: the kernel says whose process listens there. */
static bool is_users(uid_t uid, const char *job)
{
    struct status_address at;
    struct ucred peer;
    socklen_t size = sizeof peer;
    status_address_of(&at, uid, job);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool is = fd >= 0 && connect(fd, (const struct sockaddr *)&at.un, at.size) == 0 &&
              getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == uid;
    if (fd >= 0)
        close(fd);
    return is;
}

/* Each listens at a name of the kernel, and is in no directory. */
static int look_at_hvdruns(struct ctl_jobs *jobs, uid_t self)
{
    char *line = NULL;
    size_t size = 0, most = jobs->count + HVDRUNS_MAX;
    int rc = 0;
    FILE *f = fopen("/proc/net/unix", "re");
    while (f && rc == 0 && jobs->count < most && getline(&line, &size, f) > 0) {
        const char *name = find_listener(line), *job;
        uid_t uid;
        if (name && status_address_parse(name, &uid, &job) && (self == 0 || uid == self) &&
            strlen(job) <= JOB_NAME_MAX && is_users(uid, job))
            rc = add_job(jobs, job, uid, -1);
    }
    if (jobs->count == most)
        log_warning("there are %d hvdruns here, or more: more are left out", HVDRUNS_MAX);
    if (f)
        fclose(f);
    free(line);
    return rc;
}

static bool is_hvdrun(const struct ctl_job *job)
{
    return job->directory < 0;
}

/* Is it a session of the job of that hvdrun? */
static bool is_session_of(const struct ctl_job *session, const struct ctl_job *hvdrun)
{
    size_t len = strlen(hvdrun->name);
    return !is_hvdrun(session) && session->uid == hvdrun->uid &&
           strncmp(session->name, hvdrun->name, len) == 0 && session->name[len] == '-' &&
           session->name[len + 1] &&
           strspn(session->name + len + 1, "0123456789") == strlen(session->name + len + 1);
}

static bool has_hvdrun(const struct ctl_jobs *jobs, const struct ctl_job *session)
{
    for (size_t i = 0; i < jobs->count; i++)
        if (is_hvdrun(&jobs->item[i]) && is_session_of(session, &jobs->item[i]))
            return true;
    return false;
}

void ctl_jobs_keep(struct ctl_jobs *jobs, enum ctl_kind kind, const char *word)
{
    struct ctl_jobs kept = {calloc(jobs->count + 1, sizeof *kept.item), 0};
    if (!kept.item)
        return; /* more is shown than was asked for */
    for (size_t i = 0; i < jobs->count; i++) {
        const struct ctl_job *job = &jobs->item[i];
        bool named = word && !is_hvdrun(job) && strcmp(job->name, word) == 0;
        if (named || !(kind == CTL_SESSIONS ? is_hvdrun(job) : has_hvdrun(jobs, job)))
            kept.item[kept.count++] = *job;
        else if (!is_hvdrun(job))
            close(job->directory);
    }
    free(jobs->item);
    *jobs = kept;
}

/* ---- all of them --------------------------------------------------------------------------------------- */

int ctl_jobs_find(struct ctl_jobs *jobs, struct err *e)
{
    uid_t self = geteuid();
    *jobs = (struct ctl_jobs){NULL, 0};
    int rc = look_at_own(jobs, self);
    if (rc == 0 && self == 0)
        rc = look_at_users(jobs, "/run/user", "");
    if (rc == 0 && self == 0)
        rc = look_at_users(jobs, "/tmp", "hvd-");
    if (rc == 0)
        rc = look_at_hvdruns(jobs, self);
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
        if (!is_hvdrun(&jobs->item[i]))
            close(jobs->item[i].directory);
    free(jobs->item);
    *jobs = (struct ctl_jobs){NULL, 0};
}

/* With or without the host's index. */
static bool is_name(const struct ctl_job *job, const char *word)
{
    const char *index = is_hvdrun(job) ? NULL : strrchr(job->name, '-');
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
