#include "agent/daemon/daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent/daemon/admission/client.h"
#include "agent/daemon/core.h"
#include "agent/daemon/sessions.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/process/loop.h"
#include "common/process/module.h"

#define BACKLOG  1024
#define PAUSE_MS 100 /* without descriptors, until the next attempt to accept */
#define ACCEPTS  64  /* a turn of the loop */
#define FIRST_FD 3   /* of those that systemd passes */

/* ---- the socket ---------------------------------------------------------------------------------------- */

static void on_connection(uv_poll_t *poll, int status, int events);

static void accept_again(uv_timer_t *timer)
{
    struct daemon *d = timer->data;
    uv_poll_start(&d->listener.poll, UV_READABLE, on_connection);
}

static void pause_accepting(struct daemon *d, const char *why)
{
    daemon_complain(d, NULL, why);
    uv_poll_stop(&d->listener.poll);
    uv_timer_start(&d->listener.pause, accept_again, PAUSE_MS, 0);
}

/* Twice: those that are one too many are still to be closed. */
static bool may_accept(const struct daemon *d)
{
    return d->client_count - d->queue.count < 2 * (size_t)d->config.max_connections;
}

static void on_connection(uv_poll_t *poll, int status, int events)
{
    struct daemon *d = poll->data;
    (void)status;
    (void)events;
    for (int i = 0; i < ACCEPTS && may_accept(d); i++) {
        int fd = accept4(d->listener.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            client_open(d, fd);
            continue;
        }
        if (errno == EINTR || errno == ECONNABORTED)
            continue;
        if (errno == EAGAIN)
            return;
        pause_accepting(d, strerror(errno));
        return;
    }
    if (!may_accept(d))
        pause_accepting(d, "too many are being closed");
}

static int make_socket(struct daemon *d, struct err *e)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int n = snprintf(name.sun_path, sizeof name.sun_path, "%s/" DAEMON_SOCKET, d->config.directory);
    if (n < 0 || (size_t)n >= sizeof name.sun_path)
        return err_set(e, ERR_USAGE, "--directory: the path is too long for a socket");
    d->listener.own = true;
    d->listener.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    (void)unlink(name.sun_path); /* of one that was killed: whoever runs has the lock */
    if (d->listener.fd < 0 || bind(d->listener.fd, (struct sockaddr *)&name, sizeof name) < 0 ||
        chmod(name.sun_path, 0666) < 0 || listen(d->listener.fd, BACKLOG) < 0)
        return err_sys(e, errno, "cannot listen on %s", name.sun_path);
    return 0;
}

static int open_socket(struct daemon *d, struct err *e)
{
    int type = 0, listening = 0;
    socklen_t size = sizeof type;
    int passed = d->units.ops->listen_fds();
    if (passed > 1)
        return err_set(e, ERR_USAGE, "systemd passed %d sockets, and one is wanted", passed);
    if (passed == 0) {
        if (make_socket(d, e) < 0)
            return -1;
    } else {
        d->listener.fd = FIRST_FD;
        if (getsockopt(d->listener.fd, SOL_SOCKET, SO_DOMAIN, &type, &size) < 0 || type != AF_UNIX ||
            getsockopt(d->listener.fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) < 0 || !listening)
            return err_set(e, ERR_USAGE, "what systemd passed is not a unix socket that listens");
        fcntl(d->listener.fd, F_SETFL, fcntl(d->listener.fd, F_GETFL) | O_NONBLOCK);
    }
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    size = sizeof name - 1;
    if (getsockname(d->listener.fd, (struct sockaddr *)&name, &size) == 0)
        snprintf(d->listener.path, sizeof d->listener.path, "%s", name.sun_path);
    int rc = uv_poll_init(&d->loop, &d->listener.poll, d->listener.fd);
    if (rc < 0)
        return err_set(e, ERR_SYSTEM, "cannot watch the socket: %s", uv_strerror(rc));
    d->listener.poll.data = d;
    uv_poll_start(&d->listener.poll, UV_READABLE, on_connection);
    return 0;
}

/* ---- systemd ------------------------------------------------------------------------------------------- */

static void on_unit_started(void *ctx, const char *unit, const char *failure)
{
    (void)client_unit_started(ctx, unit, failure);
}

static bool watches_unit(void *ctx, const char *unit)
{
    struct daemon *d = ctx;
    return leases_find(&d->leases, unit) != NULL;
}

static void on_unit_removed(void *ctx, const char *unit)
{
    sessions_end(ctx, unit);
}

static const struct systemd_events unit_events = {on_unit_started, watches_unit, on_unit_removed};

static void on_systemd_lost(void *ctx, const struct err *e)
{
    struct daemon *d = ctx;
    log_error("%s", e->text);
    d->exit_status = 1;
    uv_stop(&d->loop);
}

/* ---- configuration ------------------------------------------------------------------------------------- */

static uint32_t count_slots(uint32_t gpus)
{
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    return gpus ? gpus : cpus > 0 ? (uint32_t)cpus : 1;
}

static void apply_config(struct daemon *d)
{
    const struct daemon_config *c = &d->config;
    log_init("hvdagent", (enum log_level)c->log_level);
    uint32_t gpus = gpu_watch_slots(&d->gpus);
    d->rules = (struct lease_rules){.slots = c->slots ? (uint32_t)c->slots : count_slots(gpus),
                                    .gpus = gpus,
                                    .share = c->share,
                                    .max_jobs = (uint32_t)c->max_jobs,
                                    .max_jobs_per_user = (uint32_t)c->max_jobs_per_user};
}

static void on_gpus_changed(struct daemon *d)
{
    apply_config(d);
    daemon_queue_changed(d);
}

static void tell_systemd(struct daemon *d, const char *state)
{
    char text[256];
    snprintf(text, sizeof text, "%s\nSTATUS=%u slots, %u leased to %zu jobs%s", state, d->rules.slots,
             leases_slots_taken(&d->leases), d->leases.count, daemon_drained(d)[0] ? "; drained" : "");
    d->units.ops->notify(text);
}

static void reload_config(struct daemon *d)
{
    char text[64];
    struct err e = ERR_INIT;
    struct daemon_config config;
    snprintf(text, sizeof text, "RELOADING=1\nMONOTONIC_USEC=%" PRIu64, clock_now() / 1000);
    d->units.ops->notify(text);
    if (daemon_config_read(&config, d->argc, d->argv, &e) < 0) {
        log_error("the configuration stays as it was: %s", e.text);
    } else {
        daemon_config_free(&d->config);
        d->config = config;
        apply_config(d);
        gpu_watch_follow(&d->gpus);
        metrics_follow(d);
        d->metrics.reload++;
        daemon_queue_changed(d);
        log_info("the configuration was read again");
    }
    tell_systemd(d, "READY=1");
}

/* ---- signals and time ---------------------------------------------------------------------------------- */

static void on_signal(uv_signal_t *handle, int number)
{
    struct daemon *d = handle->data;
    if (number == SIGHUP) {
        reload_config(d);
        return;
    }
    log_info("ended by signal %d (%s); %zu jobs go on", number, strsignal(number), d->leases.count);
    d->units.ops->notify("STOPPING=1");
    uv_stop(&d->loop);
}

static void on_watchdog(uv_timer_t *timer)
{
    struct daemon *d = timer->data;
    tell_systemd(d, "WATCHDOG=1");
}

static void watch_signals(struct daemon *d)
{
    static const int numbers[] = {SIGHUP, SIGTERM, SIGINT};
    for (int i = 0; i < 3; i++) {
        uv_signal_init(&d->loop, &d->signals[i]);
        d->signals[i].data = d;
        uv_signal_start(&d->signals[i], on_signal, numbers[i]);
    }
    signal(SIGPIPE, SIG_IGN);
}

static void start_watchdog(struct daemon *d)
{
    uint64_t us = d->units.ops->watchdog_us();
    if (us)
        uv_timer_start(&d->watchdog, on_watchdog, us / 2000, us / 2000);
}

/* ---- life ---------------------------------------------------------------------------------------------- */

static const struct daemon_events daemon_events = {clients_serve_queue, on_gpus_changed, clients_checked};

/* Two daemons would give the slots away twice. */
static int lock_directory(struct daemon *d, struct err *e)
{
    if (mkdir(d->config.directory, 0755) < 0 && errno != EEXIST)
        return err_sys(e, errno, "cannot make the directory %s", d->config.directory);
    d->lock = open(d->config.directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (d->lock < 0)
        return err_sys(e, errno, "cannot open the directory %s", d->config.directory);
    if (flock(d->lock, LOCK_EX | LOCK_NB) < 0)
        return err_set(e, ERR_USAGE, "another managed agent runs in %s", d->config.directory);
    return 0;
}

static int set_up(struct daemon *d, struct err *e)
{
    char directory[PATH_MAX - 16];
    d->listener.fd = d->lock = -1;
    if (loop_init(&d->loop, e) < 0)
        return -1;
    daemon_core_init(d, &daemon_events);
    uv_timer_init(&d->loop, &d->listener.pause);
    uv_timer_init(&d->loop, &d->watchdog);
    uv_timer_init(&d->loop, &d->totals_timer);
    d->listener.pause.data = d->watchdog.data = d->totals_timer.data = d;
    if (module_program_dir(directory, sizeof directory, e) < 0)
        return -1;
    snprintf(d->program, sizeof d->program, "%s/hvdagent", directory);
    drain_read(d->config.directory, d->drained);
    if (lock_directory(d, e) < 0)
        return -1;
    totals_open(&d->totals, d->config.directory, clock_now() / NSEC_PER_MSEC);
    if (leases_open(&d->leases, d->config.directory, e) < 0 ||
        units_open(&d->units, &d->loop, &unit_events, on_systemd_lost, d, e) < 0 ||
        sessions_recover(d, e) < 0 || node_id_open(d->config.directory, d->node, e) < 0)
        return -1;
    gpu_watch_open(&d->gpus, d);
    apply_config(d);
    if (open_socket(d, e) < 0)
        return -1;
    watch_signals(d);
    return 0;
}

static void tear_down(struct daemon *d)
{
    char path[PATH_MAX];
    for (struct client *c = d->clients; c; c = c->next)
        client_drop(c);
    if (d->listener.own) {
        snprintf(path, sizeof path, "%s/" DAEMON_SOCKET, d->config.directory);
        (void)unlink(path);
    }
    uv_close((uv_handle_t *)&d->listener.poll, NULL);
    uv_close((uv_handle_t *)&d->listener.pause, NULL);
    uv_close((uv_handle_t *)&d->watchdog, NULL);
    uv_close((uv_handle_t *)&d->queue_timer, NULL);
    uv_close((uv_handle_t *)&d->totals_timer, NULL);
    for (int i = 0; i < 3; i++)
        uv_close((uv_handle_t *)&d->signals[i], NULL);
    metrics_close(d);
    gpu_watch_close(&d->gpus);
    units_close(&d->units);
    uv_run(&d->loop, UV_RUN_DEFAULT); /* the closed handles' last callbacks */
    (void)uv_loop_close(&d->loop);
    leases_close(&d->leases);
    totals_save(&d->totals);
    totals_close(&d->totals);
    close(d->listener.fd);
    close(d->lock);
    daemon_config_free(&d->config);
}

int daemon_main(int argc, char *const argv[])
{
    static struct daemon daemon; /* one a process; too large for a stack */
    struct daemon *d = &daemon;
    struct err e = ERR_INIT;
    d->argc = argc;
    d->argv = argv;
    if (daemon_config_read(&d->config, argc, argv, &e) < 0) {
        log_error("%s", e.text);
        return err_exit_status(&e);
    }
    if (d->config.help) {
        options_print_help(&daemon_program, stdout);
        daemon_config_free(&d->config);
        return 0;
    }
    log_init("hvdagent", (enum log_level)d->config.log_level);
    if (set_up(d, &e) < 0) {
        log_error("%s", e.text);
        return err_exit_status(&e);
    }
    start_watchdog(d);
    metrics_follow(d);
    tell_systemd(d, "READY=1");
    log_info("managed agent %s: %u slots, %zu jobs run", HVD_VERSION, d->rules.slots, d->leases.count);
    uv_run(&d->loop, UV_RUN_DEFAULT);
    tear_down(d);
    return d->exit_status;
}
