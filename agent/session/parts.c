#include "agent/session/parts.h"

#include <stdlib.h>

/* For each part that has the hook. */
#define EACH_PART(s, p, hook)                                                                                \
    for (const struct session_part *const *at_ = (s)->parts, *p; (p = *at_) != NULL; at_++)                  \
        if (p->hook)

/* ---- state --------------------------------------------------------------------------------------------- */

static void **locate_state(struct session *s, const struct session_part *p)
{
    return (void **)(void *)((char *)s + p->state.at);
}

int session_parts_open(struct session *s, struct err *e)
{
    EACH_PART(s, p, state.size)
    {
        *locate_state(s, p) = calloc(1, p->state.size);
        if (!*locate_state(s, p))
            return err_set(e, ERR_MEMORY, "no memory for a session");
    }
    EACH_PART(s, p, open)
    {
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

void session_parts_accepted(struct session *s)
{
    EACH_PART(s, p, accepted)
    p->accepted(s);
}

int session_parts_directory(struct session *s, struct err *e)
{
    EACH_PART(s, p, directory)
    {
        if (p->directory(s, e) < 0)
            return -1;
    }
    return 0;
}

int session_parts_prepare(struct session *s, struct worker_env_job *env, struct err *e)
{
    EACH_PART(s, p, prepare)
    {
        if (p->prepare(s, env, e) < 0)
            return -1;
    }
    return 0;
}

int session_parts_start(struct session *s, struct worker_env_job *env, struct err *e)
{
    int waits = 0;
    EACH_PART(s, p, start)
    {
        int rc = p->start(s, env, e);
        if (rc < 0)
            return -1;
        waits |= rc;
    }
    return waits;
}

void session_parts_running(struct session *s)
{
    EACH_PART(s, p, running)
    p->running(s);
}

void session_parts_rank_ended(struct session *s, Hvd__RankEnded *ended)
{
    EACH_PART(s, p, rank_ended)
    p->rank_ended(s, ended);
}

void session_parts_reported(struct session *s, const struct worker *w, const Hvd__Exited *told)
{
    EACH_PART(s, p, reported)
    p->reported(s, w, told);
}

void session_parts_counted(struct session *s)
{
    EACH_PART(s, p, counted)
    p->counted(s);
}

bool session_parts_reaped(struct session *s, const struct reaped *child)
{
    EACH_PART(s, p, reaped)
    {
        if (p->reaped(s, child))
            return true;
    }
    return false;
}

void session_parts_written(struct session *s)
{
    EACH_PART(s, p, written)
    p->written(s);
}

void session_parts_ending(struct session *s)
{
    EACH_PART(s, p, ending)
    p->ending(s);
}

bool session_parts_delay_end(struct session *s, bool all)
{
    bool delayed = false;
    EACH_PART(s, p, delay_end)
    {
        bool delays = p->delay_end(s, all);
        delayed = delayed || delays;
    }
    return delayed;
}

bool session_parts_are_delaying(const struct session *s)
{
    EACH_PART(s, p, delays_end)
    {
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
    EACH_PART(s, p, server)
    {
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

void session_servers_kill(struct session *s)
{
    EACH_PART(s, p, server)
    {
        if (p->server->kill)
            p->server->kill(s);
    }
}

void session_servers_drain(struct session *s)
{
    EACH_PART(s, p, server)
    {
        if (p->server->drain)
            p->server->drain(s);
    }
}

bool session_servers_told(const struct session *s, const struct worker *w)
{
    EACH_PART(s, p, server)
    {
        if (p->server->has_told && p->server->has_told(s, w))
            return true;
    }
    return false;
}

uint32_t session_servers_end_ms(const struct session *s)
{
    uint32_t longest = 0;
    EACH_PART(s, p, server)
    {
        if (p->server->pid(s) > 0 && p->server->end_ms > longest)
            longest = p->server->end_ms;
    }
    return longest;
}
