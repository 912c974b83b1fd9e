#include "agent/ctl/looks.h"

#include <stdlib.h>
#include <string.h>

#include "agent/ctl/ask.h"
#include "agent/ctl/jobs.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/protocol/message.h"

void ctl_look_free(struct ctl_look *l)
{
    for (size_t i = 0; i < l->count; i++)
        message_free(l->seen[i].answer);
    free(l->seen);
    *l = (struct ctl_look){.seen = NULL};
}

/* The time for a user's next session: silent sessions of the same user have used up theirs. */
static int answer_limit(const struct ctl_jobs *jobs, size_t next, const uint64_t *lost_ms)
{
    uint64_t lost = 0;
    for (size_t i = 0; i < next; i++)
        lost += jobs->item[i].uid == jobs->item[next].uid ? lost_ms[i] : 0;
    return lost < CTL_ANSWER_MS ? (int)(CTL_ANSWER_MS - lost) : 0;
}

/* Takes the answers. -1: there is no memory. */
static int add_answers(struct ctl_look *l, uid_t uid, struct ctl_answers *all)
{
    struct ctl_seen *grown = realloc(l->seen, (l->count + all->count) * sizeof *grown);
    if (!grown) {
        ctl_answers_free(all);
        return -1;
    }
    l->seen = grown;
    for (size_t i = 0; i < all->count; i++)
        grown[l->count++] = (struct ctl_seen){uid, all->item[i], -1};
    all->count = 0;
    ctl_answers_free(all);
    return 0;
}

static int ask_all(struct ctl_look *l, const struct ctl_jobs *jobs, uint64_t *lost_ms)
{
    size_t unasked = 0;
    int rc = 0;
    for (size_t i = 0; i < jobs->count && rc == 0; i++) {
        const struct ctl_job *job = &jobs->item[i];
        struct err why = ERR_INIT;
        struct ctl_answers all = {NULL, 0};
        uint64_t begin = clock_now();
        int limit = answer_limit(jobs, i, lost_ms);
        unasked += limit == 0;
        if (limit && ctl_ask_status(job, HVD__INQUIRY__KIND__STATUS, limit, &all, &why) == 0)
            rc = add_answers(l, job->uid, &all);
        else
            lost_ms[i] = (clock_now() - begin) / NSEC_PER_MSEC;
        if (why.code && why.code != ERR_CLOSED)
            log_warning("job %s: %s", job->name, why.text);
    }
    if (unasked)
        log_warning("%zu more jobs were not asked, whose users have others that do not answer", unasked);
    return rc;
}

int ctl_look(struct ctl_look *l, enum ctl_kind kind, struct err *e)
{
    struct ctl_jobs jobs;
    *l = (struct ctl_look){.at = clock_now()};
    if (ctl_jobs_find(&jobs, e) < 0)
        return -1;
    ctl_jobs_keep(&jobs, kind, NULL);
    uint64_t *lost_ms = calloc(jobs.count + 1, sizeof *lost_ms);
    if (!lost_ms || ask_all(l, &jobs, lost_ms) < 0)
        err_set(e, ERR_MEMORY, "no memory for the list of jobs");
    free(lost_ms);
    ctl_jobs_free(&jobs);
    if (e->code)
        ctl_look_free(l);
    return e->code ? -1 : 0;
}

static double cpu_share(uint64_t cpu_ms, uint64_t ms)
{
    return ms ? 100.0 * (double)cpu_ms / (double)ms : 0;
}

void ctl_look_compare(struct ctl_look *l, const struct ctl_look *before)
{
    for (size_t i = 0; i < l->count; i++) {
        const Hvd__JobStatus *s = l->seen[i].answer->status;
        l->seen[i].cpu_percent = cpu_share(s->cpu_ms, s->run_ms);
        for (size_t k = 0; before && k < before->count; k++) {
            const Hvd__JobStatus *b = before->seen[k].answer->status;
            if (b->session_pid == s->session_pid && b->host_index == s->host_index &&
                strcmp(b->job, s->job) == 0 && s->cpu_ms >= b->cpu_ms)
                l->seen[i].cpu_percent =
                    cpu_share(s->cpu_ms - b->cpu_ms, (l->at - before->at) / NSEC_PER_MSEC);
        }
    }
}
