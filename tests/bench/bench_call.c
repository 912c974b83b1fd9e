#include "tests/bench/bench_call.h"

#include <errno.h>
#include <hvd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int bench_rank;

void bench_fail(const char *format, ...)
{
    va_list arguments;

    fprintf(stderr, "%s: rank %d: ", program_invocation_short_name, bench_rank);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(1);
}

void bench_check(int status, const char *what)
{
    if (status < 0)
        bench_fail("%s: %s", what, hvd_last_error());
}

double bench_now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}
