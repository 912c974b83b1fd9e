/* Stacks of the workers: the launcher asks (Inspect) before it ends a job that has run too long, and a status
 * wants them for hvdctl why. */
#include <stdlib.h>
#include <string.h>

#include "agent/inspect/stacks.h"
#include "agent/session/core.h"
#include "agent/session/parts.h"
#include "common/protocol/message.h"

#define ANSWERS_BUSY   (256u << 10) /* bytes of answers that the launcher has not read */
#define INSPECT_MAX_MS 60000
#define KEPT_MAX       ((size_t)512 << 10) /* bytes of memory for a status */

struct session_stacks {
    struct stacks of_workers, for_status;
    Hvd__Where **kept; /* for the status, and room for so many */
    size_t count, size, room;
    char tool[64];
};

static void on_found(void *ctx, Hvd__Where *where)
{
    CONTROL(m, WHERE, where, where);
    session_send_control(ctx, &m);
}

static void on_all_found(void *ctx, const char *tool)
{
    Hvd__Inspected inspected = HVD__INSPECTED__INIT;
    inspected.tool = (char *)(uintptr_t)tool;
    CONTROL(m, INSPECTED, inspected, &inspected);
    session_send_control(ctx, &m);
}

static bool launcher_is_busy(void *ctx)
{
    struct session *s = ctx;
    return channel_control_waiting(&s->launcher.channel) > ANSWERS_BUSY;
}

static const struct stacks_events stacks_events = {on_found, on_all_found, launcher_is_busy};

const char *session_inspect(struct session *s, const Hvd__Control *m)
{
    const Hvd__Inspect *inspect = m->inspect;
    uint32_t limit = inspect->limit_ms < INSPECT_MAX_MS ? inspect->limit_ms : INSPECT_MAX_MS;
    if (s->fsm.state == SESSION_RUNNING)
        stacks_start(&s->stacks->of_workers, &s->loop, &stacks_events, s, &s->workers, s->containment.fd,
                     limit);
    else
        on_all_found(s, "");
    return NULL;
}

/* ---- for a status -------------------------------------------------------------------------------------- */

static void forget_found(struct session *s)
{
    struct session_stacks *own = s->stacks;
    for (size_t i = 0; i < own->count; i++)
        message_free(own->kept[i]);
    free(own->kept);
    own->kept = NULL;
    own->count = own->size = 0;
}

static void keep_found(void *ctx, Hvd__Where *where)
{
    struct session *s = ctx;
    struct session_stacks *own = s->stacks;
    if (own->count == own->size)
        return;
    own->kept[own->count] = message_copy(&where->base, &own->room);
    own->count += own->kept[own->count] != NULL;
}

static void on_all_kept(void *ctx, const char *tool)
{
    struct session *s = ctx;
    snprintf(s->stacks->tool, sizeof s->stacks->tool, "%s", tool);
    session_stacks_found(s);
}

static bool is_never_busy(void *ctx)
{
    (void)ctx;
    return false;
}

static const struct stacks_events status_events = {keep_found, on_all_kept, is_never_busy};

void session_stacks_look(struct session *s, uint32_t limit_ms)
{
    struct session_stacks *own = s->stacks;
    if (own->for_status.active)
        return;
    forget_found(s);
    if (own->of_workers.active)
        return; /* a process has room for one tool, and the launcher gets these stacks */
    own->kept = calloc(s->workers.count ? s->workers.count : 1, sizeof(Hvd__Where *));
    own->size = own->kept ? s->workers.count : 0;
    own->room = KEPT_MAX;
    if (s->fsm.state == SESSION_RUNNING)
        stacks_start(&own->for_status, &s->loop, &status_events, s, &s->workers, s->containment.fd, limit_ms);
    else
        on_all_kept(s, "");
}

bool session_stacks_are_looking(const struct session *s)
{
    return s->stacks->for_status.active;
}

void session_stacks_tell(const struct session *s, Hvd__JobStatus *out)
{
    out->why = true;
    out->where = s->stacks->kept;
    out->n_where = s->stacks->count;
    out->tool = s->stacks->tool;
}

/* ---- hooks --------------------------------------------------------------------------------------------- */

static bool reap_tool(struct session *s, const struct reaped *child)
{
    return stacks_reaped(&s->stacks->of_workers, child->pid) ||
           stacks_reaped(&s->stacks->for_status, child->pid);
}

static void resume_tools(struct session *s)
{
    if (!launcher_is_busy(s))
        stacks_resume(&s->stacks->of_workers);
}

static void stop_tools(struct session *s)
{
    bool asked = s->stacks->for_status.active;
    stacks_stop(&s->stacks->of_workers);
    stacks_stop(&s->stacks->for_status);
    if (asked)
        on_all_kept(s, "");
}

static void close_stacks(struct session *s)
{
    stacks_close(&s->stacks->of_workers);
    stacks_close(&s->stacks->for_status);
}

const struct session_part session_part_stacks = {
    .name = "stacks",
    .state = SESSION_STATE(stacks),
    .reaped = reap_tool,
    .written = resume_tools,
    .ending = stop_tools,
    .close = close_stacks,
    .free = forget_found,
};
