/* Signals to hvdrun, taken on the loop through one signalfd. */
#ifndef HVD_LAUNCHER_SIGNALS_H
#define HVD_LAUNCHER_SIGNALS_H

#include <signal.h>
#include <uv.h>

struct signals {
    uv_poll_t poll;
    int fd;
    sigset_t before; /* the mask to go back to */
    void (*arrived)(void *ctx, int number);
    void *ctx;
};

/* Takes INT TERM HUP QUIT (which end the job), USR1 USR2 WINCH (passed on), TSTP CONT (stop and go on). One
 * that was ignored when we started (nohup) stays ignored. They are blocked in this process; spawn_start gives
 * children an empty mask. */
int signals_init(struct signals *s, uv_loop_t *loop, void (*arrived)(void *ctx, int number), void *ctx);
/* Blocks the same signals, so that none is lost before or between times when they are taken. */
void signals_hold(sigset_t *before);
void signals_close(struct signals *s);

#endif
