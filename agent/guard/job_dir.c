#include "agent/guard/job_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "common/base/err.h"
#include "common/base/log.h"
#include "common/process/module.h"

#define DEPTH    8
#define LEAST    (64u << 10) /* of a directory without files of the user */
#define SPARE    (1u << 20)  /* of a need: for what else is in a job's directory */
#define SHARED   "/dev/shm"
#define ATTEMPTS 500 /* other agents of ours may sweep or remove what we made between two of our steps */

int job_dir_check_name(const char *job, struct err *e)
{
    size_t len = strlen(job);
    if (len >= 1 && len <= 64 && strspn(job, "abcdefghijklmnopqrstuvwxyz0123456789-") == len)
        return 0;
    return err_set(e, ERR_USAGE, "a job's name is 1 to 64 of a-z, 0-9 and -");
}

/* The i-th place to try; false after the last. */
static bool base_dir(int i, char *path, size_t size)
{
    const char *named = i == 0 ? getenv("XDG_RUNTIME_DIR") : i == 2 ? getenv("TMPDIR") : NULL;
    if (i == 0 || i == 2)
        snprintf(path, size, "%s", named && named[0] == '/' && strlen(named) < size ? named : "");
    else if (i == 1)
        snprintf(path, size, "/run/user/%u", (unsigned)geteuid());
    else
        snprintf(path, size, "/tmp");
    return i <= 3;
}

/* The descriptor of our own 0700 directory `name` in `at`, made when `make`; -1 with errno. Never follows a
 * link. */
static int own_directory(int at, const char *name, bool make)
{
    struct stat st;
    if (make && mkdirat(at, name, 0700) < 0 && errno != EEXIST)
        return -1;
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        int saved = errno;
        if (make && saved == ENOENT)
            saved = ESTALE; /* it was there, and an agent that ended removed it */
        else if (make)
            (void)unlinkat(at, name, AT_REMOVEDIR); /* of another agent it is not empty */
        errno = saved;
        return -1;
    }
    if (fstat(fd, &st) < 0 || st.st_uid != geteuid() || (st.st_mode & 077)) {
        close(fd);
        errno = EPERM;
        return -1;
    }
    return fd;
}

/* Can nobody but us and root rename what we make in it? $XDG_RUNTIME_DIR may be another user's: sudo keeps it
 * when asked to. */
static bool is_safe_base(const char *base)
{
    struct stat st;
    bool ours = stat(base, &st) == 0 && (st.st_uid == geteuid() || st.st_uid == 0);
    return ours && (!(st.st_mode & 022) || (st.st_mode & S_ISVTX));
}

/* The directory of all jobs of this user in a base; false when there can be none. */
static bool user_path(const char *base, char path[JOB_DIR_MAX])
{
    int n = snprintf(path, JOB_DIR_MAX, "%s/hvd-%u", base, (unsigned)geteuid());
    return base[0] && n > 0 && n < JOB_DIR_MAX;
}

static int user_directory(const char *base, bool make)
{
    char path[JOB_DIR_MAX];
    if (!user_path(base, path) || !is_safe_base(base)) {
        errno = ENOENT;
        return -1;
    }
    return own_directory(AT_FDCWD, path, make);
}

static void remove_entry(int user, const char *name)
{
    if (remove_tree(user, name, DEPTH) < 0 && errno != ENOENT)
        log_warning("cannot remove the job's directory %s: %s", name, strerror(errno));
}

static bool belongs_to(const char *entry, const char *job)
{
    size_t len = job ? strlen(job) : 0;
    return entry[0] != '.' &&
           (!job || (strncmp(entry, job, len) == 0 && entry[len] == '-' && !strchr(entry + len + 1, '-')));
}

/* Calls `see` with each directory of the job (NULL: of all jobs). */
static void each_in(int user, const char *job, void (*see)(void *ctx, int user, const char *name, int fd),
                    void *ctx)
{
    DIR *d = fdopendir(dup(user));
    for (struct dirent *entry; d && (entry = readdir(d));) {
        if (!belongs_to(entry->d_name, job))
            continue;
        int fd = openat(user, entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0)
            continue;
        see(ctx, user, entry->d_name, fd);
        close(fd);
    }
    if (d)
        closedir(d);
}

/* `ctx`: whether also those that are still in use, as a bool. */
static void sweep_one(void *ctx, int user, const char *name, int fd)
{
    const bool *used_too = ctx;
    if (!*used_too && flock(fd, LOCK_EX | LOCK_NB) < 0)
        return;
    log_debug("sweeping away %s, which a killed agent left", name);
    remove_entry(user, name);
}

/* One attempt in one base; -1 with errno. ESTALE: somebody swept it meanwhile, try again. */
static int create_in(struct job_dir *d, const char *base, const char *name)
{
    struct stat st;
    int n = snprintf(d->path, sizeof d->path, "%s/hvd-%u/%s", base, (unsigned)geteuid(), name);
    if (n < 0 || (size_t)n >= sizeof d->path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    int user = user_directory(base, true);
    if (user < 0)
        return -1;
    bool used_too = false;
    each_in(user, NULL, sweep_one, &used_too);
    d->fd = mkdirat(user, name, 0700) == 0 ? own_directory(user, name, false) : -1;
    int saved = errno;
    if (d->fd < 0 && saved != EEXIST)
        (void)unlinkat(user, name, AT_REMOVEDIR);
    close(user);
    if (d->fd < 0) {
        char path[JOB_DIR_MAX];
        if (user_path(base, path))
            (void)rmdir(path); /* fails while there is something in it */
        errno = saved == ENOENT ? ESTALE : saved;
        return -1;
    }
    if (flock(d->fd, LOCK_EX | LOCK_NB) == 0 && fstat(d->fd, &st) == 0 && st.st_nlink > 0)
        return 0;
    job_dir_close(d);
    errno = ESTALE;
    return -1;
}

static bool base_suffices(const char *base, const struct job_dir_need *need)
{
    struct statvfs fs;
    if (statvfs(base, &fs) < 0)
        return true;
    return (uint64_t)fs.f_bavail * fs.f_frsize >= (need ? need->bytes + SPARE : LEAST) &&
           !(need && need->executes && (fs.f_flag & ST_NOEXEC));
}

int job_dir_create(struct job_dir *d, const char *name, const struct job_dir_need *need, struct err *e)
{
    char base[JOB_DIR_MAX];
    int saved = ENOENT;
    d->fd = -1;
    for (int i = 0; base_dir(i, base, sizeof base); i++) {
        int attempts = 0, rc;
        if (!base[0])
            continue;
        if (!base_suffices(base, need)) {
            saved = ENOSPC;
            continue;
        }
        /* After a first attempt our name may still be there, on its way out. */
        while ((rc = create_in(d, base, name)) < 0 &&
               (errno == ESTALE || (errno == EEXIST && attempts > 0)) && ++attempts < ATTEMPTS)
            sched_yield();
        if (rc == 0)
            return 0;
        saved = errno;
    }
    d->path[0] = '\0';
    if (need && saved == ENOSPC) {
        err_set(e, ERR_HOST,
                "no room for %llu bytes of %s in $XDG_RUNTIME_DIR, /run/user/%u, $TMPDIR or /tmp",
                (unsigned long long)need->bytes, need->executes ? "programs" : "files", (unsigned)geteuid());
        return err_hint(e, "XDG_RUNTIME_DIR or TMPDIR can name another place there");
    }
    if (saved != EPERM && saved != ENOTDIR && saved != ELOOP)
        err_sys(e, saved, "cannot make a directory for the job in %s/hvd-%u", base, (unsigned)geteuid());
    else
        err_set(e, ERR_HOST,
                "cannot make a directory for the job: %s/hvd-%u exists and is not a directory that only this "
                "user may enter",
                base, (unsigned)geteuid());
    return err_hint(e, "TMPDIR or XDG_RUNTIME_DIR can name another place there than %s", base);
}

static void remove_one(const char *path)
{
    char user_path[JOB_DIR_MAX];
    const char *slash = strrchr(path, '/');
    if (!slash)
        return;
    snprintf(user_path, sizeof user_path, "%.*s", (int)(slash - path), path);
    int user = own_directory(AT_FDCWD, user_path, false);
    if (user < 0)
        return;
    remove_entry(user, slash + 1);
    close(user);
    (void)rmdir(user_path); /* fails while another job of this user runs here */
}

void job_dir_remove(const char *path)
{
    char shared[JOB_DIR_MAX];
    if (!path[0])
        return;
    job_dir_shared_path(path, shared);
    remove_one(path);
    if (shared[0])
        remove_one(shared);
}

void job_dir_shared_path(const char *path, char shared[JOB_DIR_MAX])
{
    const char *slash = strrchr(path, '/');
    int n = slash ? snprintf(shared, JOB_DIR_MAX, SHARED "/hvd-%u%s", (unsigned)geteuid(), slash) : -1;
    if (n < 0 || n >= JOB_DIR_MAX)
        shared[0] = '\0';
}

int job_dir_make_shared(const char *path, struct err *e)
{
    struct job_dir d = {.fd = -1};
    const char *slash = strrchr(path, '/');
    int rc = -1;
    errno = ENOENT;
    for (int i = 0; slash && rc < 0 && i < ATTEMPTS && (i == 0 || errno == ESTALE); i++)
        rc = create_in(&d, SHARED, slash + 1);
    return rc == 0 ? d.fd : err_sys(e, errno, "cannot make a directory for the job in " SHARED);
}

void job_dir_close(struct job_dir *d)
{
    if (d->fd >= 0)
        close(d->fd);
    d->fd = -1;
}

static void sweep_base(const char *base, const char *job, bool used_too)
{
    char path[JOB_DIR_MAX];
    int user = user_directory(base, false);
    if (user < 0)
        return;
    each_in(user, job, sweep_one, &used_too);
    close(user);
    if (user_path(base, path))
        (void)rmdir(path);
}

void job_dir_sweep(const char *job, bool used_too)
{
    char base[JOB_DIR_MAX];
    for (int i = 0; base_dir(i, base, sizeof base); i++)
        sweep_base(base, job, used_too);
    sweep_base(SHARED, job, used_too);
}

struct visit {
    void (*see)(void *ctx, int fd);
    void *ctx;
};

static void visit_one(void *ctx, int user, const char *name, int fd)
{
    struct visit *v = ctx;
    (void)user, (void)name;
    v->see(v->ctx, fd);
}

void job_dir_each(const char *job, void (*see)(void *ctx, int fd), void *ctx)
{
    char base[JOB_DIR_MAX];
    struct visit v = {see, ctx};
    for (int i = 0; base_dir(i, base, sizeof base); i++) {
        int user = user_directory(base, false);
        if (user < 0)
            continue;
        each_in(user, job, visit_one, &v);
        close(user);
    }
}

/* ---- the directory of an agent that was sent ----------------------------------------------------------- */

#define PREFIX  "hvd-sent-"
#define OLD_SEC 3600 /* a transfer that is under way holds no lock */

/* A directory of files, and of directories of files. */
static void remove_dir(int at, const char *name)
{
    if (remove_tree(at, name, 1) < 0 && errno != ENOENT)
        log_warning("cannot remove %s, where hvdagent was sent to: %s", name, strerror(errno));
}

/* Its descriptor, locked, when it is ours alone and nobody else holds it; -1 otherwise. */
static int lock_directory(int at, const char *name, bool shared)
{
    struct stat st;
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, &st) == 0 && st.st_uid == geteuid() && !(st.st_mode & 077) &&
        (shared || st.st_mtime + OLD_SEC < time(NULL)) &&
        flock(fd, (shared ? LOCK_SH : LOCK_EX) | LOCK_NB) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

static void sweep_beside(const char *path)
{
    char base[PATH_MAX];
    snprintf(base, sizeof base, "%s", path);
    *strrchr(base, '/') = '\0';
    DIR *d = opendir(base);
    for (struct dirent *entry; d && (entry = readdir(d));) {
        if (strncmp(entry->d_name, PREFIX, strlen(PREFIX)) != 0)
            continue;
        int fd = lock_directory(dirfd(d), entry->d_name, false);
        if (fd < 0)
            continue;
        remove_dir(dirfd(d), entry->d_name);
        close(fd);
    }
    if (d)
        closedir(d);
}

void sent_dir_find(struct sent_dir *d)
{
    struct err none = ERR_INIT;
    d->fd = -1;
    const char *slash =
        module_program_dir(d->path, sizeof d->path, &none) == 0 ? strrchr(d->path, '/') : NULL;
    if (slash && slash > d->path && strncmp(slash + 1, PREFIX, strlen(PREFIX)) == 0)
        d->fd = lock_directory(AT_FDCWD, d->path, true);
    if (d->fd < 0)
        d->path[0] = '\0';
    else
        sweep_beside(d->path);
}

void sent_dir_remove(struct sent_dir *d)
{
    if (!d->path[0])
        return;
    remove_dir(AT_FDCWD, d->path);
    close(d->fd);
    d->path[0] = '\0';
}

/* ---- the end of a directory ---------------------------------------------------------------------------- */

int remove_tree(int at, const char *name, int deep)
{
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    for (struct dirent *entry; d && (entry = readdir(d));) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        if (unlinkat(dirfd(d), entry->d_name, 0) < 0 && errno == EISDIR && deep > 0)
            (void)remove_tree(dirfd(d), entry->d_name, deep - 1);
    }
    if (d)
        closedir(d);
    else if (fd >= 0)
        close(fd);
    return unlinkat(at, name, AT_REMOVEDIR);
}
