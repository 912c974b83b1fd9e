#include "agent/daemon/state_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/write_all.h"

#define DRAIN_FILE "drained"
#define NODE_FILE  "node"

static void path_in(const char *directory, const char *name, const char *end, char path[PATH_MAX])
{
    snprintf(path, PATH_MAX, "%s/%s%s", directory, name, end);
}

void state_file_read(const char *directory, const char *name, char *text, size_t size)
{
    char path[PATH_MAX];
    path_in(directory, name, "", path);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    ssize_t n = fd < 0 ? 0 : read(fd, text, size - 1);
    text[n > 0 ? n : 0] = '\0';
    if (fd >= 0)
        close(fd);
}

int state_file_write(const char *directory, const char *name, const char *text, struct err *e)
{
    char path[PATH_MAX], whole[PATH_MAX];
    path_in(directory, name, ".new", path);
    path_in(directory, name, "", whole);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0)
        return err_sys(e, errno, "cannot write %s", path);
    int rc = write_all(fd, text, strlen(text));
    int saved = errno;
    close(fd);
    if (rc == 0 && rename(path, whole) == 0)
        return 0;
    saved = rc == 0 ? errno : saved;
    (void)unlink(path);
    return err_sys(e, saved, "cannot write %s", whole);
}

int state_file_remove(const char *directory, const char *name, struct err *e)
{
    char path[PATH_MAX];
    path_in(directory, name, "", path);
    return unlink(path) == 0 || errno == ENOENT ? 0 : err_sys(e, errno, "cannot remove %s", path);
}

/* ---- the texts ----------------------------------------------------------------------------------------- */

void drain_read(const char *directory, char reason[DRAIN_MAX])
{
    state_file_read(directory, DRAIN_FILE, reason, DRAIN_MAX);
    log_printable(reason);
}

int drain_write(const char *directory, const char *reason, struct err *e)
{
    char cut[DRAIN_MAX];
    snprintf(cut, sizeof cut, "%s", reason);
    return cut[0] ? state_file_write(directory, DRAIN_FILE, cut, e)
                  : state_file_remove(directory, DRAIN_FILE, e);
}

int node_id_open(const char *directory, char text[NODE_ID_TEXT], struct err *e)
{
    struct err unwritten = ERR_INIT;
    uint64_t part[2];
    state_file_read(directory, NODE_FILE, text, NODE_ID_TEXT);
    if (strspn(text, "0123456789abcdef") == NODE_ID_TEXT - 1)
        return 0;
    if (getrandom(part, sizeof part, 0) != (ssize_t)sizeof part)
        return err_set(e, ERR_SYSTEM, "the kernel gives no random numbers");
    snprintf(text, NODE_ID_TEXT, "%016llx%016llx", (unsigned long long)part[0], (unsigned long long)part[1]);
    if (state_file_write(directory, NODE_FILE, text, &unwritten) < 0)
        log_warning("%s", unwritten.text);
    return 0;
}
