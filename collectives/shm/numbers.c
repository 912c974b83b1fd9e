#include "collectives/shm/numbers.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int numbers_write(const uint32_t *number, size_t n)
{
    size_t bytes = n * sizeof *number;
    int fd = memfd_create("hvd-numbers", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return -1;
    if (write(fd, number, bytes) == (ssize_t)bytes &&
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) == 0)
        return fd;
    int before = errno;
    close(fd);
    errno = before;
    return -1;
}

/* Only a file of memory has seals: to read from anything else could last. */
uint32_t *numbers_read(int fd, size_t most, size_t *n)
{
    off_t bytes = fcntl(fd, F_GET_SEALS) < 0 ? -1 : lseek(fd, 0, SEEK_END);
    *n = bytes > 0 ? (size_t)bytes / sizeof(uint32_t) : 0;
    if (*n == 0 || (size_t)bytes % sizeof(uint32_t) != 0 || *n > most)
        return NULL;
    uint32_t *number = malloc((size_t)bytes);
    if (!number)
        return NULL;
    if (pread(fd, number, (size_t)bytes, 0) == bytes)
        return number;
    free(number);
    return NULL;
}
