#include "agent/daemon/gpu/kernel_log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log.h"

#define KERNEL   0 /* the facility, behind the three bits of the weight */
#define MARK     "NVRM: Xid (PCI:"
#define READS    4096 /* at once: a log that is written faster than we read has an end, too */
#define FUNCTION 0

bool kernel_log_parse(const char *record, struct xid *x)
{
    unsigned weight, domain, bus, device;
    int end = 0;
    const char *text = strchr(record, ';');
    if (!text || sscanf(record, "%u,%*u,%" SCNu64 ",", &weight, &x->us) != 2 || weight >> 3 != KERNEL ||
        strncmp(++text, MARK, strlen(MARK)) != 0)
        return false;
    text += strlen(MARK);
    if (sscanf(text, "%8x:%2x:%2x%n", &domain, &bus, &device, &end) != 3)
        return false;
    text += end + strcspn(text + end, ")");
    end = 0;
    if (sscanf(text, "): %" SCNu32 "%n", &x->number, &end) != 1 || !end)
        return false;
    snprintf(x->bus, sizeof x->bus, "%04x:%02x:%02x.%d", domain, bus, device, FUNCTION);
    snprintf(x->text, sizeof x->text, "%s", text + end + strspn(text + end, ", "));
    log_printable(x->text);
    return true;
}

int kernel_log_open(struct kernel_log *l, const char *path, struct err *e)
{
    l->have = 0;
    l->skipping = false;
    l->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    return l->fd < 0 ? err_sys(e, errno, "cannot read the kernel's log, %s", path) : 0;
}

/* Lines that begin with a blank belong to the record before, and say nothing of Xids. */
static void take_lines(struct kernel_log *l, void (*see)(void *ctx, const struct xid *x), void *ctx)
{
    char *from = l->record, *end = memchr(from, '\n', l->have);
    struct xid x;
    while (end) {
        *end = '\0';
        if (!l->skipping && kernel_log_parse(from, &x))
            see(ctx, &x);
        l->skipping = false;
        from = end + 1;
        end = memchr(from, '\n', l->have - (size_t)(from - l->record));
    }
    l->have -= (size_t)(from - l->record);
    memmove(l->record, from, l->have);
    if (l->have == sizeof l->record) {
        l->have = 0;
        l->skipping = true;
    }
}

void kernel_log_read(struct kernel_log *l, void (*see)(void *ctx, const struct xid *x), void *ctx)
{
    for (int i = 0; l->fd >= 0 && i < READS; i++) {
        ssize_t n = read(l->fd, l->record + l->have, sizeof l->record - l->have);
        if (n < 0 &&
            (errno == EINTR || errno == EPIPE)) /* the kernel has written over what we had not read */
            continue;
        if (n <= 0)
            return;
        l->have += (size_t)n;
        take_lines(l, see, ctx);
    }
}

void kernel_log_close(struct kernel_log *l)
{
    if (l->fd >= 0)
        close(l->fd);
    l->fd = -1;
}
