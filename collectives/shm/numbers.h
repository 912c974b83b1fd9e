/* A list of numbers beside a question on the worker socket: a sealed file. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* The file's descriptor, the caller's; -1 with errno. */
int numbers_write(const uint32_t *number, size_t n);
/* The numbers of a file that came from elsewhere, the caller's to free; NULL: it holds none, or more than
 * `most`. */
uint32_t *numbers_read(int fd, size_t most, size_t *n);
