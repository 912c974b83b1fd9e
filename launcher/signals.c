#include "launcher/signals.h"

#include <signal.h>

static const int watched[SIGNALS_COUNT] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH, SIGTSTP, SIGCONT};

static void on_signal(uv_signal_t *handle, int number)
{
    struct signals *s = handle->data;
    s->arrived(s->ctx, number);
}

void signals_init(struct signals *s, uv_loop_t *loop, void (*arrived)(void *ctx, int number), void *ctx)
{
    struct sigaction now;
    s->arrived = arrived;
    s->ctx = ctx;
    s->count = 0;
    for (int i = 0; i < SIGNALS_COUNT; i++) {
        if (sigaction(watched[i], NULL, &now) == 0 && now.sa_handler == SIG_IGN)
            continue;
        uv_signal_t *handle = &s->handle[s->count];
        if (uv_signal_init(loop, handle) < 0)
            continue;
        handle->data = s;
        uv_signal_start(handle, on_signal, watched[i]);
        uv_unref((uv_handle_t *)handle);
        s->count++;
    }
}

void signals_close(struct signals *s)
{
    for (int i = 0; i < s->count; i++)
        uv_close((uv_handle_t *)&s->handle[i], NULL);
    s->count = 0;
}
