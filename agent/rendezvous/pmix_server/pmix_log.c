/* PMIx_Log: texts of libraries for the user. OpenMPI's errors come this way alone. They go to the session, as
 * output of the rank that said them; other channels (syslog, mail) are refused.
 *
 * The texts of a call are kept until the loop has passed them on: TEXTS_MAX of them, each of at most
 * RENDEZVOUS_SAID_MAX bytes. The number of calls is not bounded: PMIx_Log_nb does not wait for the loop. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/rendezvous/pmix_server/pmix_server.h"
#include "agent/rendezvous/pmix_client/pmix_help.h"

#define TEXTS_MAX 8 /* of one call */
#define CUT_MARK  "\n[what follows is left out: it is too long]\n"

struct log_call {
    struct upcall item;
    uint32_t rank;
    pmix_op_cbfunc_t done;
    void *ctx;
    size_t count;
    struct log_text {
        bool to_stdout;
        char *text;
    } said[TEXTS_MAX];
};

static void run_log(struct upcall *item)
{
    struct log_call *c = (struct log_call *)item;
    struct rendezvous *r = pmix_server.r;
    for (size_t i = 0; i < c->count; i++) {
        r->events->said(r->ctx, c->rank, c->said[i].to_stdout, c->said[i].text, strlen(c->said[i].text));
        free(c->said[i].text);
    }
    c->done(c->count > 0 ? PMIX_SUCCESS : PMIX_ERR_NOT_SUPPORTED, c->ctx);
    free(c);
}

static char *copy_text(const char *text, size_t len)
{
    size_t keep = len <= RENDEZVOUS_SAID_MAX ? len : RENDEZVOUS_SAID_MAX - (sizeof CUT_MARK - 1);
    char *copy = malloc(RENDEZVOUS_SAID_MAX + 1);
    if (copy)
        snprintf(copy, RENDEZVOUS_SAID_MAX + 1, "%.*s%s", (int)keep, text, keep < len ? CUT_MARK : "");
    return copy;
}

/* NULL: it is for another channel. */
static const char *text_of(const pmix_info_t *info, size_t *len)
{
    const pmix_value_t *v = &info->value;
    if (PMIX_CHECK_KEY(info, PMIX_LOG_MSG) && v->type == PMIX_BYTE_OBJECT)
        return pmix_help_read(v->data.bo.bytes, v->data.bo.size, len);
    if ((!PMIX_CHECK_KEY(info, PMIX_LOG_STDERR) && !PMIX_CHECK_KEY(info, PMIX_LOG_STDOUT)) ||
        v->type != PMIX_STRING || !v->data.string)
        return NULL;
    *len = strlen(v->data.string);
    return v->data.string;
}

static void add_text(struct log_call *c, const pmix_info_t *info)
{
    size_t len = 0;
    const char *text = c->count < TEXTS_MAX ? text_of(info, &len) : NULL;
    char *copy = text ? copy_text(text, len) : NULL;
    if (copy)
        c->said[c->count++] = (struct log_text){PMIX_CHECK_KEY(info, PMIX_LOG_STDOUT), copy};
}

void pmix_log(const pmix_proc_t *proc, const pmix_info_t data[], size_t count, const pmix_info_t directives[],
              size_t directive_count, pmix_op_cbfunc_t done, void *ctx)
{
    struct log_call *c = calloc(1, sizeof *c);
    (void)directives, (void)directive_count;
    if (!c) {
        done(PMIX_ERR_NOMEM, ctx);
        return;
    }
    c->item.run = run_log;
    c->rank = proc->rank;
    c->done = done;
    c->ctx = ctx;
    for (size_t i = 0; i < count; i++)
        add_text(c, &data[i]);
    upcall_queue_post(&pmix_server.upcalls, &c->item);
}
