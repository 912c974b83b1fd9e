/* Writing to a file to the end. */
#ifndef HVD_COMMON_BASE_WRITE_ALL_H
#define HVD_COMMON_BASE_WRITE_ALL_H

#include <stddef.h>

/* Goes on after signals and short writes; `fd` blocks. -1 with errno. */
int write_all(int fd, const void *bytes, size_t len);

#endif
