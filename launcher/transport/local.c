/* The session (or a sweep) on this machine: fork and exec of `<agent_path> attach` over a socketpair. No
 * SSH, no shell.
 */
#include "launcher/transport/process.h"

/* Our child is the guard. When the guard is killed, the session still ends the job in order and closes the
 * stream itself. */

/* The session ends the job on EOF of its stdin; this is what it gets before we help. */
#define LOCAL_TERM_AFTER_MS 5000

static struct transport *local_start(uv_loop_t *loop, const struct transport_target *target,
                                     const struct transport_events *events, void *ctx, struct err *e)
{
    char *argv[5] = {(char *)target->agent_path, "session"};
    for (int i = 0; target->arguments && target->arguments[i] && i < 3; i++)
        argv[1 + i] = target->arguments[i];
    struct process_spec spec = {.argv = argv,
                                .peer_address = "127.0.0.1",
                                .term_after_ms = LOCAL_TERM_AFTER_MS,
                                .exit_after_ms = LOCAL_TERM_AFTER_MS,
                                .lingers = true};
    return process_start(loop, &spec, events, ctx, e);
}

const struct transport_ops transport_local = {
    .name = "local",
    .start = local_start,
    .write = process_write,
    .close = process_close,
    .peer_address = process_peer_address,
    .destroy = process_destroy,
};
