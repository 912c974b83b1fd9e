/* Faults of GPUs in the kernel's log: NVIDIA's driver writes
 *
 *     NVRM: Xid (PCI:0000:3b:00): 79, pid=..., GPU has fallen off the bus.
 *
 * Read are the records of /dev/kmsg, which has the last of this boot; each carries microseconds since boot.
 * Only what the kernel itself wrote counts. Reading never waits. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"

#define KERNEL_LOG_RECORD 8192 /* none is longer */
#define XID_TEXT          96

struct xid {
    char bus[32]; /* "0000:3b:00.0" */
    uint32_t number;
    uint64_t us;
    char text[XID_TEXT]; /* the text behind the number; printable */
};

struct kernel_log {
    int fd; /* -1: it is not open */
    bool skipping;
    char record[KERNEL_LOG_RECORD];
    size_t have;
};

/* A record without its line's end; false when it tells of no Xid. */
bool kernel_log_parse(const char *record, struct xid *x);
int kernel_log_open(struct kernel_log *l, const char *path, struct err *e);
/* All that came since the last time. */
void kernel_log_read(struct kernel_log *l, void (*see)(void *ctx, const struct xid *x), void *ctx);
void kernel_log_close(struct kernel_log *l);
