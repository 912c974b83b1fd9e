#include "common/base/fsm.h"

#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"

void fsm_init(struct fsm *m, const struct fsm_table *table, void *owner, const char *label, uint8_t state)
{
    memset(m, 0, sizeof *m);
    m->table = table;
    m->owner = owner;
    m->label = label;
    m->state = state;
    m->since = clock_now();
}

const char *fsm_state_name(const struct fsm *m)
{
    return m->table->states[m->state];
}

static void handle_event(struct fsm *m, uint8_t event)
{
    const struct fsm_table *t = m->table;
    for (size_t i = 0; i < t->row_count; i++) {
        const struct fsm_row *row = &t->rows[i];
        if (row->state != m->state || row->event != event)
            continue;
        uint64_t now = clock_now();
        log_debug("%s %s: %s -> %s on %s after %.1f ms", t->name, m->label, t->states[m->state],
                  t->states[row->next], t->events[event], (double)(now - m->since) / 1e6);
        m->state = row->next;
        m->since = now;
        if (row->action)
            row->action(m->owner);
        return;
    }
    log_debug("%s %s: %s ignores %s", t->name, m->label, t->states[m->state], t->events[event]);
}

void fsm_post(struct fsm *m, uint8_t event)
{
    if (m->queued == FSM_QUEUE_MAX) {
        log_error("%s %s: too many events at once, %s dropped", m->table->name, m->label,
                  m->table->events[event]);
        return;
    }
    m->queue[m->queued++] = event;
    if (m->running)
        return;
    m->running = true;
    while (m->queued > 0) {
        uint8_t next = m->queue[0];
        memmove(m->queue, m->queue + 1, --m->queued);
        handle_event(m, next);
    }
    m->running = false;
}
