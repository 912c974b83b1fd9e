/* A connection: bytes become lines, answers go out as the client reads them. A faulty client loses its
 * connection, and the job goes on. */
#include "agent/rendezvous/pmi1/pmi1.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log.h"

const Hvd__HostRanks *pmi1_here(const struct pmi1 *p)
{
    return p->r->spawn->host[p->r->spawn->host_index];
}

bool pmi1_is_here(const struct pmi1 *p, uint32_t rank)
{
    return host_local_rank(pmi1_here(p), rank) != UINT32_MAX;
}

void pmi1_notice(struct pmi1 *p, const char *fmt, ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (p->notices++ < PMI1_NOTICES_MAX)
        p->r->events->notice(p->r->ctx, LOG_WARNING, text);
    else
        log_debug("%s", text);
}

/* ---- clients ------------------------------------------------------------------------------------------- */

static void on_closed(void *ctx)
{
    struct pmi1_client *c = ctx;
    buf_free(&c->out);
    free(c);
}

void pmi1_client_close(struct pmi1_client *c)
{
    struct pmi1_client **at = &c->p->client;
    if (c->closing)
        return;
    c->closing = true;
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    c->p->clients--;
    c->p->client_events->closed(c);
    stream_close(&c->stream, on_closed);
}

static void flush_answers(struct pmi1_client *c)
{
    if (c->out.len > 0)
        buf_consume(&c->out, stream_write(&c->stream, buf_data(&c->out), c->out.len));
}

void pmi1_answer(struct pmi1_client *c, const char *fmt, ...)
{
    char line[PMI1_LINE_MAX];
    va_list args;
    if (c->closing)
        return;
    va_start(args, fmt);
    int n = vsnprintf(line, sizeof line - 1, fmt, args);
    va_end(args);
    if (n < 0 || (size_t)n >= sizeof line - 1)
        n = snprintf(line, sizeof line - 1, "cmd=error rc=-1 msg=too_long");
    line[n] = '\n';
    if (buf_put(&c->out, line, (size_t)n + 1) < 0) {
        pmi1_notice(c->p, "a PMI-1 client (rank %u) was closed: it does not read its answers", c->rank);
        pmi1_client_close(c);
        return;
    }
    flush_answers(c);
}

void pmi1_refuse(struct pmi1_client *c, const char *answer, const char *why)
{
    char word[400];
    pmi1_answer(c, "cmd=%s rc=-1 msg=%s", answer, pmi1_word(why, word, sizeof word));
}

struct pmi1_client *pmi1_client_of(struct pmi1 *p, uint32_t rank)
{
    for (struct pmi1_client *c = p->client; c; c = c->next)
        if ((c->phase == PMI1_BOUND || c->phase == PMI1_READY) && c->rank == rank)
            return c;
    return NULL;
}

static void on_received(void *ctx, const uint8_t *bytes, size_t len)
{
    struct pmi1_client *c = ctx;
    while (len > 0 && !c->closing) {
        const uint8_t *end = memchr(bytes, '\n', len);
        size_t n = end ? (size_t)(end - bytes) : len;
        if (c->len + n >= sizeof c->line) {
            pmi1_notice(c->p, "a PMI-1 client was closed: a line is too long");
            pmi1_refuse(c, "error", "a line is too long");
            pmi1_client_close(c);
            return;
        }
        memcpy(c->line + c->len, bytes, n);
        c->len += n;
        bytes += n;
        len -= n;
        if (!end)
            return;
        bytes++, len--;
        n = c->len;
        c->len = 0;
        c->p->client_events->line(c, c->line, n);
    }
}

static void on_writable(void *ctx)
{
    flush_answers(ctx);
}

static void on_ended(void *ctx, int errnum)
{
    (void)errnum;
    pmi1_client_close(ctx);
}

/* A program may leave before its successor connects, and processes that are no ranks may connect as well. */
static size_t clients_max(const struct pmi1 *p)
{
    return 4 * p->r->spawn->n_worker + 64;
}

void pmi1_client_new(struct pmi1 *p, int fd)
{
    static const struct stream_events events = {on_received, on_writable, on_ended};
    struct err e = ERR_INIT;
    struct pmi1_client *c = p->clients < clients_max(p) ? calloc(1, sizeof *c) : NULL;
    if (!c || stream_open(&c->stream, p->r->loop, fd, fd, &events, c, &e) < 0) {
        pmi1_notice(p, "a PMI-1 client was turned away: %s", c ? e.text : "there are too many");
        free(c);
        close(fd);
        return;
    }
    c->p = p;
    buf_init(&c->out, PMI1_OUT_MAX);
    c->next = p->client;
    p->client = c;
    p->clients++;
}
