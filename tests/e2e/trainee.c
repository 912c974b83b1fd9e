/* A worker of an elastic job: trainee STEPS [MS]. Each step takes MS milliseconds (10), and has a sum whose
 * result tells the number of ranks. TRAINEE has deeds of workers, WORKER:STEP:DEED,...: kill, exit (status
 * 3), leave (status 0 in the middle), hang, far (35 s), abort (hvd_abort) or late (2 s before hvd_reset).
 * Lines: "enter WORKER PID RANK SIZE MEMBERSHIP STEP", "left WORKER", "done WORKER STEP". */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "hvd.h"

#define ELEMENTS 5000

static int worker, step, steps;

static void say_line(const char *what)
{
    char line[200];
    int n = snprintf(line, sizeof line, "%s %d", what, worker);
    if (*what == 'e')
        n += snprintf(line + n, sizeof line - (size_t)n, " %d %d %d %d", (int)getpid(), hvd_rank(),
                      hvd_size(), hvd_membership());
    if (*what != 'l')
        n += snprintf(line + n, sizeof line - (size_t)n, " %d", step);
    line[n++] = '\n';
    (void)!write(STDOUT_FILENO, line, (size_t)n);
}

static void pause_ms(int ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL);
}

/* The wish for this worker and step; "": none. */
static const char *find_wish(void)
{
    static char what[20];
    const char *at = getenv("TRAINEE");
    int w, s, n;
    for (; at && sscanf(at, "%d:%d:%19[a-z]%n", &w, &s, what, &n) == 3; at += n + (at[n] == ','))
        if (w == worker && s == step)
            return what;
    return "";
}

static void obey_wish(const char *what)
{
    if (strcmp(what, "kill") == 0)
        raise(SIGKILL);
    else if (strcmp(what, "exit") == 0)
        _exit(3);
    else if (strcmp(what, "leave") == 0)
        _exit(0);
    else if (strcmp(what, "abort") == 0)
        hvd_abort("it was told to");
    else if (strcmp(what, "far") == 0)
        pause_ms(35000);
    else if (strcmp(what, "hang") == 0)
        pause_ms(3600000);
}

static int take_step(float *x, int *changed)
{
    int now = step, flag, status = hvd_broadcast("step", &now, 1, HVD_INT32, 0, NULL);
    if (status != HVD_SUCCESS)
        return status;
    step = now;
    *changed = 0;
    if (step >= steps)
        return HVD_SUCCESS;
    obey_wish(find_wish());
    for (int i = 0; i < ELEMENTS; i++)
        x[i] = 1;
    status = hvd_allreduce("sum", x, x, ELEMENTS, HVD_FLOAT32, HVD_SUM, NULL);
    if (status != HVD_SUCCESS)
        return status;
    for (int i = 0; i < ELEMENTS; i++)
        if (x[i] != (float)hvd_size()) {
            fprintf(stderr, "trainee: a sum of %d ranks is %g\n", hvd_size(), (double)x[i]);
            _exit(9);
        }
    step++;
    flag = hvd_membership_changed();
    return hvd_allreduce("changed", &flag, changed, 1, HVD_INT32, HVD_MAX, NULL);
}

static int tell_failure(const char *what, int status)
{
    if (status == HVD_ERR_LEFT) {
        say_line("left");
        return 0;
    }
    fprintf(stderr, "trainee: %s: %s\n", what, hvd_last_error());
    return 1;
}

int main(int argc, char **argv)
{
    const char *number = getenv("HVD_WORKER");
    int ms = argc > 2 ? (int)strtol(argv[2], NULL, 10) : 10, changed;
    steps = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 10;
    worker = number ? (int)strtol(number, NULL, 10) : -1;
    int status = hvd_init();
    if (status != HVD_SUCCESS)
        return tell_failure("hvd_init", status);
    float *x = hvd_alloc(ELEMENTS * sizeof *x), *kept = hvd_alloc(4096);
    kept[0] = kept[1000] = 7;
    say_line("enter");
    for (int over = 0; !over;) {
        int late = strcmp(find_wish(), "late") == 0;
        status = take_step(x, &changed);
        over = status == HVD_SUCCESS && !changed && step >= steps;
        if (status != HVD_SUCCESS || changed) {
            if (late)
                pause_ms(2000);
            status = hvd_reset();
            if (status != HVD_SUCCESS)
                return tell_failure("hvd_reset", status);
            if (kept[0] != 7 || kept[1000] != 7)
                return tell_failure("memory has changed", 0);
            say_line("enter");
        }
        pause_ms(ms);
    }
    status = hvd_shutdown();
    if (status != HVD_SUCCESS)
        return tell_failure("hvd_shutdown", status);
    say_line("done");
    return 0;
}
