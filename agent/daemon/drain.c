#include "agent/daemon/drain.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/log.h"
#include "common/write_all.h"

static void path_in(const char *directory, const char *name, char path[PATH_MAX])
{
    snprintf(path, PATH_MAX, "%s/%s", directory, name);
}

void drain_read(const char *directory, char reason[DRAIN_MAX])
{
    char path[PATH_MAX];
    path_in(directory, "drained", path);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    ssize_t n = fd < 0 ? 0 : read(fd, reason, DRAIN_MAX - 1);
    reason[n > 0 ? n : 0] = '\0';
    log_printable(reason);
    if (fd >= 0)
        close(fd);
}

int drain_write(const char *directory, const char *reason, struct err *e)
{
    char path[PATH_MAX], whole[PATH_MAX];
    path_in(directory, "drained.new", path);
    path_in(directory, "drained", whole);
    if (!reason[0])
        return unlink(whole) == 0 || errno == ENOENT ? 0 : err_sys(e, errno, "cannot remove %s", whole);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0)
        return err_sys(e, errno, "cannot write %s", path);
    int rc = write_all(fd, reason, strnlen(reason, DRAIN_MAX - 1));
    int saved = errno;
    close(fd);
    if (rc == 0 && rename(path, whole) == 0)
        return 0;
    saved = rc == 0 ? errno : saved;
    (void)unlink(path);
    return err_sys(e, saved, "cannot write %s", whole);
}
