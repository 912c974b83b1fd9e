/* The lowest services of the server: every other file of the folder may call these functions. */
#include "agent/rendezvous/pmix_server/pmix_server.h"

#include <stdlib.h>
#include <string.h>

struct pmix_server pmix_server;

/* ---- clocks -------------------------------------------------------------------------------------------- */

struct pmix_clock {
    uv_timer_t timer;
    void (*run)(void *ctx);
    void *ctx;
};

static void on_clock_closed(uv_handle_t *handle)
{
    free(handle->data);
}

static void on_time(uv_timer_t *timer)
{
    struct pmix_clock *c = timer->data;
    c->run(c->ctx);
}

struct pmix_clock *pmix_clock_start(uint64_t ms, void (*run)(void *ctx), void *ctx)
{
    struct pmix_clock *c = ms ? calloc(1, sizeof *c) : NULL;
    if (!c)
        return NULL;
    c->run = run;
    c->ctx = ctx;
    uv_timer_init(pmix_server.r->loop, &c->timer);
    c->timer.data = c;
    uv_timer_start(&c->timer, on_time, ms, 0);
    return c;
}

void pmix_clock_stop(struct pmix_clock *c)
{
    if (c && !uv_is_closing((uv_handle_t *)&c->timer))
        uv_close((uv_handle_t *)&c->timer, on_clock_closed);
}

/* ---- arguments of the library -------------------------------------------------------------------------- */

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
    tree_done *done;
    void *ctx;
};

void pmix_ask(uint32_t host, const uint8_t *data, size_t len, tree_done *done, void *ctx)
{
    struct pmix_server *s = &pmix_server;
    struct err e = ERR_INIT;
    if (host != s->r->spawn->host_index) {
        (void)pmix_tree_request(host, data, len, done, ctx);
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
    s->serve((struct pmix_asked){host, q->ticket}, data, len);
}

void pmix_answer(const struct pmix_asked *asked, const struct err *why, const void *data, size_t len)
{
    struct own_question **at = &pmix_server.own_question;
    if (asked->host != pmix_server.r->spawn->host_index) {
        pmix_tree_answer(asked->host, asked->ticket, why, data, len);
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
