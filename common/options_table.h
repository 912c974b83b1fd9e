/* How a row of an option table is read: shared by the parser and the printers of options.h, and by nobody
 * else. */
#ifndef HVD_COMMON_OPTIONS_TABLE_H
#define HVD_COMMON_OPTIONS_TABLE_H

#include "common/options.h"

/* One spelling of an option; not terminated. */
struct option_flag {
    const char *text;
    size_t len;
};

/* The next spelling of a row; begin with an empty *flag. */
bool option_next_flag(const struct option_spec *spec, struct option_flag *flag);

#define OPTION_WANTED_MAX 256
/* What a value must be: "a number from 1 to 65535". */
void option_wanted(const struct option_spec *spec, char *text, size_t size);

#endif
