/* Signals to hvdrun, taken on the loop through one signalfd. */
#pragma once

#include <signal.h>
#include <stdint.h>
#include <uv.h>

#include "common/base/err.h"

struct signals {
    uv_poll_t poll;
    int fd;
    sigset_t before;                        /* the mask to go back to */
    void (*arrived)(void *ctx, int number); /* NULL: signals wait */
    void *ctx;
};

/* Sets of signals to be passed on: signal n is bit n - 1. */
#define SIGNAL_BIT(n) (1ULL << ((n)-1))

/* Of --forward-signals: names (USR1, SIGUSR1) or numbers by comma, or none. ERR_USAGE. */
int signals_parse(uint64_t *forwarded, const char *list, struct err *e);

/* Takes INT TERM HUP QUIT (which end the job), TSTP CONT (stop and go on), USR1 USR2 WINCH (which would end
 * or wake us) and what else is passed on. One that was ignored when we started (nohup) stays ignored. They
 * are blocked in this process; spawn_start gives children an empty mask. */
int signals_init(struct signals *s, uv_loop_t *loop, uint64_t forwarded);
/* Signals go to `arrived` from now on. */
void signals_take(struct signals *s, void (*arrived)(void *ctx, int number), void *ctx);
/* Signals wait until signals_take. */
void signals_rest(struct signals *s);
/* Blocks the same signals, so that none is lost before or between times when they are taken. */
void signals_hold(uint64_t forwarded, sigset_t *before);
void signals_close(struct signals *s);
