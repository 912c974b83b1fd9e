#include "launcher/output_files.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/log.h"

struct output_files {
    uint32_t size;
    bool append;
    bool failed; /* said once */
    int *fd;     /* two per rank; -1: given up */
};

static int make_directory(const char *path, struct err *e)
{
    struct stat st;
    int errnum = mkdir(path, 0777) == 0 ? 0 : errno;
    if (errnum == EEXIST && stat(path, &st) == 0)
        errnum = S_ISDIR(st.st_mode) ? 0 : ENOTDIR;
    return errnum ? err_sys(e, errnum, "--output-filename: cannot create directory %s", path) : 0;
}

static int make_parents(const char *path, struct err *e)
{
    char part[PATH_MAX];
    int n = snprintf(part, sizeof part, "%s", path);
    if (n < 0 || (size_t)n >= sizeof part)
        return err_set(e, ERR_USAGE, "--output-filename: the path is too long");
    for (char *p = part + 1; *p; p++) {
        if (*p != '/')
            continue;
        *p = '\0';
        if (make_directory(part, e) < 0)
            return -1;
        *p = '/';
    }
    return make_directory(part, e);
}

static int open_rank(struct output_files *files, const char *directory, uint32_t rank, int width,
                     struct err *e)
{
    static const char *const names[] = {"stdout", "stderr"};
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/rank.%0*u", directory, width, rank);
    if (make_directory(path, e) < 0)
        return -1;
    for (int i = 0; i < 2; i++) {
        int n = snprintf(path, sizeof path, "%s/rank.%0*u/%s", directory, width, rank, names[i]);
        if (n < 0 || (size_t)n >= sizeof path)
            return err_set(e, ERR_USAGE, "--output-filename: the path is too long");
        int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | (files->append ? O_APPEND : O_TRUNC), 0666);
        if (fd < 0)
            return err_sys(e, errno, "--output-filename: cannot create %s", path);
        files->fd[2 * (size_t)rank + (size_t)i] = fd;
    }
    return 0;
}

struct output_files *output_files_new(const char *directory, uint32_t size, bool append, struct err *e)
{
    struct output_files *files = calloc(1, sizeof *files);
    if (!files || !(files->fd = malloc(2 * (size_t)size * sizeof *files->fd))) {
        free(files);
        err_set(e, ERR_MEMORY, "no memory for %u output files", 2 * size);
        return NULL;
    }
    files->size = size;
    files->append = append;
    memset(files->fd, 0xff, 2 * (size_t)size * sizeof *files->fd);
    int width = snprintf(NULL, 0, "%u", size - 1);
    int rc = make_parents(directory, e);
    for (uint32_t rank = 0; rc == 0 && rank < size; rank++)
        rc = open_rank(files, directory, rank, width, e);
    if (rc == 0)
        return files;
    output_files_free(files);
    return NULL;
}

static int write_all(int fd, const uint8_t *bytes, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, bytes, len);
        if (n < 0 && errno != EINTR)
            return -1;
        if (n > 0) {
            bytes += n;
            len -= (size_t)n;
        }
    }
    return 0;
}

void output_files_write(struct output_files *files, uint32_t rank, enum frame_stream stream,
                        const void *bytes, size_t len)
{
    int *fd = &files->fd[2 * (size_t)rank + (stream == STREAM_STDERR)];
    if (*fd < 0 || len == 0 || write_all(*fd, bytes, len) == 0)
        return;
    if (!files->failed)
        log_warning("--output-filename: cannot write the file of rank %u: %s; the job goes on without it",
                    rank, strerror(errno));
    files->failed = true;
    close(*fd);
    *fd = -1;
}

void output_files_free(struct output_files *files)
{
    if (!files)
        return;
    for (size_t i = 0; i < 2 * (size_t)files->size; i++)
        if (files->fd[i] >= 0)
            close(files->fd[i]);
    free(files->fd);
    free(files);
}
