/* Signals to hvdrun, taken on the loop. */
#ifndef HVD_LAUNCHER_SIGNALS_H
#define HVD_LAUNCHER_SIGNALS_H

#include <uv.h>

#define SIGNALS_COUNT 9

struct signals {
    uv_signal_t handle[SIGNALS_COUNT];
    int count;
    void (*arrived)(void *ctx, int number);
    void *ctx;
};

/* Watches INT TERM HUP QUIT (which end the job), USR1 USR2 WINCH (passed on), TSTP CONT (stop and go on). One that was ignored when we
 * started (nohup) stays ignored. */
void signals_init(struct signals *s, uv_loop_t *loop, void (*arrived)(void *ctx, int number), void *ctx);
void signals_close(struct signals *s);

#endif
