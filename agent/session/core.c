#include "agent/session/core.h"

#include <stdarg.h>
#include <stdio.h>

#include "agent/guard/job_record.h"
#include "agent/session/parts.h"
#include "common/base/clock.h"
#include "common/base/log.h"

/* ---- the job's end ------------------------------------------------------------------------------------- */

void session_set_cause(struct session *s, Hvd__Cause cause)
{
    if (s->end.cause == HVD__CAUSE__CAUSE_NONE && s->fsm.state < SESSION_LEAVING)
        s->end.cause = cause;
}

void session_abort_job(struct session *s, bool dead, const char *fmt, ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (s->fsm.state < SESSION_LEAVING) {
        /* Before Hello the launcher reads stderr only. */
        log_at(s->fsm.state == SESSION_HELLO ? LOG_ERROR : LOG_INFO, "%s", text);
        s->end.exit_status = 125;
        session_set_cause(s, HVD__CAUSE__CAUSE_FAULT);
        if (!dead)
            session_send_fault(s, "%s", text);
    }
    if (dead && !s->launcher.lost) {
        s->launcher.lost = true;
        stdio_discard(&s->stdio);
        session_schedule_check(s);
    }
    fsm_post(&s->fsm, EV_LOST);
}

/* The launcher will only see the channel's end. A line on stderr reaches it beside the channel. */
void session_starve(struct session *s, const char *what)
{
    if (s->fsm.state != SESSION_HELLO)
        log_error("%s", what);
    session_abort_job(s, true, "%s", what);
}

/* ---- to the launcher ----------------------------------------------------------------------------------- */

void session_schedule_check(struct session *s)
{
    s->turn.check_due = true;
}

void session_flush(struct session *s)
{
    struct session_launcher *l = &s->launcher;
    size_t len, done;
    if (l->lost)
        return;
    do {
        const uint8_t *bytes;
        len = channel_output(&l->channel, &bytes);
        done = len ? stream_write(&l->stream, bytes, len) : 0;
        channel_written(&l->channel, done);
    } while (len > 0 && done == len);
    if (channel_is_starved(&l->channel))
        session_starve(s, "no memory for a message to the launcher");
    if (l->dismissed && channel_is_drained(&l->channel))
        fsm_post(&s->fsm, EV_BYE);
}

void session_send_control(struct session *s, const Hvd__Control *message)
{
    if (s->launcher.lost)
        return;
    if (channel_send(&s->launcher.channel, message) < 0)
        session_starve(s, "no memory for what the launcher does not read");
    session_schedule_check(s);
}

void session_send_notice(struct session *s, uint32_t level, const char *fmt, ...)
{
    char text[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    log_debug("hvdrun is told: %s", text);
    Hvd__Notice notice = HVD__NOTICE__INIT;
    notice.level = level;
    notice.text = text;
    CONTROL(m, NOTICE, notice, &notice);
    session_send_control(s, &m);
}

void session_send_fault(struct session *s, const char *fmt, ...)
{
    char text[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    log_debug("hvdrun is told of a fault: %s", text);
    Hvd__Fault fault = HVD__FAULT__INIT;
    session_set_cause(s, HVD__CAUSE__CAUSE_FAULT);
    fault.text = text;
    fault.time = clock_now();
    CONTROL(m, FAULT, fault, &fault);
    session_send_control(s, &m);
}

/* ---- the job's directory ------------------------------------------------------------------------------- */

int session_make_directory(struct session *s, const struct job_dir_need *need, struct err *e)
{
    char name[128];
    if (s->dir.fd >= 0)
        return 0;
    snprintf(name, sizeof name, "%s-%u", s->job.name, s->launcher.channel.session);
    if (job_dir_create(&s->dir, name, need, e) < 0)
        return -1;
    guard_owns_directory(s->guard, s->dir.path);
    if (job_note_write(s->dir.fd, s->guard->pid, s->job.grace_ms, e) < 0)
        return -1;
    EACH_PART(s, p, directory) {
        if (p->directory(s, e) < 0)
            return -1;
    }
    return 0;
}
