#include "agent/session/mps_clients.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum state { CLIENTS_IDLE, CLIENTS_SERVERS, CLIENTS_CLIENTS, CLIENTS_ENDING };
enum event { EV_BEGIN, EV_ANSWERED, EV_NEXT, EV_MUTE, EV_LATE };

static void ask_servers(void *owner);
static void take_servers(void *owner);
static void take_clients(void *owner);
static void tell_clients(void *owner);
static void say_over(void *owner);
static void say_late(void *owner);

static const char *const state_names[] = {"idle", "servers", "clients", "ending"};
static const char *const event_names[] = {"begin", "answered", "next", "mute", "late"};

static const struct fsm_row rows[] = {
    {CLIENTS_IDLE, EV_BEGIN, CLIENTS_SERVERS, ask_servers},
    {CLIENTS_SERVERS, EV_ANSWERED, CLIENTS_CLIENTS, take_servers},
    {CLIENTS_CLIENTS, EV_ANSWERED, CLIENTS_CLIENTS, take_clients},
    {CLIENTS_CLIENTS, EV_NEXT, CLIENTS_ENDING, tell_clients},
    {CLIENTS_ENDING, EV_ANSWERED, CLIENTS_IDLE, say_over},
    {CLIENTS_SERVERS, EV_MUTE, CLIENTS_IDLE, say_over},
    {CLIENTS_CLIENTS, EV_MUTE, CLIENTS_CLIENTS, take_clients}, /* that server has gone: the next one */
    {CLIENTS_ENDING, EV_MUTE, CLIENTS_IDLE, say_over},
    {CLIENTS_SERVERS, EV_LATE, CLIENTS_IDLE, say_late},
    {CLIENTS_CLIENTS, EV_LATE, CLIENTS_IDLE, say_late},
    {CLIENTS_ENDING, EV_LATE, CLIENTS_IDLE, say_late},
};

static const struct fsm_table table = {"MPS clients", state_names, event_names, rows,
                                       sizeof rows / sizeof *rows};

/* ---- one question -------------------------------------------------------------------------------------- */

static void drop_answer(struct mps_clients *m)
{
    if (m->answer >= 0)
        close(m->answer);
    m->answer = -1;
}

static void tell(struct mps_clients *m, const char *commands)
{
    int out[2];
    drop_answer(m);
    if (pipe2(out, O_CLOEXEC | O_NONBLOCK) < 0) {
        fsm_post(&m->fsm, EV_MUTE);
        return;
    }
    pid_t pid = mps_tell(&m->place, commands, out[1]);
    close(out[1]);
    m->answer = out[0];
    m->teller = pid > 0 ? pid : 0;
    if (pid < 0)
        fsm_post(&m->fsm, EV_MUTE);
}

/* The numbers of its answer, which is whole when it has ended. What is no number is skipped. */
static size_t read_pids(struct mps_clients *m, pid_t *pid, size_t max)
{
    char text[4096], *at = text, *end;
    size_t n = 0;
    ssize_t size = m->answer >= 0 ? read(m->answer, text, sizeof text - 1) : -1;
    drop_answer(m);
    for (text[size > 0 ? size : 0] = '\0'; *at && n < max; at = end) {
        long number = strtol(at, &end, 10);
        if (end == at)
            end++;
        else if (number > 0 && number <= INT32_MAX)
            pid[n++] = (pid_t)number;
    }
    return n;
}

/* ---- the table's actions ------------------------------------------------------------------------------- */

static void ask_servers(void *owner)
{
    struct mps_clients *m = owner;
    m->servers = m->asked = m->ended = 0;
    m->commands[0] = '\0';
    tell(m, "get_server_list\n");
}

static void ask_next(struct mps_clients *m)
{
    char command[64];
    if (m->asked == m->servers) {
        fsm_post(&m->fsm, EV_NEXT);
        return;
    }
    snprintf(command, sizeof command, "get_client_list %d\n", (int)m->server[m->asked]);
    tell(m, command);
}

static void take_servers(void *owner)
{
    struct mps_clients *m = owner;
    m->servers = read_pids(m, m->server, MPS_SERVERS_MAX);
    ask_next(m);
}

static void take_clients(void *owner)
{
    struct mps_clients *m = owner;
    pid_t client[MPS_CLIENTS_MAX];
    size_t n = read_pids(m, client, MPS_CLIENTS_MAX), used = strlen(m->commands);
    for (size_t i = 0; i < n && m->ended < MPS_CLIENTS_MAX; i++) {
        if (!m->events->wanted(m->ctx, client[i]))
            continue;
        used += (size_t)snprintf(m->commands + used, sizeof m->commands - used, "terminate_client %d %d\n",
                                 (int)m->server[m->asked], (int)client[i]);
        m->ended++;
    }
    m->asked++;
    ask_next(m);
}

static void tell_clients(void *owner)
{
    struct mps_clients *m = owner;
    if (m->ended)
        tell(m, m->commands);
    else
        fsm_post(&m->fsm, EV_ANSWERED);
}

static void stop(struct mps_clients *m)
{
    uv_timer_stop(&m->limit);
    if (m->teller)
        (void)kill(m->teller, SIGKILL);
    m->teller = 0; /* whoever reaps it knows nothing of it any more */
    drop_answer(m);
}

static void say_over(void *owner)
{
    struct mps_clients *m = owner;
    stop(m);
    m->events->over(m->ctx, false);
}

static void say_late(void *owner)
{
    struct mps_clients *m = owner;
    stop(m);
    m->events->over(m->ctx, true);
}

/* ---- from outside -------------------------------------------------------------------------------------- */

static void on_late(uv_timer_t *timer)
{
    struct mps_clients *m = timer->data;
    fsm_post(&m->fsm, EV_LATE);
}

int mps_clients_end(struct mps_clients *m, uv_loop_t *loop, const struct mps_clients_events *events,
                    void *ctx, const struct mps_place *place)
{
    mps_clients_cancel(m);
    if (!m->opened && uv_timer_init(loop, &m->limit) < 0)
        return -1;
    m->opened = true;
    m->answer = -1;
    m->events = events;
    m->ctx = ctx;
    m->place = *place;
    m->limit.data = m;
    fsm_init(&m->fsm, &table, m, "-", CLIENTS_IDLE);
    uv_timer_start(&m->limit, on_late, MPS_CLIENTS_MS, 0);
    fsm_post(&m->fsm, EV_BEGIN);
    return 0;
}

void mps_clients_cancel(struct mps_clients *m)
{
    if (!m->opened)
        return;
    stop(m);
    fsm_init(&m->fsm, &table, m, "-", CLIENTS_IDLE);
}

bool mps_clients_reaped(struct mps_clients *m, pid_t pid, bool well)
{
    if (pid <= 0 || pid != m->teller)
        return false;
    m->teller = 0;
    fsm_post(&m->fsm, well ? EV_ANSWERED : EV_MUTE);
    return true;
}

void mps_clients_close(struct mps_clients *m)
{
    if (!m->opened)
        return;
    mps_clients_cancel(m);
    uv_close((uv_handle_t *)&m->limit, NULL);
    m->opened = false;
}
