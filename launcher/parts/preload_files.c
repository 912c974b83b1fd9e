#include "launcher/parts/preload_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILES_MAX 1024 /* agent/session/preload_files.h */
#define READ_SIZE (256u << 10)

/* ---- before -------------------------------------------------------------------------------------------- */

static int refuse_changed(const struct preload_file *f, struct err *e)
{
    return err_set(e, ERR_SYSTEM, "--preload: %s has changed while it was copied", f->path);
}

static bool is_unchanged(const struct preload_file *f)
{
    struct stat now;
    return fstat(f->fd, &now) == 0 && now.st_size == f->st.st_size &&
           now.st_mtim.tv_sec == f->st.st_mtim.tv_sec && now.st_mtim.tv_nsec == f->st.st_mtim.tv_nsec;
}

static int add_all(struct preload_file *f, const struct auth_ops *auth, void *digest, uint8_t *bytes,
                   struct err *e)
{
    uint64_t at = 0, size = (uint64_t)f->st.st_size;
    while (at < size) {
        ssize_t n = pread(f->fd, bytes, READ_SIZE, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(e, errno, "--preload: cannot read %s", f->path);
        if (n == 0)
            return refuse_changed(f, e);
        if (auth->digest_add(digest, bytes, (size_t)n) < 0)
            return err_set(e, ERR_SYSTEM, "--preload: OpenSSL makes no SHA-256");
        at += (uint64_t)n;
    }
    return at == size && is_unchanged(f) ? 0 : refuse_changed(f, e);
}

static int hash_file(struct preload_file *f, const struct auth_ops *auth, struct err *e)
{
    uint8_t *bytes = malloc(READ_SIZE);
    void *digest = auth->digest_begin();
    int rc = bytes && digest ? add_all(f, auth, digest, bytes, e)
                             : err_set(e, ERR_MEMORY, "--preload: no memory to read %s", f->path);
    if (digest && auth->digest_end(digest, rc == 0 ? f->digest : NULL) < 0)
        rc = err_set(e, ERR_SYSTEM, "--preload: OpenSSL makes no SHA-256");
    free(bytes);
    return rc;
}

/* O_NONBLOCK: a FIFO that nobody writes is refused, not waited for. */
static int open_file(struct preload_file *f, struct err *e)
{
    f->fd = open(f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (f->fd < 0)
        return err_set(e, ERR_USAGE, "--preload: cannot open %s: %s", f->path, strerror(errno));
    if (fstat(f->fd, &f->st) < 0)
        return err_sys(e, errno, "--preload: cannot read %s", f->path);
    if (S_ISDIR(f->st.st_mode)) {
        err_set(e, ERR_USAGE, "--preload: %s is a directory", f->path);
        return err_hint(e, "an archive of it can be copied, and unpacked there");
    }
    if (!S_ISREG(f->st.st_mode))
        return err_set(e, ERR_USAGE, "--preload: %s is no regular file", f->path);
    return 0;
}

static int check_names(const struct preload *p, size_t i, struct err *e)
{
    for (size_t k = 0; k < i; k++)
        if (strcmp(p->file[k].name, p->file[i].name) == 0)
            return err_set(e, ERR_USAGE, "--preload: %s and %s would both become %s", p->file[k].path,
                           p->file[i].path, p->file[i].name);
    return 0;
}

int preload_files_open(struct preload *p, const struct option_list *list, struct err *e)
{
    const struct auth_ops *auth = list->count ? auth_open(e) : NULL;
    *p = (struct preload){0};
    if (list->count == 0)
        return 0;
    if (list->count > FILES_MAX)
        return err_set(e, ERR_USAGE, "--preload: %zu files are more than %d", list->count, FILES_MAX);
    p->file = auth ? calloc(list->count, sizeof *p->file) : NULL;
    if (!p->file)
        return auth ? err_set(e, ERR_MEMORY, "no memory for --preload") : -1;
    for (size_t i = 0; i < list->count; i++) {
        const char *path = list->item[i], *slash = strrchr(path, '/');
        p->file[i] = (struct preload_file){.path = path, .name = slash ? slash + 1 : path, .fd = -1};
        p->count++;
        if (open_file(&p->file[i], e) < 0 || check_names(p, i, e) < 0)
            return -1;
    }
    for (size_t i = 0; i < p->count; i++) {
        if (hash_file(&p->file[i], auth, e) < 0)
            return -1;
        p->bytes += (uint64_t)p->file[i].st.st_size;
    }
    return 0;
}

void preload_files_close(struct preload *p)
{
    for (size_t i = 0; i < p->count; i++)
        if (p->file[i].fd >= 0)
            close(p->file[i].fd);
    free(p->file);
    *p = (struct preload){0};
}

uint32_t preload_of(const struct preload *p, const char *command)
{
    bool here = strncmp(command, "./", 2) == 0;
    for (size_t i = 0; i < p->count; i++)
        if (strcmp(p->file[i].path, command) == 0 || (here && strcmp(p->file[i].name, command + 2) == 0))
            return (uint32_t)i + 1;
    return 0;
}

int preload_check_command(const struct preload *p, const char *command, struct err *e)
{
    uint32_t number = preload_of(p, command);
    if (number && !(p->file[number - 1].st.st_mode & 0111))
        return err_set(e, ERR_NOT_EXECUTABLE, "cannot execute %s: it is not executable", command);
    return 0;
}

/* ---- on the way to a host ------------------------------------------------------------------------------ */

/* Empty files have no bytes to be sent. */
static void skip_sent(const struct preload *p, struct preload_place *place)
{
    while (place->file < p->count && place->offset >= (uint64_t)p->file[place->file].st.st_size) {
        place->file++;
        place->offset = 0;
    }
}

bool preload_is_sent(const struct preload *p, const struct preload_place *place)
{
    struct preload_place next = *place;
    skip_sent(p, &next);
    return next.file == p->count;
}

ptrdiff_t preload_read(const struct preload *p, struct preload_place *place, uint32_t *index, void *bytes,
                       size_t size, struct err *e)
{
    skip_sent(p, place);
    if (place->file == p->count || place->credit == 0)
        return 0;
    const struct preload_file *f = &p->file[place->file];
    uint64_t left = (uint64_t)f->st.st_size - place->offset;
    size = left < size ? (size_t)left : size;
    size = place->credit < size ? (size_t)place->credit : size;
    ssize_t n = pread(f->fd, bytes, size, (off_t)place->offset);
    if (n < 0 && errno != EINTR)
        return err_sys(e, errno, "--preload: cannot read %s", f->path);
    if (n == 0 || ((uint64_t)n == left && !is_unchanged(f)))
        return refuse_changed(f, e);
    *index = (uint32_t)place->file;
    place->offset += n > 0 ? (uint64_t)n : 0;
    place->credit -= n > 0 ? (uint64_t)n : 0;
    return n > 0 ? n : 0;
}
