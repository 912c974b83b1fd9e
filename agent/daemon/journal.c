#include "agent/daemon/journal.h"

#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#include "agent/daemon/daemon.h"
#include "common/base/log.h"

void journal_job(struct daemon *d, const struct lease *lease, const char *what)
{
    char text[512], name[HOST_NAME_MAX + 1] = "";
    char job[128], user[128], host[HOST_NAME_MAX + 8], unit[160], slots[32];
    const char *fields[] = {job, user, host, unit, slots, NULL};
    if (!log_enabled(LOG_INFO))
        return;
    (void)gethostname(name, sizeof name - 1);
    snprintf(text, sizeof text, "%s: job %s of %s %s", lease->unit, lease->job, lease->user, what);
    snprintf(job, sizeof job, "JOB=%s", lease->job);
    snprintf(user, sizeof user, "JOB_USER=%s", lease->user);
    snprintf(host, sizeof host, "HOST=%s", name);
    snprintf(unit, sizeof unit, "HVD_UNIT=%s", lease->unit);
    snprintf(slots, sizeof slots, "SLOTS=%u", lease->slots);
    if (!journal_line(&d->journal, JOURNAL_INFO, text, fields))
        log_info("%s", text);
}
