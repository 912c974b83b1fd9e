#include "launcher/job/report.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/ranks.h"
#include "common/page/page.h"
#include "launcher/cli/environment.h"
#include "launcher/io/tail.h"
#include "launcher/job/core.h"
#include "launcher/job/outcome.h"

/* ---- on stderr ----------------------------------------------------------------------------------------- */

/* MPICH may refuse to start processes without a question to the agent, which would say so. */
static void say_refused_spawn(const struct rank_end *end, const char *lines)
{
    if (end->aborted &&
        (strstr(lines, "MPI_Comm_spawn(command=") || strstr(lines, "MPI_Comm_spawn_multiple(count=")))
        log_say("hvdrun: rank %u asked for new processes: MPI_Comm_spawn is not offered\n", end->rank);
}

static void say_last_words(const struct job *j)
{
    char lines[TAIL_MAX + 1];
    if (!j->output || output_last_words(j->output, j->outcome.end.rank, lines) == 0)
        return;
    log_say("hvdrun: the last lines of its stderr:\n");
    for (const char *line = lines; line; line = strchr(line, '\n'), line = line ? line + 1 : NULL)
        log_say("hvdrun:   %.*s\n", (int)strcspn(line, "\n"), line);
    say_refused_spawn(&j->outcome.end, lines);
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

void report_say_outcome(const struct job *j)
{
    const struct outcome *o = &j->outcome;
    if (!o->failed || o->unread)
        return;
    log_say("hvdrun: %s\n", o->text);
    if (o->hint[0])
        log_say("hvdrun: hint: %s\n", o->hint);
    if (o->first_is_rank)
        say_last_words(j);
    if (outcome_ended_by(o))
        log_say("hvdrun: the job went on; the cause of its end: %s\n", outcome_ended_by(o));
    say_consequences(o);
}

/* All LOST ranks are alike, and so are all that were NOT_STARTED. */
enum end_kind { ENDED, LOST, NOT_STARTED };

static enum end_kind kind_of(const struct rank_state *r)
{
    return r->ended ? ENDED : r->started ? LOST : NOT_STARTED;
}

static bool are_alike(const struct rank_state *a, const struct rank_state *b)
{
    const struct rank_end *x = &a->end, *y = &b->end;
    if (kind_of(a) != kind_of(b))
        return false;
    return !a->ended ||
           (x->status == y->status && x->signal == y->signal && x->core_dumped == y->core_dumped &&
            x->by_us == y->by_us && x->not_shut_down == y->not_shut_down && x->oom == y->oom &&
            x->aborted == y->aborted && x->abort_code == y->abort_code && !x->gave_up && !y->gave_up);
}

static void describe_end(const struct rank_state *r, char *text, size_t size)
{
    char how[RANK_END_TEXT];
    if (!r->ended) {
        snprintf(text, size, "%s", r->started ? "its host was lost" : "not started");
        return;
    }
    rank_end_describe(&r->end, how, sizeof how);
    snprintf(text, size, "%s%s", how, r->end.by_us ? ", by hvdrun" : "");
}

void report_say_exit_codes(const struct job *j)
{
    uint32_t size = j->planned ? j->plan.size : 0, count;
    uint32_t *list = calloc(size ? size : 1, sizeof *list);
    bool *said = calloc(size ? size : 1, sizeof *said);
    for (uint32_t i = 0; list && said && i < size; i++) {
        char text[RANK_END_TEXT + 16], ranks[1600];
        count = 0;
        for (uint32_t k = i; k < size && !said[i]; k++)
            if (!said[k] && are_alike(&j->rank[i], &j->rank[k]))
                list[count++] = k;
        for (uint32_t k = 0; k < count; k++)
            said[list[k]] = true;
        if (count == 0)
            continue;
        describe_end(&j->rank[i], text, sizeof text);
        log_say("hvdrun: rank%s %s: %s\n", count == 1 ? "" : "s",
                ranks_text_short(list, count, ranks, sizeof ranks), text);
    }
    free(list);
    free(said);
}

/* ---- --report ------------------------------------------------------------------------------------------ */

static double to_seconds(const struct job *j, uint64_t time)
{
    return ((double)time - (double)j->epoch->began) / 1e9;
}

/* null for what has not happened. */
static void put_time(struct json *w, const struct job *j, const char *name, uint64_t time)
{
    if (time)
        json_real(w, name, to_seconds(j, time));
    else
        json_null(w, name);
}

static void put_last_words(struct json *w, const struct job *j, uint32_t rank)
{
    char lines[TAIL_MAX + 1];
    char *rest = lines, *line;
    json_array(w, "stderr");
    if (output_last_words(j->output, rank, lines) > 0)
        while ((line = strsep(&rest, "\n")))
            json_text(w, NULL, line);
    json_end(w);
}

static void put_cause(struct json *w, const struct job *j)
{
    const struct outcome *o = &j->outcome;
    char how[RANK_END_TEXT];
    if (!o->failed) {
        json_null(w, "cause");
        return;
    }
    json_object(w, "cause");
    json_text(w, "text", o->text);
    json_filled_text(w, "hint", o->hint);
    put_time(w, j, "at", o->time);
    if (o->first_is_rank) {
        const struct rank_state *r = &j->rank[o->end.rank];
        rank_end_describe(&o->end, how, sizeof how);
        json_unsigned(w, "rank", o->end.rank);
        json_text(w, "host", j->host_names[j->plan.rank[o->end.rank].host]);
        json_unsigned(w, "pid", o->end.pid);
        json_text(w, "how", how);
        json_real(w, "after", outcome_seconds_after(r->started, o->time));
        put_last_words(w, j, o->end.rank);
    }
    json_end(w);
}

static void put_hosts(struct json *w, const struct job *j)
{
    json_array(w, "hosts");
    for (uint32_t i = 0; j->host && i < j->host_count; i++) {
        const struct host *h = &j->host[i];
        const struct plan_host *p = j->planned && h->planned ? &j->plan.host[h->plan_index] : NULL;
        json_object(w, NULL);
        json_text(w, "host", h->label);
        json_text(w, "address", h->address);
        json_unsigned(w, "ranks", p ? p->ranks : 0);
        json_known_unsigned(w, "first_rank", p, p ? p->rank[0] : 0);
        json_text(w, "error", h->err.code ? h->err.text : NULL);
        json_end(w);
    }
    json_end(w);
}

/* The end of the rank, as its session told it. */
static void put_end(struct json *w, const struct rank_state *r)
{
    const struct rank_end *end = &r->end;
    json_known_unsigned(w, "status", !end->signal, end->status);
    json_known_unsigned(w, "signal", end->signal, end->signal);
    json_bool(w, "core_dumped", end->core_dumped);
    json_bool(w, "oom", end->oom);
    json_bool(w, "by_us", end->by_us);
    json_bool(w, "told_peer", end->told_peer);
    json_bool(w, "not_shut_down", end->not_shut_down);
    json_unsigned(w, "peak_kib", r->peak_kib);
    json_real(w, "user_time", (double)r->user_us / 1e6);
    json_real(w, "system_time", (double)r->system_us / 1e6);
}

static void put_ranks(struct json *w, const struct job *j)
{
    json_array(w, "ranks");
    for (uint32_t i = 0; j->planned && i < j->plan.size; i++) {
        const struct rank_state *r = &j->rank[i];
        json_object(w, NULL);
        json_unsigned(w, "rank", i);
        json_text(w, "host", j->host_names[j->plan.rank[i].host]);
        json_unsigned(w, "local_rank", j->plan.rank[i].local_rank);
        json_known_unsigned(w, "pid", r->pid, r->pid);
        put_time(w, j, "start", r->started);
        put_time(w, j, "end", r->ended);
        if (r->ended)
            put_end(w, r);
        json_unsigned(w, "output_bytes", output_bytes(j->output, i));
        JOB_PARTS_CALL(j, report_rank, j, i, w);
        json_end(w);
    }
    json_end(w);
}

static void put_phases(struct json *w, const struct job *j, uint64_t over)
{
    const char *const names[] = {"connecting", "starting", "running", "ending"};
    const uint64_t began[] = {j->began, j->phases.starting, j->phases.running, j->phases.ending, over};
    json_array(w, "phases");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t next = i + 1;
        while (!began[next])
            next++;
        if (!began[i])
            continue; /* it did not come to that */
        json_object(w, NULL);
        json_text(w, "phase", names[i]);
        json_real(w, "start", to_seconds(j, began[i]));
        json_real(w, "end", to_seconds(j, began[next]));
        json_end(w);
    }
    json_end(w);
}

static void put_restarts(struct json *w, const struct job *j)
{
    json_array(w, "restarts");
    for (uint32_t i = 0; i < j->epoch->number; i++) {
        const struct job_past *past = &j->epoch->past[i];
        json_object(w, NULL);
        json_text(w, "cause", past->cause);
        json_integer(w, "exit_status", past->exit_status);
        json_real(w, "start", to_seconds(j, past->began));
        json_real(w, "end", to_seconds(j, past->ended));
        json_array(w, "left_out");
        for (size_t k = 0; k < past->left_out_count; k++)
            json_text(w, NULL, past->left_out[k]);
        json_end(w);
        json_end(w);
    }
    json_end(w);
    json_unsigned(w, "restarts_left", (uint64_t)j->config->max_restarts - j->epoch->number);
}

/* The time of day when the job began, as ISO 8601. */
static void put_start(struct json *w, const struct job *j)
{
    char text[40];
    struct tm t;
    time_t began = time(NULL) - (time_t)((clock_now() - j->epoch->began) / NSEC_PER_SEC);
    if (gmtime_r(&began, &t) && strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &t) > 0)
        json_text(w, "started", text);
}

/* The words of the programs stay as they are. */
static void put_command_line(struct json *w, const struct config *config)
{
    json_array(w, "hvdrun_command");
    for (char *const *word = config->words; *word; word++)
        if (programs_have_word(&config->programs, *word))
            json_text(w, NULL, *word);
        else
            environment_put_word(word > config->words ? word[-1] : NULL, *word, w);
    json_end(w);
}

/* exit_status NULL: the job goes on. */
static void put_job(FILE *out, const struct job *j, const int *exit_status, uint64_t over)
{
    struct json w;
    json_begin(&w, out);
    json_object(&w, NULL);
    json_text(&w, "hvdrun", HVD_VERSION);
    json_text(&w, "job", j->name);
    put_start(&w, j);
    put_command_line(&w, j->config);
    programs_put(&j->config->programs, &w);
    json_unsigned(&w, "size", j->plan.size);
    json_known_integer(&w, "exit_status", exit_status, exit_status ? *exit_status : 0);
    json_real(&w, "took", to_seconds(j, over));
    if (j->env)
        environment_put(&j->env[0], &w);
    put_cause(&w, j);
    json_text(&w, "ended_by", outcome_ended_by(&j->outcome));
    put_restarts(&w, j);
    put_phases(&w, j, over);
    put_hosts(&w, j);
    JOB_PARTS_CALL(j, report, j, &w);
    put_ranks(&w, j);
    json_end(&w);
}

/* A rename would replace a device or a pipe. */
static int check_target(const char *path, struct err *e)
{
    struct stat st;
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
        return err_set(e, ERR_USAGE, "--report: %s is not a regular file", path);
    return 0;
}

int report_check(const char *path, struct err *e)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    if ((size_t)snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) + 1 : 1,
                         slash ? path : ".") >= sizeof folder)
        return err_set(e, ERR_USAGE, "--report: the path is too long");
    if (access(folder, W_OK | X_OK) < 0)
        return err_set(e, ERR_USAGE, "--report %s: cannot write in %s: %s", path, folder, strerror(errno));
    return check_target(path, e);
}

/* As JSON, or as a page, which is made from the JSON. */
static int write_report(FILE *out, const struct job *j, int exit_status, uint64_t over, const char *path)
{
    char *json = NULL;
    size_t size = 0;
    if (!page_is_wanted(path)) {
        put_job(out, j, &exit_status, over);
        return 0;
    }
    FILE *memory = open_memstream(&json, &size);
    if (memory)
        put_job(memory, j, &exit_status, over);
    bool whole = memory && !ferror(memory);
    if (memory && fclose(memory) == 0 && whole)
        page_write(out, json, size);
    else
        whole = false;
    free(json);
    return whole ? 0 : -1;
}

static int write_file(const struct job *j, int exit_status, uint64_t over, const char *path, struct err *e)
{
    char partial[PATH_MAX];
    int n = snprintf(partial, sizeof partial, "%s.%s", path, j->name);
    if (n < 0 || (size_t)n >= sizeof partial)
        return err_set(e, ERR_SYSTEM, "--report: the path is too long");
    if (check_target(path, e) < 0)
        return -1;
    int fd = open(partial, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    FILE *out = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (!out) {
        if (fd >= 0)
            close(fd);
        return err_sys(e, errno, "--report: cannot create %s", partial);
    }
    bool bad = write_report(out, j, exit_status, over, path) < 0 || ferror(out);
    if (fclose(out) != 0 || bad || rename(partial, path) < 0) {
        int errnum = errno;
        unlink(partial);
        return err_sys(e, errnum, "--report: cannot write %s", path);
    }
    return 0;
}

void report_write_json(const struct job *j, int exit_status)
{
    struct err e = ERR_INIT;
    if (j->config->report && write_file(j, exit_status, clock_now(), j->config->report, &e) < 0)
        log_error("%s", e.text);
}

char *report_now(const struct job *j, size_t *size)
{
    char *json = NULL;
    FILE *out = open_memstream(&json, size);
    if (!out)
        return NULL;
    put_job(out, j, NULL, clock_now());
    bool bad = ferror(out);
    if (fclose(out) == 0 && !bad)
        return json;
    free(json);
    return NULL;
}
