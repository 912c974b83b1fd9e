/* Small files, whole. */
#pragma once

#include <stddef.h>
#include <sys/types.h>

#include "common/base/err.h"

/* Writes all bytes to `fd`, which blocks: goes on after signals and short writes. -1 with errno. */
int write_all(int fd, const void *bytes, size_t len);
/* Reads the text of a file that is written at once; no more than fits. `flags` are added to those of open(2).
 * Returns the length; -1 with errno and an empty text when the file cannot be read. */
ssize_t file_read(const char *path, int flags, char *text, size_t size);
/* Replaces the file by one beside it, `path`.new. -1 with *e, which names `what` and the path: the file is as
 * before. */
int file_replace(const char *path, mode_t mode, const void *bytes, size_t len, const char *what,
                 struct err *e);
