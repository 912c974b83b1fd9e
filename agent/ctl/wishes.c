/* hvdctl kill, resize and leave: what a job is asked to do. */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/ctl/ask.h"
#include "agent/ctl/commands.h"
#include "agent/ctl/jobs.h"
#include "common/base/log.h"
#include "common/protocol/message.h"

/* -1 with *e: the job refuses, or has ended. */
static int ask_job(const struct ctl_job *job, const Hvd__Inquiry *inquiry, struct err *e)
{
    struct ctl_ask a;
    if (ctl_ask_open(&a, job, inquiry, CTL_ANSWER_MS, e) < 0)
        return -1;
    Hvd__Answer *answer = ctl_ask_next(&a, CTL_ANSWER_MS, e);
    if (!answer)
        err_set(e, ERR_CLOSED, "job %s has ended", job->name);
    else if (answer->body_case == HVD__ANSWER__BODY_REFUSED) {
        log_printable(answer->refused);
        err_set(e, ERR_HOST, "job %s: %.300s", job->name, answer->refused);
    }
    message_free(answer);
    ctl_ask_close(&a);
    return e->code ? -1 : 0;
}

int ctl_kill(const struct ctl_config *c, const struct ctl_job *job, struct err *e)
{
    Hvd__Inquiry inquiry = HVD__INQUIRY__INIT;
    inquiry.kind = HVD__INQUIRY__KIND__END;
    if (ask_job(job, &inquiry, e) < 0)
        return EXIT_REFUSED;
    if (c->json)
        printf("{\"job\": \"%s\", \"ending\": true}\n", job->name);
    return 0;
}

/* 0: that is no number of ranks. */
static uint32_t read_ranks(const char *text)
{
    char *end;
    unsigned long n = strtoul(text, &end, 10);
    return *end == '\0' && text[0] >= '0' && text[0] <= '9' && n <= UINT32_MAX ? (uint32_t)n : 0;
}

int ctl_resize(const struct ctl_config *c, const struct ctl_job *job, struct err *e)
{
    Hvd__Inquiry inquiry = HVD__INQUIRY__INIT;
    inquiry.kind = HVD__INQUIRY__KIND__RESIZE;
    inquiry.ranks = c->number ? read_ranks(c->number) : 0;
    if (inquiry.ranks == 0) {
        if (c->number)
            err_set(e, ERR_USAGE, "%s is no number of ranks", c->number);
        else
            err_set(e, ERR_USAGE, "how many ranks?");
        (void)err_hint(e, "hvdctl resize JOB N");
        return EXIT_USAGE;
    }
    if (ask_job(job, &inquiry, e) < 0)
        return EXIT_REFUSED;
    if (c->json)
        printf("{\"job\": \"%s\", \"asked_ranks\": %" PRIu32 "}\n", job->name, inquiry.ranks);
    return 0;
}

static int ask_leave(const struct ctl_config *c, const struct ctl_job *job, struct err *e)
{
    Hvd__Inquiry inquiry = HVD__INQUIRY__INIT;
    inquiry.kind = HVD__INQUIRY__KIND__LEAVE;
    inquiry.reason = (char *)(uintptr_t)(c->reason ? c->reason : "");
    return ask_job(job, &inquiry, e);
}

int ctl_leave(const struct ctl_config *c, const struct ctl_job *job, struct err *e)
{
    if (ask_leave(c, job, e) < 0)
        return EXIT_REFUSED;
    if (c->json)
        printf("{\"job\": \"%s\", \"leaves\": true}\n", job->name);
    return 0;
}

void ctl_leave_all(const struct ctl_config *c)
{
    struct ctl_jobs jobs;
    struct err e = ERR_INIT; /* jobs that are not elastic refuse, and run on */
    if (ctl_jobs_find(&jobs, &e) < 0)
        return;
    ctl_jobs_keep(&jobs, CTL_SESSIONS, NULL);
    for (size_t i = 0; i < jobs.count; i++) {
        err_clear(&e);
        if (ask_leave(c, &jobs.item[i], &e) == 0 && !c->json)
            printf("job %s: its ranks here leave at their next commit\n", jobs.item[i].name);
    }
    ctl_jobs_free(&jobs);
}
