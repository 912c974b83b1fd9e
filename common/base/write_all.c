#include "common/base/write_all.h"

#include <errno.h>
#include <stdint.h>
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
