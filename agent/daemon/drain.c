#include "agent/daemon/drain.h"

#include <stdio.h>

#include "agent/daemon/state_file.h"
#include "common/base/log.h"

#define FILE_NAME "drained"

void drain_read(const char *directory, char reason[DRAIN_MAX])
{
    kept_file_read(directory, FILE_NAME, reason, DRAIN_MAX);
    log_printable(reason);
}

int drain_write(const char *directory, const char *reason, struct err *e)
{
    char cut[DRAIN_MAX];
    snprintf(cut, sizeof cut, "%s", reason);
    return cut[0] ? kept_file_write(directory, FILE_NAME, cut, e) : kept_file_remove(directory, FILE_NAME, e);
}
