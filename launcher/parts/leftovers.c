/* Processes of the job that a host could not end. */
#include <stdio.h>

#include "common/base/log.h"
#include "launcher/job/core.h"
#include "launcher/parts/parts.h"

#define LOGGED_MAX 64  /* processes of one host that are logged; an agent names as many */
#define KEPT_MAX   256 /* processes of all hosts that are kept for the report */

struct leftover {
    const struct host *host;
    uint32_t pid;
    char name[64], state[16];
};

struct leftovers_state {
    struct leftover item[KEPT_MAX];
    uint32_t count;
};

static struct leftovers_state *state_of(const struct job *j)
{
    return job_state(j, &part_leftovers);
}

bool leftovers_exist(const struct job *j)
{
    return state_of(j)->count > 0;
}

static void on_host_ended(struct job *j, struct host *h, const Hvd__Ended *ended)
{
    struct leftovers_state *s = state_of(j);
    for (size_t i = 0; i < ended->n_leftover && i < LOGGED_MAX; i++) {
        const Hvd__Leftover *p = ended->leftover[i];
        log_error("%s: process %u (%.64s, state %.16s) could not be ended", h->label, p->pid, p->name,
                  p->state);
        if (s->count == KEPT_MAX)
            continue;
        struct leftover *kept = &s->item[s->count++];
        kept->host = h;
        kept->pid = p->pid;
        snprintf(kept->name, sizeof kept->name, "%s", p->name);
        snprintf(kept->state, sizeof kept->state, "%s", p->state);
    }
    if (ended->n_leftover > LOGGED_MAX)
        log_error("%s: %zu processes more could not be ended", h->label, ended->n_leftover - LOGGED_MAX);
}

static void report_leftovers(const struct job *j, struct json *w)
{
    const struct leftovers_state *s = state_of(j);
    json_array(w, "leftovers");
    for (uint32_t i = 0; i < s->count; i++) {
        const struct leftover *p = &s->item[i];
        json_object(w, NULL);
        json_text(w, "host", p->host->label);
        json_unsigned(w, "pid", p->pid);
        json_text(w, "name", p->name);
        json_text(w, "state", p->state);
        json_end(w);
    }
    json_end(w);
}

const struct job_part part_leftovers = {
    .state_size = sizeof(struct leftovers_state),
    .host_ended = on_host_ended,
    .report = report_leftovers,
};
