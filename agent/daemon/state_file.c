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
#include "common/base/file.h"

#define DRAIN_FILE "drained"
#define NODE_FILE  "node"

static void path_in(const char *directory, const char *name, char path[PATH_MAX])
{
    snprintf(path, PATH_MAX, "%s/%s", directory, name);
}

/* The text is empty when there is no file; no more than fits. */
static void read_state(const char *directory, const char *name, char *text, size_t size)
{
    char path[PATH_MAX];
    path_in(directory, name, path);
    (void)file_read(path, O_NOFOLLOW, text, size);
}

static int write_state(const char *directory, const char *name, const char *text, struct err *e)
{
    char path[PATH_MAX];
    path_in(directory, name, path);
    return file_replace(path, 0644, text, strlen(text), "", e);
}

static int remove_state(const char *directory, const char *name, struct err *e)
{
    char path[PATH_MAX];
    path_in(directory, name, path);
    return unlink(path) == 0 || errno == ENOENT ? 0 : err_sys(e, errno, "cannot remove %s", path);
}

/* ---- the texts ----------------------------------------------------------------------------------------- */

void drain_read(const char *directory, char reason[DRAIN_MAX])
{
    read_state(directory, DRAIN_FILE, reason, DRAIN_MAX);
    log_printable(reason);
}

int drain_write(const char *directory, const char *reason, struct err *e)
{
    char cut[DRAIN_MAX];
    snprintf(cut, sizeof cut, "%s", reason);
    return cut[0] ? write_state(directory, DRAIN_FILE, cut, e) : remove_state(directory, DRAIN_FILE, e);
}

int node_id_open(const char *directory, char text[NODE_ID_TEXT], struct err *e)
{
    struct err unwritten = ERR_INIT;
    uint64_t part[2];
    read_state(directory, NODE_FILE, text, NODE_ID_TEXT);
    if (strspn(text, "0123456789abcdef") == NODE_ID_TEXT - 1)
        return 0;
    if (getrandom(part, sizeof part, 0) != (ssize_t)sizeof part)
        return err_set(e, ERR_SYSTEM, "the kernel gives no random numbers");
    snprintf(text, NODE_ID_TEXT, "%016llx%016llx", (unsigned long long)part[0], (unsigned long long)part[1]);
    if (write_state(directory, NODE_FILE, text, &unwritten) < 0)
        log_warning("%s", unwritten.text);
    return 0;
}
