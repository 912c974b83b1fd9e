/* Module `systemd`: the operations of common/modules/systemd.h on libsystemd. */
#include "common/modules/systemd.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <systemd/sd-bus.h>
#include <systemd/sd-daemon.h>

#include "common/base/clock.h"
#include "common/process/module.h"

extern const char hvd_module_version[];
extern const struct systemd_ops hvd_systemd_ops;

MODULE_DEFINE_VERSION;

#define SOCKET  "unix:path=/run/systemd/private"
#define PEER    "org.freedesktop.systemd1"
#define OBJECT  "/org/freedesktop/systemd1"
#define MANAGER "org.freedesktop.systemd1.Manager"
#define CALL_US UINT64_C(20000000) /* systemd answers within this, or not at all */
#define STOP_US                                                                                              \
    UINT64_C(30000000) /* between SIGTERM and SIGKILL for what outlives a service's first process */

/* The journal takes as many lines of one job, of all its processes together. The session writes fewer. */
#define LOG_US    UINT64_C(30000000)
#define LOG_BURST 3000

struct systemd {
    sd_bus *bus;
    const struct systemd_events *events;
    void *ctx;
};

/* A call that was not answered. */
struct call {
    struct systemd *owner;
    char unit[256];
};

static struct call *new_call(struct systemd *s, const char *unit)
{
    struct call *call = strlen(unit) < sizeof call->unit ? malloc(sizeof *call) : NULL;
    if (call) {
        call->owner = s;
        memcpy(call->unit, unit, strlen(unit) + 1);
    }
    return call;
}

/* The answer's callback gets `call`, which is freed after it, or at once when the call cannot be made. */
static int send_call(struct systemd *s, sd_bus_message *m, sd_bus_message_handler_t answered,
                     struct call *call)
{
    sd_bus_slot *slot = NULL;
    int rc = sd_bus_call_async(s->bus, &slot, m, answered, call, CALL_US);
    if (rc < 0) {
        free(call);
        return rc;
    }
    (void)sd_bus_slot_set_destroy_callback(slot, free);
    (void)sd_bus_slot_set_floating(slot, 1);
    sd_bus_slot_unref(slot);
    return 0;
}

/* ---- signals ------------------------------------------------------------------------------------------- */

static int on_job_removed(sd_bus_message *m, void *userdata, sd_bus_error *error)
{
    struct systemd *s = userdata;
    (void)error;
    const char *path, *unit, *result;
    uint32_t id;
    if (sd_bus_message_read(m, "uoss", &id, &path, &unit, &result) >= 0)
        s->events->started(s->ctx, unit, strcmp(result, "done") == 0 ? NULL : result);
    return 0;
}

static int on_asked_again(sd_bus_message *m, void *userdata, sd_bus_error *error)
{
    struct call *call = userdata;
    (void)error;
    if (sd_bus_message_is_method_error(m, PEER ".NoSuchUnit"))
        call->owner->events->removed(call->owner->ctx, call->unit);
    return 0;
}

static void ask_again(struct systemd *s, const char *unit)
{
    sd_bus_message *m = NULL;
    struct call *call = new_call(s, unit);
    int rc = sd_bus_message_new_method_call(s->bus, &m, PEER, OBJECT, MANAGER, "GetUnit");
    if (rc >= 0)
        rc = sd_bus_message_append(m, "s", unit);
    if (call && rc >= 0)
        (void)send_call(s, m, on_asked_again, call);
    else
        free(call);
    sd_bus_message_unref(m);
}

static int on_unit_removed(sd_bus_message *m, void *userdata, sd_bus_error *error)
{
    struct systemd *s = userdata;
    (void)error;
    const char *unit, *path;
    if (sd_bus_message_read(m, "so", &unit, &path) >= 0 && s->events->watches(s->ctx, unit))
        ask_again(s, unit);
    return 0;
}

/* ---- the connection ------------------------------------------------------------------------------------ */

static void close_bus(struct systemd *s)
{
    sd_bus_flush_close_unref(s->bus);
    free(s);
}

static int connect_bus(struct systemd *s)
{
    int rc = sd_bus_new(&s->bus);
    if (rc >= 0)
        rc = sd_bus_set_address(s->bus, SOCKET);
    if (rc >= 0)
        rc = sd_bus_negotiate_fds(s->bus, 1);
    if (rc >= 0)
        rc = sd_bus_start(s->bus);
    if (rc >= 0)
        rc = sd_bus_set_method_call_timeout(s->bus, CALL_US);
    if (rc >= 0)
        rc = sd_bus_match_signal(s->bus, NULL, NULL, OBJECT, MANAGER, "JobRemoved", on_job_removed, s);
    if (rc >= 0)
        rc = sd_bus_match_signal(s->bus, NULL, NULL, OBJECT, MANAGER, "UnitRemoved", on_unit_removed, s);
    return rc;
}

static struct systemd *open_bus(const struct systemd_events *events, void *ctx, struct err *e)
{
    struct systemd *s = calloc(1, sizeof *s);
    if (!s) {
        err_set(e, ERR_MEMORY, "no memory");
        return NULL;
    }
    s->events = events;
    s->ctx = ctx;
    int rc = connect_bus(s);
    if (rc < 0) {
        err_sys(e, -rc, "cannot reach systemd at /run/systemd/private");
        close_bus(s);
        return NULL;
    }
    return s;
}

static int wait_for(struct systemd *s, int *poll_events, int64_t *us)
{
    uint64_t at = UINT64_MAX, now = clock_now() / 1000;
    int events = sd_bus_get_events(s->bus);
    *poll_events = events < 0 ? 0 : events;
    if (sd_bus_get_timeout(s->bus, &at) < 0)
        at = 0;
    *us = at == UINT64_MAX ? -1 : at > now ? (int64_t)(at - now) : 0;
    return sd_bus_get_fd(s->bus);
}

static int process_bus(struct systemd *s, struct err *e)
{
    int rc;
    do
        rc = sd_bus_process(s->bus, NULL);
    while (rc > 0);
    if (rc >= 0 && sd_bus_is_open(s->bus) <= 0)
        rc = -ECONNRESET;
    return rc < 0 ? err_sys(e, -rc, "the connection to systemd has ended") : 0;
}

/* ---- calls --------------------------------------------------------------------------------------------- */

static int on_answer(sd_bus_message *m, void *userdata, sd_bus_error *error)
{
    struct call *call = userdata;
    const sd_bus_error *answer = sd_bus_message_get_error(m);
    (void)error;
    if (answer)
        call->owner->events->started(call->owner->ctx, call->unit,
                                     answer->message ? answer->message : answer->name);
    return 0;
}

static int append_command(sd_bus_message *m, char *const *argv)
{
    int rc = sd_bus_message_open_container(m, 'r', "sv");
    if (rc >= 0)
        rc = sd_bus_message_append(m, "s", "ExecStart");
    if (rc >= 0)
        rc = sd_bus_message_open_container(m, 'v', "a(sasb)");
    if (rc >= 0)
        rc = sd_bus_message_open_container(m, 'a', "(sasb)");
    if (rc >= 0)
        rc = sd_bus_message_open_container(m, 'r', "sasb");
    if (rc >= 0)
        rc = sd_bus_message_append(m, "s", argv[0]);
    if (rc >= 0)
        rc = sd_bus_message_append_strv(m, (char **)(uintptr_t)argv);
    if (rc >= 0)
        rc = sd_bus_message_append(m, "b", 0);
    for (int i = 0; rc >= 0 && i < 4; i++)
        rc = sd_bus_message_close_container(m);
    return rc;
}

static int append_service(sd_bus_message *m, const struct systemd_service *v)
{
    int rc = sd_bus_message_append(m, "ss", v->name, "fail");
    if (rc >= 0)
        rc = sd_bus_message_open_container(m, 'a', "(sv)");
    if (rc >= 0)
        rc = sd_bus_message_append(
            m, "(sv)(sv)(sv)(sv)(sv)(sv)(sv)(sv)(sv)(sv)", "Description", "s", v->description, "Type", "s",
            "exec", "User", "s", v->user, "Slice", "s", v->slice, "CollectMode", "s", "inactive-or-failed",
            "KillMode", "s", "control-group", "OOMPolicy", "s", "continue", "Delegate", "b", 1,
            "TimeoutStopUSec", "t", STOP_US, "TasksMax", "t", v->tasks_max ? v->tasks_max : UINT64_MAX);
    if (rc >= 0)
        rc = sd_bus_message_append(m, "(sv)(sv)", "LogRateLimitIntervalUSec", "t", LOG_US,
                                   "LogRateLimitBurst", "u", LOG_BURST);
    if (rc >= 0 && v->pam)
        rc = sd_bus_message_append(m, "(sv)", "PAMName", "s", v->pam);
    if (rc >= 0)
        rc = sd_bus_message_append(m, "(sv)(sv)(sv)", "StandardInputFileDescriptor", "h", v->fd[0],
                                   "StandardOutputFileDescriptor", "h", v->fd[1],
                                   "StandardErrorFileDescriptor", "h", v->fd[2]);
    if (rc >= 0)
        rc = append_command(m, v->argv);
    if (rc >= 0)
        rc = sd_bus_message_close_container(m);
    return rc < 0 ? rc : sd_bus_message_append(m, "a(sa(sv))", 0);
}

static int start_unit(struct systemd *s, const struct systemd_service *service, struct err *e)
{
    sd_bus_message *m = NULL;
    struct call *call = new_call(s, service->name);
    if (!call)
        return err_set(e, ERR_MEMORY, "no memory for a unit");
    int rc = sd_bus_message_new_method_call(s->bus, &m, PEER, OBJECT, MANAGER, "StartTransientUnit");
    if (rc >= 0)
        rc = append_service(m, service);
    if (rc >= 0)
        rc = send_call(s, m, on_answer, call);
    else
        free(call);
    sd_bus_message_unref(m);
    return rc < 0 ? err_sys(e, -rc, "cannot ask systemd for a unit") : 0;
}

static int list_units(struct systemd *s, const char *pattern, void (*see)(void *ctx, const char *unit),
                      void *ctx, struct err *e)
{
    sd_bus_error error = SD_BUS_ERROR_NULL;
    sd_bus_message *answer = NULL;
    int rc = sd_bus_call_method(s->bus, PEER, OBJECT, MANAGER, "ListUnitsByPatterns", &error, &answer, "asas",
                                0, 1, pattern);
    if (rc >= 0)
        rc = sd_bus_message_enter_container(answer, 'a', "(ssssssouso)");
    const char *unit, *active;
    for (bool more = rc >= 0; more; more = rc > 0) {
        rc = sd_bus_message_read(answer, "(ssssssouso)", &unit, NULL, NULL, &active, NULL, NULL, NULL, NULL,
                                 NULL, NULL);
        if (rc > 0 && strcmp(active, "inactive") != 0 && strcmp(active, "failed") != 0)
            see(ctx, unit);
    }
    if (rc < 0)
        err_set(e, ERR_SYSTEM, "systemd does not list its units: %s",
                error.message ? error.message : strerror(-rc));
    sd_bus_error_free(&error);
    sd_bus_message_unref(answer);
    return rc < 0 ? -1 : 0;
}

/* ---- services ------------------------------------------------------------------------------------------ */

static int listen_fds(void)
{
    int count = sd_listen_fds(1);
    return count < 0 ? 0 : count;
}

static void notify_systemd(const char *state)
{
    (void)sd_notify(0, state);
}

static uint64_t watchdog_us(void)
{
    uint64_t us = 0;
    return sd_watchdog_enabled(0, &us) > 0 ? us : 0;
}

const struct systemd_ops hvd_systemd_ops = {.listen_fds = listen_fds,
                                            .notify = notify_systemd,
                                            .watchdog_us = watchdog_us,
                                            .open = open_bus,
                                            .close = close_bus,
                                            .wait_for = wait_for,
                                            .process = process_bus,
                                            .start = start_unit,
                                            .list = list_units};
