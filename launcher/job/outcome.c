#include "launcher/job/outcome.h"

#include <stdio.h>
#include <string.h>

#include "common/base/log.h"

bool rank_end_failed(const struct rank_end *end)
{
    return end->gave_up || (!end->by_us && (end->status || end->signal || end->not_shut_down));
}

static void describe_status(const struct rank_end *end, char *out, size_t size)
{
    if (end->signal && end->oom)
        snprintf(out, size, "killed by the kernel for lack of memory (OOM)");
    else if (end->signal)
        snprintf(out, size, "killed by signal %u (%s)%s", end->signal, strsignal((int)end->signal),
                 end->core_dumped ? ", core dumped" : "");
    else if (end->not_shut_down)
        snprintf(out, size, "exit status 0 after hvd_init without hvd_shutdown");
    else if (end->aborted)
        snprintf(out, size, "MPI_Abort with %d, exit status %u", (int)end->abort_code, end->status);
    else
        snprintf(out, size, "exit status %u", end->status);
}

void rank_end_describe(const struct rank_end *end, char *out, size_t size)
{
    char how[160];
    describe_status(end, how, sizeof how);
    if (end->gave_up)
        snprintf(out, size, "gave up: %.*s; %s", RANK_SENTENCE_MAX - 1, end->gave_up, how);
    else
        snprintf(out, size, "%s", how);
}

/* 128 + signal, the status, or 1. 0 for an end that is no fault. 1 for a rank that gave up and that hvdrun
 * had to end. A host may say anything: a number that does not fit into an exit status must not become 0. */
static int rank_end_exit_status(const struct rank_end *end)
{
    if (end->gave_up && end->by_us)
        return 1;
    if (end->signal)
        return end->signal < 128 ? 128 + (int)end->signal : 255;
    if (end->status)
        return end->status < 256 ? (int)end->status : 255;
    return end->not_shut_down || end->gave_up ? 1 : 0;
}

/* True when this fault is the earliest so far. */
static bool is_first(struct outcome *o, uint64_t time, bool rank, bool told)
{
    bool gives_way = o->first_is_told && !told;
    if (o->failed && !gives_way && (time >= o->time || (told && !o->first_is_told)))
        return false;
    o->failed = true;
    o->first_is_told = told;
    o->first_is_rank = rank;
    o->time = time;
    o->hint[0] = '\0';
    return true;
}

/* Of the first fault, unless a limit has decided. */
static void set_status(struct outcome *o, int exit_status)
{
    if (!o->decided)
        o->exit_status = exit_status;
}

double outcome_seconds_after(uint64_t started, uint64_t time)
{
    return started && time > started ? (double)(time - started) / 1e9 : 0.0;
}

void outcome_rank_ended(struct outcome *o, const struct rank_end *end, const char *host, const char *program,
                        uint64_t started, uint64_t time)
{
    char how[RANK_END_TEXT];
    if (end->by_us)
        o->ended++;
    if (!rank_end_failed(end))
        return;
    o->faults++;
    if (!is_first(o, time, true, end->told_peer))
        return;
    rank_end_describe(end, how, sizeof how);
    snprintf(o->text, sizeof o->text,
             "rank %u on %s (%.200s%spid %u) failed first: %s, %.1f s after its start", end->rank, host,
             program ? program : "", program ? ", " : "", end->pid, how,
             outcome_seconds_after(started, time));
    log_printable(o->text); /* a command may have any name */
    set_status(o, rank_end_exit_status(end));
    o->end = *end;
}

void outcome_fault(struct outcome *o, uint64_t time, int exit_status, const char *text, const char *hint)
{
    if (!is_first(o, time, false, false))
        return;
    snprintf(o->text, sizeof o->text, "%s", text);
    snprintf(o->hint, sizeof o->hint, "%s", hint ? hint : "");
    log_printable(o->text); /* parts of both may be a host's own words */
    log_printable(o->hint);
    set_status(o, exit_status);
}

void outcome_stop(struct outcome *o, uint64_t time, int exit_status, const char *text, bool going,
                  bool decides)
{
    outcome_fault(o, time, exit_status, text, NULL);
    if (!going || o->ended_by[0])
        return;
    snprintf(o->ended_by, sizeof o->ended_by, "%s", text);
    o->decided = decides;
    if (decides)
        o->exit_status = exit_status;
}

const char *outcome_ended_by(const struct outcome *o)
{
    return o->ended_by[0] && strcmp(o->ended_by, o->text) != 0 ? o->ended_by : NULL;
}
