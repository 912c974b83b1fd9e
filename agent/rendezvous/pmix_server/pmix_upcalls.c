/* The library's table of calls to its host, and those that need no file of their own. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/rendezvous/pmix_server/pmix_server.h"
#include "common/base/log.h"

bool pmix_is_ours(const char *space)
{
    return strncmp(space, pmix_server.space, PMIX_MAX_NSLEN) == 0;
}

uint64_t pmix_timeout_of(const pmix_info_t *info, size_t count)
{
    int seconds = 0;
    for (size_t i = 0; i < count; i++)
        if (PMIX_CHECK_KEY(&info[i], PMIX_TIMEOUT) && info[i].value.type == PMIX_INT)
            seconds = info[i].value.data.integer;
    return seconds > 0 ? (uint64_t)seconds * 1000 : 0;
}

/* ---- questions to servers, this one among them --------------------------------------------------------- */

struct own_question {
    struct own_question *next;
    uint64_t ticket;
    exchange_done *done;
    void *ctx;
};

void pmix_ask(uint32_t host, const uint8_t *data, size_t len, exchange_done *done, void *ctx)
{
    struct pmix_server *s = &pmix_server;
    struct err e = ERR_INIT;
    if (host != s->r->spawn->host_index) {
        (void)exchange_request(s->r->exchange, EXCHANGE_PMIX, host, data, len, done, ctx);
        return;
    }
    struct own_question *q = malloc(sizeof *q);
    if (!q) {
        err_set(&e, ERR_MEMORY, "no memory for a request");
        done(ctx, &e, NULL, 0);
        return;
    }
    *q = (struct own_question){s->own_question, ++s->tickets, done, ctx};
    s->own_question = q;
    pmix_asked((struct pmix_asked){host, q->ticket}, data, len);
}

void pmix_answer(const struct pmix_asked *asked, const struct err *why, const void *data, size_t len)
{
    struct own_question **at = &pmix_server.own_question;
    if (asked->host != pmix_server.r->spawn->host_index) {
        exchange_answer(pmix_server.r->exchange, EXCHANGE_PMIX, asked->host, asked->ticket, why, data, len);
        return;
    }
    while (*at && (*at)->ticket != asked->ticket)
        at = &(*at)->next;
    struct own_question *q = *at;
    if (!q)
        return;
    *at = q->next;
    q->done(q->ctx, why, data, len);
    free(q);
}

/* ---- abort --------------------------------------------------------------------------------------------- */

struct abort_call {
    struct bridge_item item;
    uint32_t rank;
    int status;
    pmix_op_cbfunc_t done;
    void *ctx;
    char text[256];
};

static void run_abort(struct bridge_item *item)
{
    struct abort_call *a = (struct abort_call *)item;
    struct rendezvous *r = pmix_server.r;
    r->events->abort(r->ctx, a->rank, (uint32_t)a->status, a->text);
    a->done(PMIX_SUCCESS, a->ctx);
    free(a);
}

/* Whomever it names: the job ends as a whole. */
static pmix_status_t on_abort(const pmix_proc_t *proc, void *object, int status, const char msg[],
                              pmix_proc_t procs[], size_t count, pmix_op_cbfunc_t done, void *ctx)
{
    struct abort_call *a = calloc(1, sizeof *a);
    (void)object, (void)procs, (void)count;
    if (!a)
        return PMIX_ERR_NOMEM;
    *a = (struct abort_call){{NULL, run_abort}, proc->rank, status, done, ctx, ""};
    snprintf(a->text, sizeof a->text, "%s", msg ? msg : "");
    bridge_post(&pmix_server.bridge, &a->item);
    return PMIX_SUCCESS;
}

/* ---- clients ------------------------------------------------------------------------------------------- */

static pmix_status_t on_connected(const pmix_proc_t *proc, void *object, pmix_info_t info[], size_t infos,
                                  pmix_op_cbfunc_t done, void *ctx)
{
    (void)proc, (void)object, (void)info, (void)infos, (void)done, (void)ctx;
    return PMIX_OPERATION_SUCCEEDED;
}

static pmix_status_t on_finalized(const pmix_proc_t *proc, void *object, pmix_op_cbfunc_t done, void *ctx)
{
    (void)proc, (void)object, (void)done, (void)ctx;
    return PMIX_OPERATION_SUCCEEDED;
}

pmix_server_module_t pmix_upcalls = {
    .client_connected2 = on_connected,
    .client_finalized = on_finalized,
    .abort = on_abort,
    .fence_nb = pmix_fence,
    .direct_modex = pmix_modex,
    .publish = pmix_publish,
    .lookup = pmix_lookup,
    .unpublish = pmix_unpublish,
    .spawn = pmix_spawn,
    .connect = pmix_connect,
    .disconnect = pmix_disconnect,
    .register_events = pmix_register_events,
    .deregister_events = pmix_deregister_events,
    .notify_event = pmix_notify,
    .query = pmix_query,
    .log = pmix_log,
    .job_control = pmix_job_control,
    .group = pmix_group,
};
