#include "launcher/signals.h"

#include <sys/signalfd.h>
#include <unistd.h>

static const int watched[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH, SIGTSTP, SIGCONT};

static void on_readable(uv_poll_t *poll, int status, int events)
{
    struct signals *s = poll->data;
    struct signalfd_siginfo info;
    (void)status;
    (void)events;
    while (read(s->fd, &info, sizeof info) == (ssize_t)sizeof info)
        s->arrived(s->ctx, (int)info.ssi_signo);
}

/* One that is ignored stays so. */
static void find_watched(sigset_t *set)
{
    struct sigaction now;
    sigemptyset(set);
    for (size_t i = 0; i < sizeof watched / sizeof *watched; i++)
        if (sigaction(watched[i], NULL, &now) < 0 || now.sa_handler != SIG_IGN)
            sigaddset(set, watched[i]);
}

void signals_hold(sigset_t *before)
{
    sigset_t set;
    find_watched(&set);
    sigprocmask(SIG_BLOCK, &set, before);
}

int signals_init(struct signals *s, uv_loop_t *loop, void (*arrived)(void *ctx, int number), void *ctx)
{
    sigset_t set;
    find_watched(&set);
    s->arrived = arrived;
    s->ctx = ctx;
    s->fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (s->fd < 0 || uv_poll_init(loop, &s->poll, s->fd) < 0)
        return -1;
    sigprocmask(SIG_BLOCK, &set, &s->before);
    s->poll.data = s;
    uv_poll_start(&s->poll, UV_READABLE, on_readable);
    uv_unref((uv_handle_t *)&s->poll);
    return 0;
}

void signals_close(struct signals *s)
{
    uv_close((uv_handle_t *)&s->poll, NULL);
    close(s->fd);
    sigprocmask(SIG_SETMASK, &s->before, NULL);
}
