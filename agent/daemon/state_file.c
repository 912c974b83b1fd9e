#include "agent/daemon/state_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/write_all.h"

static void path_in(const char *directory, const char *name, const char *end, char path[PATH_MAX])
{
    snprintf(path, PATH_MAX, "%s/%s%s", directory, name, end);
}

void kept_file_read(const char *directory, const char *name, char *text, size_t size)
{
    char path[PATH_MAX];
    path_in(directory, name, "", path);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    ssize_t n = fd < 0 ? 0 : read(fd, text, size - 1);
    text[n > 0 ? n : 0] = '\0';
    if (fd >= 0)
        close(fd);
}

int kept_file_write(const char *directory, const char *name, const char *text, struct err *e)
{
    char path[PATH_MAX], whole[PATH_MAX];
    path_in(directory, name, ".new", path);
    path_in(directory, name, "", whole);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0)
        return err_sys(e, errno, "cannot write %s", path);
    int rc = write_all(fd, text, strlen(text));
    int saved = errno;
    close(fd);
    if (rc == 0 && rename(path, whole) == 0)
        return 0;
    saved = rc == 0 ? errno : saved;
    (void)unlink(path);
    return err_sys(e, saved, "cannot write %s", whole);
}

int kept_file_remove(const char *directory, const char *name, struct err *e)
{
    char path[PATH_MAX];
    path_in(directory, name, "", path);
    return unlink(path) == 0 || errno == ENOENT ? 0 : err_sys(e, errno, "cannot remove %s", path);
}
