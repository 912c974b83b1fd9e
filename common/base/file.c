#include "common/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

int write_all(int fd, const void *bytes, size_t len)
{
    const uint8_t *at = bytes;
    while (len > 0) {
        ssize_t n = write(fd, at, len);
        if (n < 0 && errno != EINTR)
            return -1;
        if (n > 0) {
            at += n;
            len -= (size_t)n;
        }
    }
    return 0;
}

ssize_t file_read(const char *path, int flags, char *text, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | flags);
    ssize_t n = fd >= 0 ? read(fd, text, size - 1) : -1;
    int saved = errno;
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = '\0';
    errno = saved;
    return n;
}

int file_replace(const char *path, mode_t mode, const void *bytes, size_t len, const char *what,
                 struct err *e)
{
    char beside[PATH_MAX];
    snprintf(beside, sizeof beside, "%s.new", path);
    int fd = open(beside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, mode);
    bool good = fd >= 0 && write_all(fd, bytes, len) == 0;
    int saved = errno;
    if (fd >= 0 && close(fd) < 0 && good) {
        saved = errno;
        good = false;
    }
    if (good && rename(beside, path) == 0)
        return 0;
    saved = good ? errno : saved;
    if (fd >= 0)
        (void)unlink(beside);
    return err_sys(e, saved, "cannot write %s%s", what, path);
}
