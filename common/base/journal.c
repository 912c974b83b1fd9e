#include "common/base/journal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"

#define TEXT_MAX 2048   /* of one value; longer ones are cut */
#define BUSY_US  100000 /* a warning may wait so long for its place in the journal's queue */

struct datagram {
    char bytes[16384];
    size_t used;
};

static bool may_write(struct journal *j, bool bad)
{
    uint64_t now = clock_now();
    if (now - j->since >= NSEC_PER_SEC) {
        j->since = now;
        j->lines[0] = j->lines[1] = 0;
    }
    if (j->lines[bad]++ < JOURNAL_BURST)
        return true;
    j->unsaid++;
    return false;
}

/* "NAME=" and the value, printable, on one line; left out when there is no room. */
static void add_field(struct datagram *d, const char *name, const char *value)
{
    size_t head = strlen(name), len = strnlen(value, TEXT_MAX);
    if (d->used + head + len + 2 > sizeof d->bytes)
        return;
    char *at = d->bytes + d->used;
    memcpy(at, name, head);
    memcpy(at + head, value, len);
    at[head + len] = '\0';
    log_printable(at + head);
    at[head + len] = '\n';
    d->used += head + len + 1;
}

static int open_socket(const char *path)
{
    struct sockaddr_un journal = {.sun_family = AF_UNIX};
    const struct timeval limit = {.tv_usec = BUSY_US};
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    snprintf(journal.sun_path, sizeof journal.sun_path, "%s", path);
    if (fd >= 0 && connect(fd, (const struct sockaddr *)&journal, sizeof journal) == 0 &&
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

/* A journal that was started anew has another socket: once more with that. 0: it is too busy. */
static int send_datagram(struct journal *j, const struct datagram *d, bool bad)
{
    bool waits = bad && (!j->busy || clock_now() - j->busy >= NSEC_PER_SEC);
    for (int i = 0; i < 2; i++) {
        if (j->fd < 0)
            j->fd = open_socket(j->socket);
        if (j->fd < 0)
            return -1;
        if (send(j->fd, d->bytes, d->used, MSG_NOSIGNAL | (waits ? 0 : MSG_DONTWAIT)) >= 0) {
            j->busy = 0;
            return 1;
        }
        if (errno == EAGAIN) {
            j->busy = waits ? clock_now() : j->busy;
            return 0;
        }
        close(j->fd);
        j->fd = -1;
    }
    return -1;
}

bool journal_line(struct journal *j, int priority, const char *text, const char *const *fields)
{
    struct datagram d;
    d.used = 0;
    if (!may_write(j, priority <= JOURNAL_WARN))
        return true;
    char weight[16];
    snprintf(weight, sizeof weight, "%d", priority);
    char more[TEXT_MAX + 64];
    snprintf(more, sizeof more, "%.*s", TEXT_MAX - 64, text);
    if (j->unsaid)
        snprintf(more + strlen(more), 64, " (%u lines before were left out)", j->unsaid);
    add_field(&d, "MESSAGE=", more);
    add_field(&d, "PRIORITY=", weight);
    add_field(&d, "SYSLOG_IDENTIFIER=", "hvdagent");
    for (const char *const *f = j->fields; f && *f; f++)
        add_field(&d, "", *f);
    for (; fields && *fields; fields++)
        add_field(&d, "", *fields);
    int rc = send_datagram(j, &d, priority <= JOURNAL_WARN);
    j->unsaid = rc > 0 ? 0 : j->unsaid + (rc == 0);
    return rc >= 0;
}
