/* Lines that a host prints on stderr, and why its transport has closed, in words. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/protocol/agent_exit.h"
#include "launcher/host/host.h"
#include "launcher/host/host_words.h"
#include "launcher/transport/rsh_template.h"

#define AGENT_SAID "hvdagent: error: " /* begins such lines of its log; people need not read it */

/* Shows a line of stderr: to the user when the session runs, before that in the debug log. */
static void show_line(struct host *h)
{
    bool aloud = h->fsm.state >= HOST_READY && !rsh_tells_status(h->stderr_tail);
    if ((!aloud && !log_enabled(LOG_DEBUG)) || !host_words_take(&h->words, h->label, clock_now()))
        return;
    if (aloud)
        log_say("%s: %s\n", h->label, h->stderr_tail);
    else
        log_debug("%s: said: %s", h->label, h->stderr_tail);
}

/* Before the session runs this is the remote shell's or ssh's complaint, kept for the error; afterwards the
 * agent's log. */
void host_hear(void *ctx, const uint8_t *bytes, size_t len)
{
    struct host *h = ctx;
    for (size_t i = 0; i < len; i++) {
        if (bytes[i] != '\n' && bytes[i] != '\r') {
            if (h->stderr_len < sizeof h->stderr_tail - 1)
                h->stderr_tail[h->stderr_len++] = (char)bytes[i];
            continue;
        }
        h->stderr_tail[h->stderr_len] = '\0';
        log_printable(h->stderr_tail);
        if (h->stderr_len > 0)
            show_line(h);
        h->stderr_len = 0;
    }
}

/* The last thing that was printed there, or NULL. host_hear leaves the last whole line in place. */
static const char *last_words(struct host *h)
{
    if (h->stderr_len > 0)
        h->stderr_tail[h->stderr_len] = '\0';
    if (h->stderr_tail[0])
        return h->stderr_tail;
    const struct buf *noise = &h->channel.noise;
    if (noise->len == 0)
        return NULL;
    size_t len = noise->len < sizeof h->stderr_tail - 1 ? noise->len : sizeof h->stderr_tail - 1;
    memcpy(h->stderr_tail, buf_data(noise) + noise->len - len, len);
    h->stderr_tail[len] = '\0';
    return h->stderr_tail;
}

/* We live, so either we stood still or the way there did. */
static void explain_silence(struct host *h)
{
    err_set(&h->err, ERR_HOST, "its agent heard nothing of hvdrun for %.1f s and ended the job there",
            (double)h->common->config->heartbeat_timeout_ms / 1e3);
    err_hint(&h->err,
             "hvdrun was stopped, or a slow file that it writes to held it up, or the network was down; "
             "--heartbeat-timeout says how long an agent waits");
}

/* The end of an agent that had welcomed us. */
static void explain_loss(struct host *h, const struct transport_end *end)
{
    int number = end->exit_status - AGENT_EXIT_SIGNAL;
    if (end->term_signal && h->ops == &transport_exec) {
        err_set(&h->err, ERR_HOST, "the command of --rsh, which led to %s, was killed by signal %d (%s)",
                h->label, end->term_signal, strsignal(end->term_signal));
        return;
    }
    bool guard = end->exit_status == AGENT_EXIT_GUARD || (end->term_signal && !h->agent.managed);
    bool died =
        end->term_signal || guard || end->exit_status == AGENT_EXIT_STUCK || (number > 0 && number < NSIG);
    h->agent.died = died && !h->err.code;
    if (end->term_signal && h->agent.managed) /* the session ends the job when it hears of that */
        err_set(&h->err, ERR_HOST,
                "hvdagent attach, which led to the session of the job, was killed by signal %d (%s)",
                end->term_signal, strsignal(end->term_signal));
    else if (guard)
        err_set(&h->err, ERR_HOST, "the guard of the job (pid %u) was killed", h->agent.guard_pid);
    else if (end->exit_status == AGENT_EXIT_STUCK)
        err_set(&h->err, ERR_HOST, "the session of the job (pid %u) did not move and was killed by its guard",
                h->agent.session_pid);
    else if (died)
        err_set(&h->err, ERR_HOST, "the session of the job (pid %u) was killed by signal %d (%s)",
                h->agent.session_pid, number, strsignal(number));
    else if (end->exit_status == AGENT_EXIT_SILENT)
        explain_silence(h);
    else
        err_set(&h->err, ERR_HOST, "the connection to %s was lost", h->label);
}

void host_explain_end(struct host *h, const struct transport_end *end)
{
    const char *said = last_words(h);
    struct err *e = &h->err;
    if (said && rsh_tells_status(said))
        said = NULL;
    if (h->fsm.state == HOST_LEAVING || e->code)
        return;
    if (end->err) {
        err_set(e, ERR_HOST, "%s", end->err->text);
        err_hint(e, "%s", end->err->hint);
    } else if (h->fsm.state <= HOST_GREETING && end->exit_status == 127) {
        err_set(e, ERR_HOST, "%s", said ? said : "hvdagent was not found");
        err_hint(e, HOST_INSTALL_HINT);
    } else if (h->fsm.state == HOST_SENDING && said) {
        err_set(e, ERR_HOST, "%s", said);
    } else if (h->fsm.state > HOST_GREETING) {
        explain_loss(h, end);
    } else if (end->term_signal) {
        err_set(e, ERR_HOST, "the agent was killed by signal %d (%s)", end->term_signal,
                strsignal(end->term_signal));
    } else if (said && strncmp(said, AGENT_SAID, strlen(AGENT_SAID)) == 0) {
        err_set(e, ERR_HOST, "%s", said + strlen(AGENT_SAID));
    } else {
        err_set(e, ERR_HOST, "the agent did not start (exit status %d)%s%s", end->exit_status,
                said ? ": " : "", said ? said : "");
    }
}

bool host_end_is_known(const struct host *h, const struct transport_end *end)
{
    bool carried = h->ops == &transport_exec;
    return !end->err && !end->term_signal && end->exit_status >= 0 && !(carried && end->exit_status == 255);
}
