/* The workers of end-to-end tests share this: how they fail. */
#pragma once

#include "hvd.h"

/* The round of a worker that repeats its operations; messages name it. */
extern int worker_round;

/* Ends the worker with status 1, after "rank N[, round K]: TEXT; LAST ERROR" on stderr. */
__attribute__((format(printf, 1, 2), noreturn)) void wrong(const char *format, ...);
/* The status of a call has to be HVD_SUCCESS. */
void must(int status, const char *what);
