#include "agent/ctl/commands.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/ctl/ask.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/ranks.h"
#include "common/protocol/frame.h"
#include "common/protocol/message.h"

struct logs {
    const struct ctl_config *config;
    bool foreign; /* another user's: nothing of it may steer our terminal */
    bool tag;     /* several ranks: each line begins with its rank */
    bool inside;  /* of a line */
    uint32_t rank;
};

/* One line, or a part of one. */
static void print_text(struct logs *l, const uint8_t *bytes, size_t size)
{
    char *text = l->foreign ? strndup((const char *)bytes, size) : NULL;
    if (text)
        log_printable(text);
    if (text)
        fputs(text, stdout);
    else if (!l->foreign)
        fwrite(bytes, 1, size, stdout);
    free(text);
}

static void print_part(struct logs *l, const Hvd__OutputPart *part)
{
    const uint8_t *p = part->bytes.data, *end = p + part->bytes.len;
    if (l->inside && l->rank != part->rank)
        putchar('\n');
    l->inside = l->inside && l->rank == part->rank;
    l->rank = part->rank;
    while (p < end) {
        const uint8_t *newline = memchr(p, '\n', (size_t)(end - p));
        if (!l->inside && l->tag)
            printf("%u: ", part->rank);
        print_text(l, p, (size_t)((newline ? newline : end) - p));
        l->inside = !newline;
        if (newline)
            putchar('\n');
        p = newline ? newline + 1 : end;
    }
}

static void print_json(const Hvd__OutputPart *part)
{
    char *text = strndup((const char *)part->bytes.data, part->bytes.len);
    printf("{\"rank\": %u, \"stream\": \"%s\", \"text\": ", part->rank,
           part->stream == STREAM_STDERR ? "stderr" : "stdout");
    json_put_string(stdout, text ? text : "");
    printf("}\n");
    free(text);
}

static void print_answer(struct logs *l, const Hvd__Answer *a)
{
    if (a->skipped > 0)
        log_warning("%llu bytes were not shown: the job writes faster than they were read",
                    (unsigned long long)a->skipped);
    if (a->body_case != HVD__ANSWER__BODY_OUTPUT)
        return;
    if (l->config->json)
        print_json(a->output);
    else
        print_part(l, a->output);
}

/* Of --rank, those of the job that answer. NULL with *e. */
static uint32_t *choose_ranks(const char *list, const struct ctl_answers *all, size_t *count, struct err *e)
{
    uint32_t highest, *rank;
    size_t most = 1;
    *count = 0;
    for (size_t k = 0; k < all->count; k++)
        most += all->item[k]->status->n_rank;
    rank = calloc(most, sizeof *rank);
    if (!rank)
        err_set(e, ERR_MEMORY, "no memory for a list of ranks");
    else if (list && ranks_check(list, &highest, e) < 0)
        err_wrap(e, "--rank");
    for (size_t k = 0; e->code == 0 && k < all->count; k++) {
        const Hvd__JobStatus *s = all->item[k]->status;
        for (size_t i = 0; i < s->n_rank; i++)
            if (!list || ranks_listed(list, s->rank[i]->rank))
                rank[(*count)++] = s->rank[i]->rank;
    }
    if (e->code == 0 && *count == 0 && list)
        err_set(e, ERR_HOST, "job %s has none of the ranks %.200s%s", all->item[0]->status->job, list,
                all->item[0]->status->hosts > all->count ? " on this host" : "");
    if (e->code == 0)
        return rank;
    free(rank);
    return NULL;
}

static int read_all(struct logs *l, struct ctl_ask *a, struct err *e)
{
    int limit = l->config->follow ? -1 : CTL_ANSWER_MS;
    bool done = false;
    while (!done) {
        Hvd__Answer *answer = ctl_ask_next(a, limit, e);
        if (!answer)
            break;
        print_answer(l, answer);
        done = answer->body_case == HVD__ANSWER__BODY_DONE;
        message_free(answer);
        if (fflush(stdout) != 0)
            return 0; /* the reader has gone */
    }
    if (l->inside && !l->config->json)
        putchar('\n');
    return done ? 0 : err_set(e, ERR_CLOSED, "%s has gone", a->process);
}

int ctl_logs(const struct ctl_config *c, const struct ctl_job *job, struct err *e)
{
    Hvd__Inquiry inquiry = HVD__INQUIRY__INIT;
    struct ctl_answers all;
    struct ctl_ask a;
    size_t count = 0;
    int known = ctl_ask_status(job, HVD__INQUIRY__KIND__STATUS, CTL_ANSWER_MS, &all, e);
    uint32_t *rank = known == 0 ? choose_ranks(c->rank, &all, &count, e) : NULL;
    struct logs l = {.config = c, .foreign = job->uid != geteuid(), .tag = count > 1};
    ctl_answers_free(&all);
    if (!rank)
        return 1;
    inquiry.kind = HVD__INQUIRY__KIND__OUTPUT;
    inquiry.follow = c->follow;
    inquiry.rank = rank;
    inquiry.n_rank = c->rank ? count : 0;
    int rc = ctl_ask_open(&a, job, &inquiry, CTL_ANSWER_MS, e) < 0 || read_all(&l, &a, e) < 0 ? 1 : 0;
    ctl_ask_close(&a);
    free(rank);
    return rc;
}
