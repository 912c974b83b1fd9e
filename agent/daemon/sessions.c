#include "agent/daemon/sessions.h"

#include "common/base/clock.h"
#include "common/base/log.h"

#define UNITS LEASE_PREFIX "*.service"

static uint64_t now_ms(void)
{
    return clock_now() / NSEC_PER_MSEC;
}

/* Forgets sessions that are over. The timer runs again when the next session is due. */
static void settle_totals(uv_timer_t *timer)
{
    struct daemon *d = timer->data;
    uint64_t again = totals_settle(&d->totals, now_ms());
    if (again)
        uv_timer_start(timer, settle_totals, again, 0);
    totals_save(&d->totals);
}

void sessions_end(struct daemon *d, const char *unit)
{
    const struct lease *lease = leases_find(&d->leases, unit);
    if (lease) {
        d->metrics.ended++;
        daemon_log_job(d, lease, "has given its slots back");
    }
    leases_drop(&d->leases, unit);
    totals_left(&d->totals, unit, now_ms());
    settle_totals(&d->totals_timer);
    daemon_queue_changed(d);
}

void sessions_began(struct daemon *d, const char *unit)
{
    const struct lease *lease = leases_find(&d->leases, unit);
    if (lease)
        totals_began(&d->totals, lease, now_ms());
}

/* Other jobs may have what a session does not need any more. */
static void take_back(struct daemon *d, struct lease *lease, uint32_t slots)
{
    struct err e = ERR_INIT;
    if (slots == 0 || slots >= lease->slots)
        return;
    if (leases_shrink(&d->leases, lease, slots, &e) < 0) {
        log_error("%s", e.text);
        return;
    }
    daemon_log_job(d, lease, "has given some of its slots back");
    daemon_queue_changed(d);
}

/* The first report may be faster than systemd's word that the session runs. */
int sessions_report(struct daemon *d, uid_t uid, const Hvd__SessionReport *report, struct err *e)
{
    struct lease *lease = leases_find(&d->leases, report->unit);
    bool own = lease && lease->uid == uid;
    if (own)
        take_back(d, lease, report->slots);
    if (own)
        totals_began(&d->totals, lease, now_ms());
    int rc = totals_report(&d->totals, uid, report, now_ms(), e);
    if (report->over)
        settle_totals(&d->totals_timer);
    return rc;
}

static void confirm_unit(void *ctx, const char *unit)
{
    struct daemon *d = ctx;
    struct lease *lease = leases_find(&d->leases, unit);
    if (lease) {
        lease->confirmed = true;
        sessions_began(d, unit);
    } else {
        log_warning("%s runs without a lease", unit);
    }
}

int sessions_recover(struct daemon *d, struct err *e)
{
    if (units_list(&d->units, UNITS, confirm_unit, e) < 0)
        return -1;
    for (size_t i = d->leases.count; i > 0; i--)
        if (!d->leases.item[i - 1].confirmed)
            sessions_end(d, d->leases.item[i - 1].unit);
    for (size_t i = 0; i < d->totals.sessions; i++) /* their leases were given back before */
        if (!leases_find(&d->leases, d->totals.session[i].unit))
            totals_left(&d->totals, d->totals.session[i].unit, now_ms());
    settle_totals(&d->totals_timer);
    return 0;
}
