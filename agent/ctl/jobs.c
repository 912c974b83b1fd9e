#include "agent/ctl/jobs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/session/status_server.h"
#include "common/base/log.h"

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

int ctl_jobs_find(struct ctl_jobs *jobs, struct err *e)
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    uid_t self = geteuid();
    char own[64];
    snprintf(own, sizeof own, "/run/user/%u", (unsigned)self);
    *jobs = (struct ctl_jobs){NULL, 0};
    int rc = runtime && strcmp(runtime, own) != 0 ? look_in_base(jobs, runtime, self) : 0;
    if (rc == 0)
        rc = look_in_base(jobs, own, self);
    if (rc == 0)
        rc = look_in_base(jobs, "/tmp", self);
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
