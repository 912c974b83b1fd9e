#include "launcher/job/signals.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/signalfd.h>
#include <unistd.h>

static const int watched[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH, SIGTSTP, SIGCONT};

static void on_readable(uv_poll_t *poll, int status, int events)
{
    struct signals *s = poll->data;
    struct signalfd_siginfo info;
    (void)status;
    (void)events;
    while (s->arrived && read(s->fd, &info, sizeof info) == (ssize_t)sizeof info)
        s->arrived(s->ctx, (int)info.ssi_signo);
}

/* One that is ignored stays so. */
static void find_watched(uint64_t forwarded, sigset_t *set)
{
    struct sigaction now;
    for (size_t i = 0; i < sizeof watched / sizeof *watched; i++)
        forwarded |= SIGNAL_BIT(watched[i]);
    sigemptyset(set);
    for (int n = 1; n < NSIG; n++)
        if ((forwarded & SIGNAL_BIT(n)) && (sigaction(n, NULL, &now) < 0 || now.sa_handler != SIG_IGN))
            sigaddset(set, n);
}

/* By name, with SIG before it or without, or by number; 0: there is none. */
static int signal_number(const char *word, size_t len)
{
    if (len > 3 && strncasecmp(word, "SIG", 3) == 0) {
        word += 3;
        len -= 3;
    }
    for (int n = 1; n < NSIG; n = n == SIGSYS ? SIGRTMIN : n + 1) {
        char number[16];
        const char *name = sigabbrev_np(n);
        snprintf(number, sizeof number, "%d", n);
        if ((name && strlen(name) == len && strncasecmp(name, word, len) == 0) ||
            (strlen(number) == len && strncmp(number, word, len) == 0))
            return n;
    }
    return 0;
}

int signals_parse(uint64_t *forwarded, const char *list, struct err *e)
{
    static const int own[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT, SIGTTIN, SIGTTOU};
    static const int never[] = {SIGKILL, SIGSTOP, SIGCHLD, SIGPIPE, SIGXFSZ, SIGILL,
                                SIGTRAP, SIGABRT, SIGBUS,  SIGFPE,  SIGSEGV, SIGSYS};
    uint64_t owned = 0, refused = 0;
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        owned |= SIGNAL_BIT(own[i]);
    for (size_t i = 0; i < sizeof never / sizeof *never; i++)
        refused |= SIGNAL_BIT(never[i]);
    *forwarded = 0;
    if (strcasecmp(list, "none") == 0)
        return 0;
    for (const char *at = list; at;) {
        size_t len = strcspn(at, ",");
        int number = signal_number(at, len);
        if (!number)
            return err_set(e, ERR_USAGE, "--forward-signals: there is no signal '%.*s'", (int)len, at);
        if (owned & SIGNAL_BIT(number))
            return err_set(e, ERR_USAGE, "--forward-signals: hvdrun itself always acts on %.*s", (int)len,
                           at);
        if (refused & SIGNAL_BIT(number))
            return err_set(e, ERR_USAGE, "--forward-signals: %.*s cannot be passed on", (int)len, at);
        *forwarded |= SIGNAL_BIT(number);
        at = at[len] ? at + len + 1 : NULL;
    }
    return 0;
}

void signals_hold(uint64_t forwarded, sigset_t *before)
{
    sigset_t set;
    find_watched(forwarded, &set);
    sigprocmask(SIG_BLOCK, &set, before);
}

int signals_init(struct signals *s, uv_loop_t *loop, uint64_t forwarded)
{
    sigset_t set;
    find_watched(forwarded, &set);
    s->arrived = NULL;
    s->fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (s->fd < 0 || uv_poll_init(loop, &s->poll, s->fd) < 0)
        return -1;
    sigprocmask(SIG_BLOCK, &set, &s->before);
    s->poll.data = s;
    uv_unref((uv_handle_t *)&s->poll);
    return 0;
}

void signals_take(struct signals *s, void (*arrived)(void *ctx, int number), void *ctx)
{
    s->arrived = arrived;
    s->ctx = ctx;
    uv_poll_start(&s->poll, UV_READABLE, on_readable);
}

void signals_rest(struct signals *s)
{
    s->arrived = NULL;
    uv_poll_stop(&s->poll);
}

void signals_close(struct signals *s)
{
    uv_close((uv_handle_t *)&s->poll, NULL);
    close(s->fd);
    sigprocmask(SIG_SETMASK, &s->before, NULL);
}
