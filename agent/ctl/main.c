/* hvdctl: the jobs of this host - what they are, how they are, what they say - and their end. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "agent/ctl/commands.h"
#include "agent/ctl/config.h"
#include "agent/ctl/jobs.h"
#include "agent/ctl/show.h"
#include "agent/daemon/metrics/metric_table.h"
#include "agent/daemon/protocol/wire.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/protocol/message.h"

#define EXIT_REFUSED 1 /* no such job, or it has ended, or not yours */
#define EXIT_USAGE   2

/* ---- looks --------------------------------------------------------------------------------------------- */

struct look {
    struct ctl_seen *seen;
    size_t count;
    uint64_t at;
};

static void free_seen(struct look *l)
{
    for (size_t i = 0; i < l->count; i++)
        message_free(l->seen[i].answer);
    free(l->seen);
    *l = (struct look){.seen = NULL};
}

/* The time for a user's next session: silent sessions of the same user have used up theirs. */
static int answer_limit(const struct ctl_jobs *jobs, size_t next, const uint64_t *lost_ms)
{
    uint64_t lost = 0;
    for (size_t i = 0; i < next; i++)
        lost += jobs->item[i].uid == jobs->item[next].uid ? lost_ms[i] : 0;
    return lost < CTL_ANSWER_MS ? (int)(CTL_ANSWER_MS - lost) : 0;
}

static void ask_all(struct look *l, const struct ctl_jobs *jobs, uint64_t *lost_ms)
{
    size_t unasked = 0;
    for (size_t i = 0; i < jobs->count; i++) {
        struct err why = ERR_INIT;
        uint64_t begin = clock_now();
        int limit = answer_limit(jobs, i, lost_ms);
        Hvd__Answer *answer = limit ? ctl_ask_status(&jobs->item[i], limit, &why) : NULL;
        unasked += limit == 0;
        if (answer)
            l->seen[l->count++] = (struct ctl_seen){jobs->item[i].uid, answer, -1};
        else if (why.code && why.code != ERR_CLOSED)
            log_warning("job %s: %s", jobs->item[i].name, why.text);
        if (!answer)
            lost_ms[i] = (clock_now() - begin) / NSEC_PER_MSEC;
    }
    if (unasked)
        log_warning("%zu more jobs were not asked, whose users have others that do not answer", unasked);
}

/* All jobs of this host. Those that end meanwhile are left out; one that does not answer is named. */
static int look_around(struct look *l, struct err *e)
{
    struct ctl_jobs jobs;
    *l = (struct look){.at = clock_now()};
    if (ctl_jobs_find(&jobs, e) < 0)
        return -1;
    l->seen = calloc(jobs.count + 1, sizeof *l->seen);
    uint64_t *lost_ms = calloc(jobs.count + 1, sizeof *lost_ms);
    if (l->seen && lost_ms)
        ask_all(l, &jobs, lost_ms);
    else
        err_set(e, ERR_MEMORY, "no memory for the list of jobs");
    free(lost_ms);
    ctl_jobs_free(&jobs);
    if (e->code)
        free_seen(l);
    return e->code ? -1 : 0;
}

static double cpu_share(uint64_t cpu_ms, uint64_t ms)
{
    return ms ? 100.0 * (double)cpu_ms / (double)ms : 0;
}

/* Of the time between two looks, or of the whole life. */
static void compute_shares(struct look *l, const struct look *before)
{
    for (size_t i = 0; i < l->count; i++) {
        const Hvd__JobStatus *s = l->seen[i].answer->status;
        l->seen[i].cpu_percent = cpu_share(s->cpu_ms, s->run_ms);
        for (size_t k = 0; before && k < before->count; k++) {
            const Hvd__JobStatus *b = before->seen[k].answer->status;
            if (b->session_pid == s->session_pid && strcmp(b->job, s->job) == 0 && s->cpu_ms >= b->cpu_ms)
                l->seen[i].cpu_percent =
                    cpu_share(s->cpu_ms - b->cpu_ms, (l->at - before->at) / NSEC_PER_MSEC);
        }
    }
}

/* ---- one job ------------------------------------------------------------------------------------------- */

/* The only job whose name is that, or begins so; its directory is the caller's to close. -1 with *e; 1,
 * likewise: there is none. */
static int find_job(const char *word, struct ctl_job *found, struct err *e)
{
    struct ctl_jobs jobs;
    size_t at = 0;
    if (!word) {
        err_set(e, ERR_USAGE, "which job?");
        return err_hint(e, "hvdctl ps lists them");
    }
    if (ctl_jobs_find(&jobs, e) < 0)
        return -1;
    size_t matches = ctl_jobs_named(&jobs, word, &at);
    if (matches == 1) {
        *found = jobs.item[at];
        jobs.item[at].directory = -1;
    }
    bool alike = matches > 1 && strcmp(jobs.item[at].name, jobs.item[at + 1].name) == 0;
    ctl_jobs_free(&jobs);
    if (matches == 1)
        return 0;
    if (matches)
        err_set(e, ERR_HOST, "%zu jobs have a name that begins with %s", matches, word);
    else
        err_set(e, ERR_HOST, "no job on this host is named %s", word);
    (void)err_hint(e, alike     ? "they are different users': ask as one of them"
                      : matches ? "say more of the name"
                                : "hvdctl ps lists those that you may see");
    return matches ? -1 : 1;
}

static int run_status(const struct ctl_config *c, const struct ctl_job *job, struct err *e)
{
    struct ctl_seen seen = {job->uid, ctl_ask_status(job, CTL_ANSWER_MS, e), -1};
    if (!seen.answer)
        return EXIT_REFUSED;
    if (c->json)
        show_status_json(stdout, &seen);
    else
        show_status(stdout, &seen);
    message_free(seen.answer);
    return 0;
}

static int run_on_job(const struct ctl_config *c, struct err *e,
                      int (*run)(const struct ctl_config *c, const struct ctl_job *job, struct err *e))
{
    struct ctl_job job;
    int rc = find_job(c->job, &job, e);
    if (rc > 0 && run == run_status && ctl_waiting(c)) {
        err_clear(e);
        return 0;
    }
    if (rc != 0)
        return e->code == ERR_USAGE ? EXIT_USAGE : EXIT_REFUSED;
    int status = run(c, &job, e);
    close(job.directory);
    return status;
}

/* ---- all jobs ------------------------------------------------------------------------------------------ */

static int run_ps(const struct ctl_config *c, struct err *e)
{
    struct look now;
    if (look_around(&now, e) < 0)
        return EXIT_REFUSED;
    compute_shares(&now, NULL);
    if (c->json)
        show_jobs_json(stdout, now.seen, now.count);
    else
        show_jobs(stdout, now.seen, now.count);
    free_seen(&now);
    return 0;
}

static int run_metrics(const struct ctl_config *c, struct err *e)
{
    struct look now;
    struct err none = ERR_INIT; /* ignored: the host may have no managed agent */
    Hvd__Daemon question = HVD__DAEMON__INIT;
    Hvd__AgentQuery query = HVD__AGENT_QUERY__INIT;
    if (c->json)
        return run_ps(c, e);
    if (look_around(&now, e) < 0)
        return EXIT_REFUSED;
    question.body_case = HVD__DAEMON__BODY_QUERY;
    question.query = &query;
    Hvd__Daemon *node = daemon_ask(&question, &none);
    show_metrics(stdout, now.seen, now.count, node ? node->status : NULL);
    query.gpus = true;
    Hvd__Daemon *gpus = node && node->status->gpus ? daemon_ask(&question, &none) : NULL;
    if (gpus)
        render_gpus(stdout, gpus->gpus);
    message_free(gpus);
    message_free(node);
    free_seen(&now);
    return 0;
}

static int screen_lines(void)
{
    struct winsize w;
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_row > 4 ? w.ws_row - 1 : 1000;
}

static int run_top(const struct ctl_config *c, struct err *e)
{
    struct look before = {.seen = NULL}, now;
    bool screen = isatty(STDOUT_FILENO);
    for (int64_t i = 0; c->count == 0 || i < c->count; i++) {
        if (i > 0)
            poll(NULL, 0, (int)c->interval_ms);
        if (look_around(&now, e) < 0)
            break;
        compute_shares(&now, i > 0 ? &before : NULL);
        if (screen && !c->json)
            fputs("\033[H\033[2J", stdout);
        if (c->json)
            show_jobs_json(stdout, now.seen, now.count);
        else
            show_top(stdout, now.seen, now.count, screen ? screen_lines() : 1000);
        free_seen(&before);
        before = now;
        if (fflush(stdout) != 0)
            break;
    }
    free_seen(&before);
    return e->code ? EXIT_REFUSED : 0;
}

/* ---- the command --------------------------------------------------------------------------------------- */

/* One for each job, of everybody. */
static void raise_descriptors(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return;
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
}

static int run_command(const struct ctl_config *c, struct err *e)
{
    static const struct {
        const char *name;
        int (*all)(const struct ctl_config *c, struct err *e);
        int (*one)(const struct ctl_config *c, const struct ctl_job *job, struct err *e);
        bool takes_host;
    } commands[] = {{"ps", run_ps, NULL, false},          {"status", NULL, run_status, false},
                    {"logs", NULL, ctl_logs, false},      {"kill", NULL, ctl_kill, false},
                    {"resize", NULL, ctl_resize, false},  {"leave", NULL, ctl_leave, false},
                    {"top", run_top, NULL, false},        {"node", ctl_node, NULL, true},
                    {"drain", ctl_drain, NULL, true},     {"undrain", ctl_undrain, NULL, true},
                    {"gpus", ctl_gpus, NULL, true},       {"accept", ctl_accept, NULL, true},
                    {"metrics", run_metrics, NULL, false}};
    for (size_t i = 0; c->command && i < sizeof commands / sizeof *commands; i++) {
        if (strcmp(c->command, commands[i].name) != 0)
            continue;
        if (commands[i].one)
            return run_on_job(c, e, commands[i].one);
        if (!c->job || commands[i].takes_host)
            return commands[i].all(c, e);
        err_set(e, ERR_USAGE, "unexpected argument: %s", c->job);
        return EXIT_USAGE;
    }
    if (c->command)
        err_set(e, ERR_USAGE, "unknown command: %s", c->command);
    else
        err_set(e, ERR_USAGE, "no command");
    err_hint(e, "hvdctl --help lists the commands");
    return EXIT_USAGE;
}

int main(int argc, char **argv)
{
    struct ctl_config c;
    struct err e = ERR_INIT;
    log_init("hvdctl", LOG_WARNING);
    raise_descriptors();
    signal(SIGPIPE, SIG_IGN); /* a reader that leaves is seen when stdout is flushed */
    int status = ctl_config_parse(&c, argc, argv, &e) < 0 ? EXIT_USAGE : 0;
    if (status == 0 && c.help)
        options_print_help(&ctl_program, stdout);
    else if (status == 0 && c.version)
        printf("hvdctl %s\n", HVD_VERSION);
    else if (status == 0)
        status = run_command(&c, &e);
    if (e.code) {
        fprintf(stderr, "hvdctl: %s\n", e.text);
        if (e.hint[0])
            fprintf(stderr, "hvdctl: hint: %s\n", e.hint);
    }
    return fflush(stdout) != 0 && status == 0 ? EXIT_REFUSED : status;
}
