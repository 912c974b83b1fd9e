#include "launcher/report.h"

#include <stdio.h>
#include <string.h>

#include "common/clock.h"
#include "common/log.h"
#include "launcher/job_state.h"
#include "launcher/report_json.h"

static void say_last_words(const struct job *j)
{
    char lines[TAIL_MAX + 1];
    if (!j->output || output_last_words(j->output, j->outcome.end.rank, lines) == 0)
        return;
    fprintf(stderr, "hvdrun: the last lines of its stderr:\n");
    for (const char *line = lines; line; line = strchr(line, '\n'), line = line ? line + 1 : NULL)
        fprintf(stderr, "hvdrun:   %.*s\n", (int)strcspn(line, "\n"), line);
}

/* Without the fault itself when that was a rank's. */
static void say_consequences(const struct outcome *o)
{
    uint32_t failed = o->faults - (o->faults > 0 && o->first_is_rank);
    if (o->ended)
        fprintf(stderr, "hvdrun: after that, %u rank%s ended by hvdrun%s", o->ended,
                o->ended == 1 ? " was" : "s were", failed ? "" : "\n");
    if (failed)
        fprintf(stderr, "%s%u %s\n", o->ended ? ", " : "hvdrun: after that, ", failed,
                o->ended      ? "failed too"
                : failed == 1 ? "rank failed too"
                              : "ranks failed too");
}

void report_say(const struct job *j)
{
    const struct outcome *o = &j->outcome;
    if (!o->failed)
        return;
    fprintf(stderr, "hvdrun: %s\n", o->text);
    if (o->hint[0])
        fprintf(stderr, "hvdrun: hint: %s\n", o->hint);
    if (o->first_is_rank)
        say_last_words(j);
    say_consequences(o);
}

void report_write(const struct job *j, int exit_status)
{
    struct err e = ERR_INIT;
    if (j->config->report && report_json_write(j, exit_status, clock_now(), j->config->report, &e) < 0)
        log_error("%s", e.text);
}
