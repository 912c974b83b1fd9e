/* --pty: hvdrun's terminal belongs to one worker while that worker runs. */
#include "launcher/io/terminal.h"
#include "launcher/job/core.h"
#include "launcher/parts/parts.h"

static bool has_terminal(const struct job *j, uint32_t rank)
{
    return j->config->pty && (int64_t)rank == j->config->stdin_rank;
}

/* Does the worker with the terminal run? */
static bool is_running(const struct job *j)
{
    const struct rank_state *r = j->config->pty && j->planned ? &j->rank[j->config->stdin_rank] : NULL;
    return r && r->started && !r->exited && !j->stop.signal;
}

void pty_tell_window(struct job *j)
{
    if (!is_running(j))
        return;
    Hvd__Window window = HVD__WINDOW__INIT;
    terminal_size(&window);
    window.rank = (uint32_t)j->config->stdin_rank;
    CONTROL(m, WINDOW, window, &window);
    host_send(job_host_of_rank(j, window.rank), &m);
}

void pty_resume(struct job *j)
{
    if (is_running(j))
        terminal_make_raw();
}

static void on_rank_started(struct job *j, uint32_t rank)
{
    if (!has_terminal(j, rank))
        return;
    terminal_make_raw();
    pty_tell_window(j); /* the size may have changed after Spawn was written */
}

static void on_rank_gone(struct job *j, uint32_t rank)
{
    if (has_terminal(j, rank))
        terminal_restore();
}

const struct job_part part_pty = {
    .rank_started = on_rank_started,
    .rank_gone = on_rank_gone,
};
