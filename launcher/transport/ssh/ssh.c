/* The ssh transport's door: what transport.h promises, over ssh_session.c. Everything that a caller may do is
 * only noted here and acted on from the loop. */
#include <libssh2.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/process/module.h"
#include "launcher/transport/ssh/ssh_session.h"

MODULE_DEFINE_VERSION;

extern const char hvd_module_version[];
extern const struct transport_ops hvd_transport_ssh;

static int check_target(const struct transport_target *target, struct err *e)
{
    if (!target->host || !*target->host || target->host[0] == '-')
        return err_set(e, ERR_USAGE, "bad host name \"%s\"", target->host ? target->host : "");
    if (target->user && (!*target->user || target->user[0] == '-'))
        return err_set(e, ERR_USAGE, "bad user name \"%s\" for host %s", target->user, target->host);
    return 0;
}

static struct transport *start_transport(uv_loop_t *loop, const struct transport_target *target,
                                         const struct transport_events *events, void *ctx, struct err *e)
{
    static bool library_ready;
    if (check_target(target, e) < 0)
        return NULL;
    if (!library_ready && libssh2_init(0) != 0) {
        err_set(e, ERR_SYSTEM, "libssh2 could not be initialised");
        return NULL;
    }
    library_ready = true;
    struct transport *t = calloc(1, sizeof *t);
    if (!t) {
        err_set(e, ERR_MEMORY, "no memory for a connection");
        return NULL;
    }
    t->loop = loop;
    t->target = target;
    t->events = events;
    t->ctx = ctx;
    t->wire.fd = -1;
    t->end.exit_status = -1;
    t->state_since = clock_now();
    uv_timer_init(loop, &t->kick);
    uv_timer_init(loop, &t->timer);
    t->kick.data = t->timer.data = t;
    t->open_handles = 2;
    ssh_kick(t);
    return t;
}

static size_t write_bytes(struct transport *t, const void *bytes, size_t len)
{
    if (t->end.requested || t->wire.write_failed || t->state > SSH_RUN)
        return len;
    /* opened() comes from within the exec step: the channel is ready then. */
    if (t->state < SSH_EXEC)
        return 0;
    return ssh_channel_send(t, bytes, len);
}

static void close_transport(struct transport *t)
{
    t->end.requested = true;
    ssh_kick(t);
}

static const char *peer_address(struct transport *t)
{
    return t->connect.numeric[0] ? t->connect.numeric : NULL;
}

static void destroy_transport(struct transport *t)
{
    ssh_config_free(&t->config);
    free(t);
}

const struct transport_ops hvd_transport_ssh = {
    .name = "ssh",
    .start = start_transport,
    .write = write_bytes,
    .close = close_transport,
    .peer_address = peer_address,
    .destroy = destroy_transport,
};
