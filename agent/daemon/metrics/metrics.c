#include "agent/daemon/metrics/metrics.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent/daemon/core.h"
#include "agent/daemon/metrics/metric_table.h"
#include "common/base/clock.h"
#include "common/base/exposition.h"
#include "common/base/log.h"
#include "common/process/module.h"

#define NOBODY ((uid_t)-1)

/* ---- the samples --------------------------------------------------------------------------------------- */

static void put_per_user(const struct daemon *d, FILE *out, const char *name, const char *help, bool slots)
{
    const struct lease *item = d->leases.item;
    exposition_family(out, name, "gauge", help);
    for (size_t i = 0; i < d->leases.count; i++) {
        double sum = 0;
        size_t first = 0;
        while (item[first].uid != item[i].uid)
            first++;
        for (size_t k = i; first == i && k < d->leases.count; k++)
            sum += item[k].uid != item[i].uid ? 0 : slots ? item[k].slots : 1;
        if (first == i)
            exposition_sample(out, name, sum, (const char *[]){"user", item[i].user, NULL});
    }
}

static void write_metrics(void *ctx, FILE *out)
{
    struct daemon *d = ctx;
    struct totals_message told;
    const struct metrics *m = &d->metrics;
    const char *version[] = {"version", HVD_VERSION, NULL};
    exposition_family(out, "hvd_agent_info", "gauge", "The managed agent.");
    exposition_sample(out, "hvd_agent_info", 1, version);
    render_node(out, &(struct render_node){.slots = d->rules.slots,
                                           .taken = leases_slots_taken(&d->leases),
                                           .drained = daemon_drained(d)[0]});
    totals_save(&d->totals);
    totals_tell(&d->totals, (uint32_t)d->queue.count, clock_now() / NSEC_PER_MSEC, &told);
    render_jobs(out, &told.sums, &told.now);
    render_gpus(out, gpu_watch_tell(&d->gpus, NOBODY));
    put_per_user(d, out, "hvd_node_jobs", "Jobs that run here.", false);
    put_per_user(d, out, "hvd_node_slots_of_user", "Slots that a user's jobs have.", true);
    exposition_single(out, "hvd_agent_connections", "gauge", "Who waits for an answer of the agent.",
                      (double)d->client_count);
    exposition_single(out, "hvd_agent_leases_given_total", "counter", "Jobs that got slots.",
                      (double)m->given);
    exposition_single(out, "hvd_agent_leases_ended_total", "counter", "Jobs that gave them back.",
                      (double)m->ended);
    exposition_single(out, "hvd_agent_requests_refused_total", "counter", "Requests that were refused.",
                      (double)m->refused);
    exposition_single(out, "hvd_agent_reloads_total", "counter",
                      "Times that the configuration was read again.", (double)m->reload);
}

/* ---- the socket ---------------------------------------------------------------------------------------- */

static void path_of(const struct daemon *d, struct sockaddr_un *name)
{
    *name = (struct sockaddr_un){.sun_family = AF_UNIX};
    snprintf(name->sun_path, sizeof name->sun_path, "%s/" METRICS_SOCKET, d->config.directory);
}

static int listen_there(const struct sockaddr_un *name, struct err *e)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    (void)unlink(name->sun_path); /* of one that was killed: whoever runs has the lock */
    if (fd >= 0 && bind(fd, (const struct sockaddr *)name, sizeof *name) == 0 &&
        chmod(name->sun_path, 0666) == 0 && listen(fd, METRICS_CLIENTS) == 0)
        return fd;
    err_sys(e, errno, "cannot listen on %s", name->sun_path);
    if (fd >= 0)
        close(fd);
    return -1;
}

static void open_socket(struct daemon *d, struct err *e)
{
    struct sockaddr_un name;
    const struct metrics_http_ops *ops = module_symbol(METRICS_MODULE, METRICS_SYMBOL, e);
    path_of(d, &name);
    int fd = ops ? listen_there(&name, e) : -1;
    if (fd >= 0)
        d->metrics.http = ops->start(&d->loop, fd, write_metrics, d, e);
}

void metrics_close(struct daemon *d)
{
    struct sockaddr_un name;
    struct err e = ERR_INIT;
    const struct metrics_http_ops *ops =
        d->metrics.http ? module_symbol(METRICS_MODULE, METRICS_SYMBOL, &e) : NULL;
    if (!ops)
        return;
    ops->stop(d->metrics.http);
    d->metrics.http = NULL;
    path_of(d, &name);
    (void)unlink(name.sun_path);
}

void metrics_follow(struct daemon *d)
{
    struct err e = ERR_INIT;
    if (!d->config.metrics)
        metrics_close(d);
    else if (!d->metrics.http)
        open_socket(d, &e);
    if (e.code)
        log_error("there are no metrics: %s", e.text);
}
