/* hvdctl: the jobs of this host - what they are, how they are, what they say - and their end. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "agent/ctl/ask.h"
#include "agent/ctl/commands.h"
#include "agent/ctl/config.h"
#include "agent/ctl/jobs.h"
#include "agent/ctl/looks.h"
#include "agent/ctl/show.h"
#include "agent/daemon/metrics/metric_table.h"
#include "agent/daemon/protocol/wire.h"
#include "common/base/log.h"
#include "common/protocol/message.h"

/* ---- one job ------------------------------------------------------------------------------------------- */

/* Finds hvdrun in place of its sessions; with CTL_SESSIONS, hvdrun only if no session is here. */
static size_t choose_jobs(struct ctl_jobs *jobs, const char *word, enum ctl_kind kind, size_t *at,
                          struct err *e)
{
    if (ctl_jobs_find(jobs, e) < 0)
        return 0;
    ctl_jobs_keep(jobs, kind, word);
    size_t matches = ctl_jobs_named(jobs, word, at);
    if (matches > 0 || kind == CTL_HVDRUNS)
        return matches;
    ctl_jobs_free(jobs);
    return choose_jobs(jobs, word, CTL_HVDRUNS, at, e);
}

/* The only job whose name is that, or begins so; its directory is the caller's to close. -1 with *e; 1,
 * likewise: there is none. */
static int find_job(const char *word, enum ctl_kind kind, struct ctl_job *found, struct err *e)
{
    struct ctl_jobs jobs;
    size_t at = 0;
    if (!word) {
        err_set(e, ERR_USAGE, "which job?");
        return err_hint(e, "hvdctl ps lists them");
    }
    size_t matches = choose_jobs(&jobs, word, kind, &at, e);
    if (e->code)
        return -1;
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
    struct ctl_answers all;
    if (ctl_ask_status(job, HVD__INQUIRY__KIND__STATUS, CTL_ANSWER_MS, &all, e) < 0)
        return EXIT_REFUSED;
    struct ctl_seen *seen = calloc(all.count, sizeof *seen);
    for (size_t i = 0; seen && i < all.count; i++)
        seen[i] = (struct ctl_seen){job->uid, all.item[i], -1};
    if (!seen)
        err_set(e, ERR_MEMORY, "no memory for %zu hosts", all.count);
    else if (c->json)
        show_status_json(stdout, seen, all.count);
    else
        show_status(stdout, seen, all.count);
    free(seen);
    ctl_answers_free(&all);
    return e->code ? EXIT_REFUSED : 0;
}

static int run_on_job(const struct ctl_config *c, struct err *e,
                      int (*run)(const struct ctl_config *c, const struct ctl_job *job, struct err *e))
{
    struct ctl_job job;
    int rc = find_job(c->job, run == ctl_leave ? CTL_SESSIONS : CTL_HVDRUNS, &job, e);
    bool started = rc == 0 && job.directory >= 0;
    if (rc >= 0 && !started && run == run_status && ctl_waiting(c)) {
        err_clear(e);
        return 0;
    }
    if (rc != 0)
        return e->code == ERR_USAGE ? EXIT_USAGE : EXIT_REFUSED;
    int status = run(c, &job, e);
    if (job.directory >= 0)
        close(job.directory);
    return status;
}

/* ---- all jobs ------------------------------------------------------------------------------------------ */

static int run_ps(const struct ctl_config *c, struct err *e)
{
    struct ctl_look now;
    if (ctl_is_elsewhere(c))
        return ctl_go_there(c, e);
    if (ctl_look(&now, CTL_HVDRUNS, e) < 0)
        return EXIT_REFUSED;
    ctl_look_compare(&now, NULL);
    if (c->json)
        show_jobs_json(stdout, now.seen, now.count);
    else
        show_jobs(stdout, now.seen, now.count);
    ctl_look_free(&now);
    return 0;
}

static int run_metrics(const struct ctl_config *c, struct err *e)
{
    struct ctl_look now, hvdruns;
    struct err none = ERR_INIT; /* ignored: the host may have no managed agent */
    Hvd__Daemon question = HVD__DAEMON__INIT;
    Hvd__AgentQuery query = HVD__AGENT_QUERY__INIT;
    if (c->json)
        return run_ps(c, e);
    if (ctl_look(&now, CTL_SESSIONS, e) < 0)
        return EXIT_REFUSED;
    question.body_case = HVD__DAEMON__BODY_QUERY;
    question.query = &query;
    Hvd__Daemon *node = daemon_ask(&question, &none);
    show_metrics(stdout, now.seen, now.count, node ? node->status : NULL);
    err_clear(&none);
    if (ctl_look(&hvdruns, CTL_HVDRUNS, &none) == 0) {
        show_lateness_metrics(stdout, hvdruns.seen, hvdruns.count);
        ctl_look_free(&hvdruns);
    }
    err_clear(&none);
    query.gpus = true;
    Hvd__Daemon *gpus = node && node->status->gpus ? daemon_ask(&question, &none) : NULL;
    if (gpus)
        render_gpus(stdout, gpus->gpus);
    message_free(gpus);
    message_free(node);
    ctl_look_free(&now);
    return 0;
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
    } commands[] = {{"ps", run_ps, NULL, true},           {"status", NULL, run_status, false},
                    {"why", NULL, ctl_why, false},        {"logs", NULL, ctl_logs, false},
                    {"kill", NULL, ctl_kill, false},      {"resize", NULL, ctl_resize, false},
                    {"leave", NULL, ctl_leave, false},    {"top", ctl_top, NULL, false},
                    {"node", ctl_node, NULL, true},       {"drain", ctl_drain, NULL, true},
                    {"undrain", ctl_undrain, NULL, true}, {"gpus", ctl_gpus, NULL, true},
                    {"accept", ctl_accept, NULL, true},   {"metrics", run_metrics, NULL, false},
                    {"trace", NULL, ctl_trace, false},    {"page", NULL, ctl_page, false}};
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
    else if (status == 0 && c.bash_completion)
        options_print_bash(&ctl_program, stdout);
    else if (status == 0 && c.zsh_completion)
        options_print_zsh(&ctl_program, stdout);
    else if (status == 0 && c.fish_completion)
        options_print_fish(&ctl_program, stdout);
    else if (status == 0)
        status = run_command(&c, &e);
    if (e.code) {
        fprintf(stderr, "hvdctl: %s\n", e.text);
        if (e.hint[0])
            fprintf(stderr, "hvdctl: hint: %s\n", e.hint);
    }
    return fflush(stdout) != 0 && status == 0 ? EXIT_REFUSED : status;
}
