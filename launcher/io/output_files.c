#include "launcher/io/output_files.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/file.h"
#include "launcher/allocation/allocation.h"
#include "launcher/io/output_names.h"

extern char **environ;

struct output_files {
    const char *name;
    const struct plan *plan;
    const char *const *host_names;
    uint32_t first; /* ranks of the start */
    uint32_t size;  /* room */
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

/* Of the directory in which a file will be; the same as that of the file before costs nothing. */
static int make_parents(const char *path, char made[PATH_MAX], struct err *e)
{
    char part[PATH_MAX];
    const char *last = strrchr(path, '/');
    size_t len = last ? (size_t)(last - path) : 0;
    if (len == 0 || (strncmp(made, path, len) == 0 && !made[len]))
        return 0;
    snprintf(made, PATH_MAX, "%.*s", (int)len, path);
    snprintf(part, sizeof part, "%s", made);
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

static int open_file(struct output_files *files, const char *name, const struct output_owner *owner,
                     char made[PATH_MAX], struct err *e)
{
    char path[PATH_MAX];
    if (output_name(name, owner, path, sizeof path, e) < 0 || make_parents(path, made, e) < 0)
        return -1;
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | (files->append ? O_APPEND : O_TRUNC), 0666);
    if (fd < 0)
        return err_sys(e, errno, "--output-filename: cannot create %s", path);
    files->fd[2 * (size_t)owner->rank + (owner->stream == STREAM_STDERR)] = fd;
    return 0;
}

static int open_rank(struct output_files *files, uint32_t rank, char made[PATH_MAX], struct err *e)
{
    char job[24];
    const char *batch_job = allocation_job(environ);
    uint32_t host = files->plan->rank[rank].host;
    struct output_owner owner = {.size = files->first,
                                 .job = batch_job ? batch_job : job,
                                 .rank = rank,
                                 .host_index = host,
                                 .host = files->host_names[host],
                                 .stream = STREAM_STDOUT};
    snprintf(job, sizeof job, "%ld", (long)getpid());
    if (open_file(files, files->name, &owner, made, e) < 0)
        return -1;
    owner.stream = STREAM_STDERR;
    return open_file(files, files->name, &owner, made, e);
}

int output_files_add(struct output_files *files, uint32_t rank, struct err *e)
{
    char made[PATH_MAX] = "";
    return open_rank(files, rank, made, e);
}

static int open_all(struct output_files *files, struct err *e)
{
    char made[PATH_MAX] = "";
    int rc = 0;
    for (uint32_t rank = 0; rc == 0 && rank < files->first; rank++)
        rc = open_rank(files, rank, made, e);
    return rc;
}

struct output_files *output_files_new(const char *name, const struct plan *plan, uint32_t room,
                                      const char *const *host_names, bool append, struct err *e)
{
    struct output_files *files = calloc(1, sizeof *files);
    if (files)
        files->fd = malloc(2 * (size_t)room * sizeof *files->fd);
    if (!files || !files->fd) {
        free(files);
        err_set(e, ERR_MEMORY, "no memory for %u output files", 2 * plan->size);
        return NULL;
    }
    files->name = name;
    files->plan = plan;
    files->host_names = host_names;
    files->first = plan->size;
    files->size = room;
    files->append = append;
    memset(files->fd, 0xff, 2 * (size_t)room * sizeof *files->fd);
    if (open_all(files, e) == 0)
        return files;
    output_files_free(files);
    return NULL;
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
