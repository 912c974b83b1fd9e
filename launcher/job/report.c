#include "launcher/job/report.h"

#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "launcher/job/job_internal.h"
#include "launcher/job/report_json.h"

static void say_last_words(const struct job *j)
{
    char lines[TAIL_MAX + 1];
    if (!j->output || output_last_words(j->output, j->outcome.end.rank, lines) == 0)
        return;
    log_say("hvdrun: the last lines of its stderr:\n");
    for (const char *line = lines; line; line = strchr(line, '\n'), line = line ? line + 1 : NULL)
        log_say("hvdrun:   %.*s\n", (int)strcspn(line, "\n"), line);
}

/* Without the fault itself when that was a rank's. */
static void say_consequences(const struct outcome *o)
{
    uint32_t failed = o->faults - (o->faults > 0 && o->first_is_rank);
    const char *be = o->ended == 1 ? " was" : "s were";
    if (o->ended && failed)
        log_say("hvdrun: after that, %u rank%s ended by hvdrun, %u failed too\n", o->ended, be, failed);
    else if (o->ended)
        log_say("hvdrun: after that, %u rank%s ended by hvdrun\n", o->ended, be);
    else if (failed)
        log_say("hvdrun: after that, %u rank%s failed too\n", failed, failed == 1 ? "" : "s");
}

void report_say(const struct job *j)
{
    const struct outcome *o = &j->outcome;
    if (!o->failed)
        return;
    log_say("hvdrun: %s\n", o->text);
    if (o->hint[0])
        log_say("hvdrun: hint: %s\n", o->hint);
    if (o->first_is_rank)
        say_last_words(j);
    if (outcome_ended_by(o))
        log_say("hvdrun: the job went on; what ended it: %s\n", outcome_ended_by(o));
    say_consequences(o);
}

void report_write(const struct job *j, int exit_status)
{
    struct err e = ERR_INIT;
    if (j->config->report && report_json_write(j, exit_status, clock_now(), j->config->report, &e) < 0)
        log_error("%s", e.text);
}
