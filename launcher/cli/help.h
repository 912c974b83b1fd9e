/* hvdrun help [TOPIC]: the manual page of a topic, or its short text. */
#ifndef HVD_LAUNCHER_CLI_HELP_H
#define HVD_LAUNCHER_CLI_HELP_H

#include <stdio.h>

#include "common/base/err.h"

/* `words`, NULL at the end, are those behind `help`. Shows the page by becoming man(1); where there is none,
 * or no page, writes the topic's short text to `out`. -1 with *e (ERR_USAGE): there is no such topic. */
int help_show(char *const words[], FILE *out, struct err *e);
/* The short text only, as without man(1). */
int help_print(char *const words[], FILE *out, struct err *e);

#endif
