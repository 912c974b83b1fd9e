#include "agent/guard/sent_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "agent/guard/remove_tree.h"
#include "common/base/err.h"
#include "common/base/log.h"
#include "common/process/module.h"

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
