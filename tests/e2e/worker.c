#include "tests/e2e/worker.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

int worker_round = -1;

void wrong(const char *format, ...)
{
    const char *rank = getenv("HVD_RANK");
    va_list ap;

    va_start(ap, format);
    fprintf(stderr, "rank %s", rank ? rank : "?");
    if (worker_round >= 0)
        fprintf(stderr, ", round %d", worker_round);
    fputs(": ", stderr);
    vfprintf(stderr, format, ap);
    fprintf(stderr, "; %s\n", hvd_last_error());
    va_end(ap);
    exit(1);
}

void must(int status, const char *what)
{
    if (status != HVD_SUCCESS)
        wrong("%s: %s", what, hvd_status_name(status));
}
