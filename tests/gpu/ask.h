/* Parts of tests/gpu/ask.c. */
#pragma once

#include <stdbool.h>

#include "collectives/gpu/driver.h"

/* Prints a line: `# QUESTION: ANSWER`. */
__attribute__((format(printf, 2, 3))) void say(const char *question, const char *format, ...);
/* True when the driver has refused, which is an answer by itself. */
bool say_refusal(const char *question, cu_result result, const char *what);
double now_us(void);

/* The kernels of pack.h beside the driver's own copies: in bytes that are read and written. */
void ask_of_kernels(const struct driver *d);
