#include "agent/daemon/journal.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

#include "agent/daemon/daemon.h"
#include "common/clock.h"
#include "common/log.h"

#define PRIORITY_INFO 6 /* of syslog(3) */

static bool may_write(struct journal *j)
{
    uint64_t now = clock_now();
    if (now - j->since >= NSEC_PER_SEC) {
        j->since = now;
        j->lines = 0;
    }
    if (j->lines++ < JOURNAL_BURST)
        return true;
    j->unsaid++;
    return false;
}

void journal_job(struct daemon *d, const struct lease *lease, const char *what)
{
    char text[512], more[64] = "", name[HOST_NAME_MAX + 1] = "";
    char job[128], user[128], host[HOST_NAME_MAX + 8], unit[160], slots[32];
    const char *fields[] = {job, user, host, unit, slots, NULL};
    if (!log_enabled(LOG_INFO) || !may_write(&d->journal))
        return;
    if (d->journal.unsaid)
        snprintf(more, sizeof more, " (%u lines before were left out)", d->journal.unsaid);
    d->journal.unsaid = 0;
    (void)gethostname(name, sizeof name - 1);
    snprintf(text, sizeof text, "%s: job %s of %s %s%s", lease->unit, lease->job, lease->user, what, more);
    log_printable(text);
    snprintf(job, sizeof job, "JOB=%s", lease->job);
    snprintf(user, sizeof user, "JOB_USER=%s", lease->user);
    snprintf(host, sizeof host, "HOST=%s", name);
    snprintf(unit, sizeof unit, "HVD_UNIT=%s", lease->unit);
    snprintf(slots, sizeof slots, "SLOTS=%u", lease->slots);
    if (d->units.ops->journal(PRIORITY_INFO, text, fields) < 0)
        log_info("%s", text);
}
