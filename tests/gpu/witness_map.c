#include "tests/gpu/witness.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

struct witness *witness_map(void)
{
    const char *path = getenv(WITNESS_FILE);
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *at = MAP_FAILED;

    /* A file that is too short would end the process at the first count. */
    if (fd >= 0 && lseek(fd, 0, SEEK_END) >= (off_t)sizeof(struct witness))
        at = mmap(NULL, sizeof(struct witness), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0)
        close(fd);
    return at == MAP_FAILED ? NULL : at;
}
