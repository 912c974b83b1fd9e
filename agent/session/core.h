/* The lowest services of a session: every other file of the folder may call these functions. */
#pragma once

#include "agent/session/session.h"

/* ---- to the launcher ----------------------------------------------------------------------------------- */
/* Queues the message. It is written before the loop sleeps. */
void session_send_control(struct session *s, const Hvd__Control *message);
/* A sentence for the user; `level` as in common/base/log.h. */
void session_send_notice(struct session *s, uint32_t level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* The reason why the job fails here: the launcher ends the job. */
void session_send_fault(struct session *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Writes as much as the channel takes. */
void session_flush(struct session *s);

/* ---- the job's end ------------------------------------------------------------------------------------- */
/* Keeps the cause of the job's end, unless there is one already. */
void session_set_cause(struct session *s, Hvd__Cause cause);
/* The job cannot go on; `dead`: the channel cannot be used any more either. */
void session_abort_job(struct session *s, bool dead, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* The session has no memory for what the launcher has to receive or has sent. */
void session_starve(struct session *s, const char *what);

/* ---- later --------------------------------------------------------------------------------------------- */
/* Something happened that may lead on. Before the loop sleeps, workers that have ended are reported, events
 * that follow are posted, and queued messages are written: once for many calls. */
void session_schedule_check(struct session *s);

/* ---- the job's directory ------------------------------------------------------------------------------- */
/* Makes the directory, unless it is there, and tells the parts; `need` may be NULL. */
int session_make_directory(struct session *s, const struct job_dir_need *need, struct err *e);
