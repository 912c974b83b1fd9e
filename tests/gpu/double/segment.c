/* Memory that processes share: a memfd that others open through /proc of the process that made it, or, where
 * hosts with process numbers of their own are to meet, a file in HVD_DOUBLE_DIR. A name is of use only while
 * its maker lives or the file is there; one that no longer means the same memory (another inode) is not
 * opened. */
#include "tests/gpu/double/double.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define SEGMENT_MAGIC 0x48764475u

static void path_of(char *path, size_t size, uint64_t id)
{
    snprintf(path, size, "%s/hvd-double-%016llx", getenv("HVD_DOUBLE_DIR"), (unsigned long long)id);
}

static bool map(struct segment *segment, size_t size)
{
    segment->at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, segment->fd, 0);
    segment->size = size;
    if (segment->at == MAP_FAILED)
        close(segment->fd);
    return segment->at != MAP_FAILED;
}

static uint64_t id_of(const struct segment *segment)
{
    const char *dash = strrchr(segment->path, '-');
    return dash ? strtoull(dash + 1, NULL, 16) : 0;
}

bool double_segment_new(struct segment *segment, size_t size, bool anywhere)
{
    const char *dir = getenv("HVD_DOUBLE_DIR");
    uint64_t id;

    memset(segment, 0, sizeof *segment);
    if (anywhere && dir && *dir) {
        if (getrandom(&id, sizeof id, 0) != sizeof id)
            return false;
        path_of(segment->path, sizeof segment->path, id);
        segment->fd = open(segment->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    } else {
        segment->fd = memfd_create("gpu-double", MFD_CLOEXEC);
    }
    if (segment->fd < 0)
        return false;
    if (ftruncate(segment->fd, (off_t)size) < 0) {
        close(segment->fd);
        return false;
    }
    return map(segment, size);
}

void double_segment_tell(const struct segment *segment, struct segment_name *name)
{
    struct stat is = {0};

    fstat(segment->fd, &is);
    *name = (struct segment_name){SEGMENT_MAGIC, getpid(),      segment->fd,    0,
                                  is.st_ino,     segment->size, id_of(segment), 0};
}

bool double_segment_open(struct segment *segment, const struct segment_name *name, size_t size)
{
    char path[64];
    struct stat is;

    memset(segment, 0, sizeof *segment);
    if (name->magic != SEGMENT_MAGIC)
        return false;
    if (name->id) {
        if (!getenv("HVD_DOUBLE_DIR"))
            return false;
        path_of(segment->path, sizeof segment->path, name->id);
        segment->fd = open(segment->path, O_RDWR | O_CLOEXEC);
    } else {
        snprintf(path, sizeof path, "/proc/%d/fd/%d", name->pid, name->fd);
        segment->fd = open(path, O_RDWR | O_CLOEXEC);
    }
    if (segment->fd < 0)
        return false;
    if (fstat(segment->fd, &is) < 0 || is.st_ino != name->inode) {
        close(segment->fd);
        return false;
    }
    return (is.st_size >= (off_t)size || ftruncate(segment->fd, (off_t)size) == 0) && map(segment, size);
}

bool double_segment_grow(struct segment *segment, size_t size)
{
    if (ftruncate(segment->fd, (off_t)size) < 0)
        return false;
    munmap(segment->at, segment->size);
    return map(segment, size);
}

/* By locks of open files, which end with who has them. */
bool double_segment_hold(const struct segment *segment)
{
    struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_len = 1};

    return fcntl(segment->fd, F_OFD_SETLK, &lock) == 0;
}

bool double_segment_is_held(const struct segment *segment)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};

    return fcntl(segment->fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

void double_segment_close(struct segment *segment)
{
    munmap(segment->at, segment->size);
    close(segment->fd);
    if (segment->path[0])
        unlink(segment->path);
    segment->path[0] = 0;
}
