#include "agent/session/parts.h"

#include <stdlib.h>

/* ---- state --------------------------------------------------------------------------------------------- */

static void **locate_state(struct session *s, const struct session_part *p)
{
    return (void **)(void *)((char *)s + p->state.at);
}

int session_parts_open(struct session *s, struct err *e)
{
    EACH_PART(s, p, state.size) {
        *locate_state(s, p) = calloc(1, p->state.size);
        if (!*locate_state(s, p))
            return err_set(e, ERR_MEMORY, "no memory for a session");
    }
    EACH_PART(s, p, open) {
        if (p->open(s, e) < 0)
            return -1;
    }
    return 0;
}

static size_t count_parts(const struct session *s)
{
    size_t count = 0;
    while (s->parts[count])
        count++;
    return count;
}

void session_parts_close(struct session *s)
{
    for (size_t i = count_parts(s); i-- > 0;)
        if (s->parts[i]->close)
            s->parts[i]->close(s);
}

void session_parts_free(struct session *s)
{
    for (size_t i = count_parts(s); i-- > 0;) {
        const struct session_part *p = s->parts[i];
        if (p->free)
            p->free(s);
        if (!p->state.size)
            continue;
        free(*locate_state(s, p));
        *locate_state(s, p) = NULL;
    }
}

/* ---- moments ------------------------------------------------------------------------------------------- */

void session_parts_rank_ended(struct session *s, Hvd__RankEnded *ended)
{
    EACH_PART(s, p, rank_ended)
        p->rank_ended(s, ended);
}

bool session_parts_delay_end(struct session *s, bool all)
{
    bool delayed = false;
    EACH_PART(s, p, delay_end) {
        bool delays = p->delay_end(s, all);
        delayed = delayed || delays;
    }
    return delayed;
}

bool session_parts_are_delaying(const struct session *s)
{
    EACH_PART(s, p, delays_end) {
        if (p->delays_end(s))
            return true;
    }
    return false;
}

/* ---- servers ------------------------------------------------------------------------------------------- */

struct session_servers session_servers_list(const struct session *s)
{
    struct session_servers list = {{0}};
    size_t n = 0;
    EACH_PART(s, p, server) {
        pid_t pid = p->server->pid(s);
        if (pid > 0 && n < SESSION_SERVERS_MAX)
            list.pid[n++] = pid;
    }
    return list;
}

void session_servers_end(struct session *s)
{
    EACH_PART(s, p, server)
        p->server->end(s);
}

void session_servers_drain(struct session *s)
{
    EACH_PART(s, p, server) {
        if (p->server->drain)
            p->server->drain(s);
    }
}

bool session_servers_told(const struct session *s, const struct worker *w)
{
    EACH_PART(s, p, server) {
        if (p->server->has_told && p->server->has_told(s, w))
            return true;
    }
    return false;
}

uint32_t session_servers_end_ms(const struct session *s)
{
    uint32_t longest = 0;
    EACH_PART(s, p, server) {
        if (p->server->pid(s) > 0 && p->server->end_ms > longest)
            longest = p->server->end_ms;
    }
    return longest;
}
