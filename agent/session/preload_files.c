#include "agent/session/preload_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/protocol/message.h"

#define DIRECTORY "preload"

/* ---- the announcement ---------------------------------------------------------------------------------- */

static bool is_name(const char *name)
{
    return *name && strlen(name) <= NAME_MAX && !strchr(name, '/') && strcmp(name, ".") != 0 &&
           strcmp(name, "..") != 0;
}

int preload_files_check(const Hvd__Preload *asked, struct err *e)
{
    if (asked->n_file == 0 || asked->n_file > PRELOAD_FILES_MAX)
        return err_set(e, ERR_PROTOCOL, "%zu files to be copied", asked->n_file);
    for (size_t i = 0; i < asked->n_file; i++) {
        const Hvd__PreloadFile *f = asked->file[i];
        bool again = false;
        for (size_t k = 0; k < i; k++)
            again = again || strcmp(asked->file[k]->name, f->name) == 0;
        if (!is_name(f->name) || again || f->digest.len != AUTH_DIGEST_SIZE || f->size > INT64_MAX / 2)
            return err_set(e, ERR_PROTOCOL, "file %zu cannot be copied: its name is %.80s", i, f->name);
    }
    return 0;
}

struct job_dir_need preload_files_need(const Hvd__Preload *asked)
{
    struct job_dir_need need = {0};
    for (size_t i = 0; i < asked->n_file; i++) {
        need.bytes += asked->file[i]->size;
        need.executes = need.executes || asked->file[i]->executable;
    }
    return need;
}

/* ---- one file after the other -------------------------------------------------------------------------- */

void preload_files_init(struct preload_files *p)
{
    *p = (struct preload_files){.fd = -1, .dir_fd = -1};
}

static const Hvd__PreloadFile *current_file(const struct preload_files *p)
{
    return p->list->file[p->at];
}

static int fail_copy(const struct preload_files *p, int errnum, struct err *e)
{
    err_sys(e, errnum, "cannot copy %s, of %llu bytes, to %s", current_file(p)->name,
            (unsigned long long)current_file(p)->size, p->path);
    if (errnum == ENOSPC || errnum == EDQUOT)
        err_hint(e, "XDG_RUNTIME_DIR or TMPDIR can name another place there");
    return -1;
}

/* Reserves the file's size at once, so that a full file system fails before the job begins. */
static int begin_file(struct preload_files *p, struct err *e)
{
    const Hvd__PreloadFile *f = current_file(p);
    p->got = 0;
    p->fd = openat(p->dir_fd, f->name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, f->executable ? 0700 : 0600);
    if (p->fd < 0)
        return fail_copy(p, errno, e);
    if (f->size > 0 && fallocate(p->fd, 0, 0, (off_t)f->size) < 0 && errno != EOPNOTSUPP && errno != ENOSYS)
        return fail_copy(p, errno, e);
    p->digest = p->auth->digest_begin();
    return p->digest ? 0 : err_set(e, ERR_SYSTEM, "OpenSSL makes no SHA-256");
}

static int finish_file(struct preload_files *p, struct err *e)
{
    const Hvd__PreloadFile *f = current_file(p);
    uint8_t digest[AUTH_DIGEST_SIZE];
    void *context = p->digest;
    int fd = p->fd;
    p->digest = NULL;
    p->fd = -1;
    if (p->auth->digest_end(context, digest) < 0) {
        close(fd);
        return err_set(e, ERR_SYSTEM, "OpenSSL makes no SHA-256");
    }
    if (close(fd) < 0)
        return fail_copy(p, errno, e);
    if (memcmp(digest, f->digest.data, sizeof digest) != 0)
        return err_set(e, ERR_HOST,
                       "%s was damaged on its way, or changed while it was copied: its SHA-256 "
                       "is another",
                       f->name);
    p->at++;
    return 0;
}

/* Goes on to the next file that has bytes. */
static int advance_file(struct preload_files *p, struct err *e)
{
    while (!preload_files_are_complete(p)) {
        if (p->fd < 0 && begin_file(p, e) < 0)
            return -1;
        if (p->got < current_file(p)->size)
            return 0;
        if (finish_file(p, e) < 0)
            return -1;
    }
    return 0;
}

int preload_files_open(struct preload_files *p, const struct job_dir *dir, Hvd__Preload *asked, struct err *e)
{
    p->list = asked;
    p->at = 0;
    p->auth = auth_open(e);
    if (!p->auth)
        return -1;
    snprintf(p->path, sizeof p->path, "%s/" DIRECTORY, dir->path);
    bool made = mkdirat(dir->fd, DIRECTORY, 0700) == 0;
    p->dir_fd = made ? openat(dir->fd, DIRECTORY, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
    if (p->dir_fd < 0)
        return err_sys(e, errno, "cannot make %s", p->path);
    return advance_file(p, e);
}

int preload_files_put(struct preload_files *p, uint32_t index, const uint8_t *bytes, size_t len,
                      struct err *e)
{
    if (!p->list || preload_files_are_complete(p) || index != p->at || len > current_file(p)->size - p->got)
        return err_set(e, ERR_PROTOCOL, "%zu bytes of file %u, which are not its own", len, index);
    if (p->auth->digest_add(p->digest, bytes, len) < 0)
        return err_set(e, ERR_SYSTEM, "OpenSSL makes no SHA-256");
    p->got += len;
    while (len > 0) {
        ssize_t n = write(p->fd, bytes, len);
        if (n < 0 && errno != EINTR)
            return fail_copy(p, errno, e);
        bytes += n > 0 ? n : 0;
        len -= n > 0 ? (size_t)n : 0;
    }
    return advance_file(p, e);
}

bool preload_files_are_complete(const struct preload_files *p)
{
    return p->list && p->at == p->list->n_file;
}

bool preload_files_path(const struct preload_files *p, uint32_t number, char *out, size_t size)
{
    if (!preload_files_are_complete(p) || number == 0 || number > p->list->n_file)
        return false;
    int n = snprintf(out, size, "%s/%s", p->path, p->list->file[number - 1]->name);
    return n > 0 && (size_t)n < size;
}

void preload_files_close(struct preload_files *p)
{
    if (p->digest)
        (void)p->auth->digest_end(p->digest, NULL);
    if (p->fd >= 0)
        close(p->fd);
    if (p->dir_fd >= 0)
        close(p->dir_fd);
    if (p->list)
        message_free(p->list);
    preload_files_init(p);
}
