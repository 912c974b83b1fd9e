/* hvdctl node, gpus, accept, drain and undrain: the leases of a host's managed agent, its GPUs, and root's
 * word that it takes no new jobs. */
#include "agent/ctl/commands.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "agent/ctl/show.h"
#include "agent/daemon/protocol/wire.h"
#include "common/base/json.h"
#include "common/protocol/message.h"

#define WORDS     12
#define NO_REASON "no reason was given"

/* ---- another host -------------------------------------------------------------------------------------- */

/* For the shell at the other end: 'text'. -1: too long. */
static int quote_word(const char *text, char *out, size_t size)
{
    size_t n = 0;
    if (size < 3)
        return -1;
    out[n++] = '\'';
    for (; *text; text++) {
        const char *piece = *text == '\'' ? "'\\''" : (const char[]){*text, '\0'};
        size_t len = strlen(piece);
        if (n + len + 2 > size)
            return -1;
        memcpy(out + n, piece, len);
        n += len;
    }
    out[n++] = '\'';
    out[n] = '\0';
    return 0;
}

static int check_host(const char *host, struct err *e)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_@:";
    if (host[0] && host[0] != '-' && strspn(host, allowed) == strlen(host))
        return 0;
    return err_set(e, ERR_USAGE, "that is no name of a host: %s", host);
}

static bool is_here(const char *host)
{
    char own[256] = "";
    (void)gethostname(own, sizeof own - 1);
    return strcmp(host, own) == 0 || strcmp(host, "localhost") == 0;
}

bool ctl_is_elsewhere(const struct ctl_config *c)
{
    return c->job && !is_here(c->job);
}

int ctl_go_there(const struct ctl_config *c, struct err *e)
{
    char reason[1024];
    const char *word[WORDS] = {"ssh", "--", c->job, "hvdctl", c->command};
    size_t n = 5;
    if (check_host(c->job, e) < 0)
        return 2;
    if (c->json)
        word[n++] = "--json";
    if (c->reason && quote_word(c->reason, reason, sizeof reason) < 0) {
        err_set(e, ERR_USAGE, "--reason: the text is too long");
        return 2;
    }
    if (c->reason) {
        word[n++] = "--reason";
        word[n++] = reason;
    }
    execvp(word[0], (char *const *)(uintptr_t)word);
    err_sys(e, errno, "cannot run ssh");
    return 1;
}

/* ---- the node ------------------------------------------------------------------------------------------ */

static void show_queue(const Hvd__AgentStatus *s)
{
    char wanted[24];
    if (s->n_waiting)
        printf("%-22s %-12s %6s  %s\n", "WAITING", "USER", "SLOTS", "PRIORITY");
    for (size_t i = 0; i < s->n_waiting; i++) {
        const Hvd__AgentWaiting *w = s->waiting[i];
        snprintf(wanted, sizeof wanted, "%s%.0u", w->fewer || !w->slots ? "<=" : "", w->slots);
        printf("%-22s %-12s %6s  %u\n", w->job[0] ? w->job : "-", w->user, w->slots ? wanted : "any",
               w->priority);
    }
    if (s->waiting_left_out)
        printf("and %u more\n", s->waiting_left_out);
}

static void show_node(Hvd__AgentStatus *s)
{
    message_printable(&s->base);
    printf("managed agent %s: %u of %u slots taken%s\n", s->version, s->taken, s->slots,
           s->shared ? ", jobs share them" : "");
    if (s->drained[0])
        printf("drained: %s\n", s->drained);
    if (s->unhealthy[0])
        printf("no new jobs: %s\n", s->unhealthy);
    if (s->n_lease)
        printf("%-22s %-12s %6s  %-19s  %s\n", "JOB", "USER", "SLOTS", "SINCE", s->gpus ? "GPUS" : "");
    for (size_t i = 0; i < s->n_lease; i++) {
        const Hvd__AgentLease *l = s->lease[i];
        char when[32] = "";
        time_t since = (time_t)l->since;
        struct tm tm;
        if (localtime_r(&since, &tm))
            strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S", &tm);
        printf("%-22s %-12s %6u  %-19s  %s\n", l->job[0] ? l->job : "-", l->user, l->slots, when, l->gpus);
    }
    if (s->left_out)
        printf("and %u more\n", s->left_out);
    show_queue(s);
}

static void show_queue_json(struct json *j, const Hvd__AgentStatus *s)
{
    json_array(j, "waiting");
    for (size_t i = 0; i < s->n_waiting; i++) {
        const Hvd__AgentWaiting *w = s->waiting[i];
        json_object(j, NULL);
        json_unsigned(j, "place", i + 1);
        json_filled_text(j, "job", w->job);
        json_text(j, "user", w->user);
        json_unsigned(j, "slots", w->slots);
        json_bool(j, "fewer", w->fewer);
        json_unsigned(j, "priority", w->priority);
        json_end(j);
    }
    json_end(j);
    json_unsigned(j, "waiting_left_out", s->waiting_left_out);
}

static void show_json(const Hvd__AgentStatus *s)
{
    struct json j;
    json_begin(&j, stdout);
    json_object(&j, NULL);
    json_text(&j, "version", s->version);
    json_unsigned(&j, "slots", s->slots);
    json_unsigned(&j, "taken", s->taken);
    json_bool(&j, "shared", s->shared);
    json_filled_text(&j, "drained", s->drained);
    json_unsigned(&j, "gpus", s->gpus);
    json_filled_text(&j, "unhealthy", s->unhealthy);
    json_array(&j, "leases");
    for (size_t i = 0; i < s->n_lease; i++) {
        json_object(&j, NULL);
        json_filled_text(&j, "job", s->lease[i]->job);
        json_filled_text(&j, "unit", s->lease[i]->unit);
        json_text(&j, "user", s->lease[i]->user);
        json_unsigned(&j, "slots", s->lease[i]->slots);
        json_filled_text(&j, "gpus", s->lease[i]->gpus);
        json_unsigned(&j, "since", s->lease[i]->since);
        json_end(&j);
    }
    json_end(&j);
    json_unsigned(&j, "left_out", s->left_out);
    show_queue_json(&j, s);
    json_end(&j);
}

/* ---- a job that waits ---------------------------------------------------------------------------------- */

static void show_place_json(const Hvd__AgentStatus *s, size_t at)
{
    const Hvd__AgentWaiting *w = s->waiting[at];
    struct json j;
    json_begin(&j, stdout);
    json_object(&j, NULL);
    json_text(&j, "job", w->job);
    json_text(&j, "user", w->user);
    json_text(&j, "phase", "waiting");
    json_unsigned(&j, "place", at + 1);
    json_unsigned(&j, "waiting", s->n_waiting + s->waiting_left_out);
    json_unsigned(&j, "slots", w->slots);
    json_bool(&j, "fewer", w->fewer);
    json_unsigned(&j, "priority", w->priority);
    json_end(&j);
}

static void show_place(Hvd__AgentStatus *s, size_t at)
{
    const Hvd__AgentWaiting *w = s->waiting[at];
    char wanted[40] = "slots, as many as are free";
    message_printable(&s->base);
    if (w->slots)
        snprintf(wanted, sizeof wanted, "%s%u slot%s", w->fewer ? "up to " : "", w->slots,
                 w->slots == 1 ? "" : "s");
    printf("job %s of %s: waiting for %s: place %zu of %zu, priority %u; %u of %u slots are taken\n", w->job,
           w->user, wanted, at + 1, s->n_waiting + s->waiting_left_out, w->priority, s->taken, s->slots);
}

/* The only one whose name is that, or begins so. */
static bool find_waiting(const Hvd__AgentStatus *s, const char *word, size_t *at)
{
    size_t matches = 0;
    for (size_t i = 0; i < s->n_waiting; i++) {
        if (!s->waiting[i]->job[0] || strncmp(s->waiting[i]->job, word, strlen(word)) != 0)
            continue;
        *at = i;
        if (strcmp(s->waiting[i]->job, word) == 0)
            return true;
        matches++;
    }
    return matches == 1;
}

bool ctl_waiting(const struct ctl_config *c)
{
    struct err none = ERR_INIT;
    size_t at = 0;
    Hvd__AgentQuery query = HVD__AGENT_QUERY__INIT;
    Hvd__Daemon question = HVD__DAEMON__INIT;
    question.body_case = HVD__DAEMON__BODY_QUERY;
    question.query = &query;
    Hvd__Daemon *answer = daemon_ask(&question, &none);
    bool found = answer && find_waiting(answer->status, c->job, &at);
    if (found && c->json)
        show_place_json(answer->status, at);
    else if (found)
        show_place(answer->status, at);
    message_free(answer);
    return found;
}

/* ---- the question -------------------------------------------------------------------------------------- */

/* `tell`: what it answers is shown; as JSON it always is. */
static int ask_agent(const struct ctl_config *c, const Hvd__Daemon *question, bool tell, struct err *e)
{
    if (ctl_is_elsewhere(c))
        return ctl_go_there(c, e);
    Hvd__Daemon *answer = daemon_ask(question, e);
    if (!answer)
        return 1;
    if (answer->body_case == HVD__DAEMON__BODY_GPUS && c->json)
        show_gpus_json(answer->gpus);
    else if (answer->body_case == HVD__DAEMON__BODY_GPUS)
        show_gpus(answer->gpus);
    else if (c->json)
        show_json(answer->status);
    else if (tell)
        show_node(answer->status);
    message_free(answer);
    return 0;
}

static int ask_status(const struct ctl_config *c, bool gpus, struct err *e)
{
    Hvd__AgentQuery query = HVD__AGENT_QUERY__INIT;
    Hvd__Daemon question = HVD__DAEMON__INIT;
    query.gpus = gpus;
    question.body_case = HVD__DAEMON__BODY_QUERY;
    question.query = &query;
    return ask_agent(c, &question, true, e);
}

int ctl_node(const struct ctl_config *c, struct err *e)
{
    return ask_status(c, false, e);
}

int ctl_gpus(const struct ctl_config *c, struct err *e)
{
    return ask_status(c, true, e);
}

int ctl_accept(const struct ctl_config *c, struct err *e)
{
    Hvd__AgentAccept word = HVD__AGENT_ACCEPT__INIT;
    Hvd__Daemon question = HVD__DAEMON__INIT;
    question.body_case = HVD__DAEMON__BODY_ACCEPT;
    question.accept = &word;
    return ask_agent(c, &question, true, e);
}

static int set_drain(const struct ctl_config *c, bool on, struct err *e)
{
    Hvd__AgentDrain word = HVD__AGENT_DRAIN__INIT;
    Hvd__Daemon question = HVD__DAEMON__INIT;
    word.on = on;
    word.reason = (char *)(uintptr_t)(c->reason ? c->reason : NO_REASON);
    question.body_case = HVD__DAEMON__BODY_DRAIN;
    question.drain = &word;
    return ask_agent(c, &question, false, e);
}

int ctl_drain(const struct ctl_config *c, struct err *e)
{
    int status = set_drain(c, true, e);
    if (status == 0)
        ctl_leave_all(c);
    return status;
}

int ctl_undrain(const struct ctl_config *c, struct err *e)
{
    return set_drain(c, false, e);
}
