/* Any ssh-like program as a transport: --rsh, and what the ssh module cannot do. The remote command is one
 * last argument, a shell command line, as ssh, `kubectl exec -- sh -c` wrappers and own scripts take it. */
#include "launcher/transport/process.h"
#include "launcher/transport/rsh_template.h"

/* The program only carries the stream: the session at its far end sees EOF when it goes. */
#define EXEC_TERM_AFTER_MS 200
/* The session has closed the stream: its guard still clears away, and its exit status is what comes last. */
#define EXEC_EXIT_AFTER_MS 8000

static struct transport *exec_start(uv_loop_t *loop, const struct transport_target *target,
                                    const struct transport_events *events, void *ctx, struct err *e)
{
    struct rsh_argv argv;
    struct transport *t = NULL;
    if (rsh_template_expand(target, &argv, e) == 0) {
        struct process_spec spec = {.argv = argv.word,
                                    .term_after_ms = EXEC_TERM_AFTER_MS,
                                    .exit_after_ms = EXEC_EXIT_AFTER_MS,
                                    .carrier = true};
        t = process_start(loop, &spec, events, ctx, e);
    }
    rsh_argv_free(&argv);
    return t;
}

const struct transport_ops transport_exec = {
    .name = "exec",
    .start = exec_start,
    .write = process_write,
    .close = process_close,
    .peer_address = process_peer_address,
    .destroy = process_destroy,
};
