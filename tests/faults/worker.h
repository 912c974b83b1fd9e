/* The files by which a worker of the fault matrix tells how far it is (worker.c), and its elastic phases. */
#pragma once

#include <stddef.h>

/* The path of a file of the cell. */
void fault_path(char *out, size_t size, const char *name);
/* NAME.RANK appears, with a number in it. */
void fault_mark_number(const char *what, long long number);
/* The same, with the time in microseconds. */
void fault_mark(const char *what);

/* A worker of an elastic job (elastic.c), which ends with the returned status. */
int fault_train(void);
