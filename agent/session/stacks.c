/* Stacks of the workers: the launcher asks (Inspect) before it ends a job that has run too long. */
#include "agent/inspect/stacks.h"
#include "agent/session/core.h"
#include "agent/session/parts.h"

#define ANSWERS_BUSY   (256u << 10) /* bytes of answers that the launcher has not read */
#define INSPECT_MAX_MS 60000

struct session_stacks {
    struct stacks of_workers;
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

static bool reap_tool(struct session *s, const struct reaped *child)
{
    return stacks_reaped(&s->stacks->of_workers, child->pid);
}

static void resume_tools(struct session *s)
{
    if (!launcher_is_busy(s))
        stacks_resume(&s->stacks->of_workers);
}

static void stop_tools(struct session *s)
{
    stacks_stop(&s->stacks->of_workers);
}

static void close_stacks(struct session *s)
{
    stacks_close(&s->stacks->of_workers);
}

const struct session_part session_part_stacks = {
    .name = "stacks",
    .state = SESSION_STATE(stacks),
    .reaped = reap_tool,
    .written = resume_tools,
    .ending = stop_tools,
    .close = close_stacks,
};
