#include "collectives/shm/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

static int map_segment(struct segment *s, int fd, size_t bytes, struct err *e)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (at == MAP_FAILED)
        return err_sys(e, errno, "cannot map a tensor segment of %zu bytes", bytes);
    *s = (struct segment){at, bytes};
    return 0;
}

int segment_create(struct segment *s, size_t bytes, struct err *e)
{
    int fd = memfd_create("hvd-tensors", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return err_sys(e, errno, "cannot make a tensor segment");
    if (ftruncate(fd, (off_t)bytes) != 0 || fcntl(fd, F_ADD_SEALS, SEALS) != 0)
        err_sys(e, errno, "cannot make a tensor segment of %zu bytes", bytes);
    else if (map_segment(s, fd, bytes, e) == 0)
        return fd;
    close(fd);
    return -1;
}

int segment_map(struct segment *s, int fd, struct err *e)
{
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || !(seals & F_SEAL_SHRINK))
        return err_set(e, ERR_PROTOCOL, "a tensor segment is not sealed against shrinking");
    struct stat st;
    if (fstat(fd, &st) != 0)
        return err_sys(e, errno, "cannot read the size of a tensor segment");
    if (st.st_size <= 0)
        return err_set(e, ERR_PROTOCOL, "a tensor segment is empty");
    return map_segment(s, fd, (size_t)st.st_size, e);
}

int segment_map_at(const struct segment *s, int fd, int how)
{
    void *at = mmap(s->base, s->bytes, PROT_READ | PROT_WRITE, how | MAP_NORESERVE | MAP_FIXED, fd, 0);

    return at == MAP_FAILED ? -1 : 0;
}

void segment_unmap(struct segment *s)
{
    if (s->base)
        munmap(s->base, s->bytes);
    s->base = NULL;
}
