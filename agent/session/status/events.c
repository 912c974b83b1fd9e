/* The last events of the session, for the flight recorder: its log at the level debug, whatever the user
 * wants to see of it. Changes of states, signals, ends, and what came from others are there. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/session/core.h"
#include "agent/session/parts.h"
#include "common/base/clock.h"
#include "common/base/log.h"

#define EVENTS_MAX 256
#define TEXT_MAX   120

/* The log calls keep_line without a context, and a process has one log: so this is static. */
static struct {
    struct event {
        uint64_t time;
        char text[TEXT_MAX];
    } item[EVENTS_MAX];
    size_t count; /* ever; the last EVENTS_MAX of them are there */
} kept;

static void keep_line(enum log_level level, const char *text)
{
    (void)level;
    struct event *e = &kept.item[kept.count++ % EVENTS_MAX];
    e->time = clock_now();
    snprintf(e->text, sizeof e->text, "%s", text);
}

void session_keep_events(void)
{
    log_also(keep_line, LOG_DEBUG);
}

void session_tell_events(struct session *s)
{
    static Hvd__FlightEvent item[EVENTS_MAX];
    Hvd__FlightEvent *list[EVENTS_MAX];
    Hvd__Flight told = HVD__FLIGHT__INIT;
    size_t first = kept.count > EVENTS_MAX ? kept.count - EVENTS_MAX : 0;
    for (size_t i = first; i < kept.count; i++) {
        struct event *e = &kept.item[i % EVENTS_MAX];
        Hvd__FlightEvent *out = list[told.n_event] = &item[told.n_event];
        hvd__flight_event__init(out);
        out->time = e->time;
        out->text = e->text;
        told.n_event++;
    }
    told.rank = UINT32_MAX;
    told.pid = (uint32_t)getpid();
    told.event = list;
    CONTROL(m, FLIGHT, flight, &told);
    session_send_control(s, &m);
}
