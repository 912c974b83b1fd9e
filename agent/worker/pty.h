/* A pseudo terminal for one worker (--pty), made where the worker runs. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/protocol/control.pb-c.h"
#include "common/base/err.h"

/* Our end and the worker's, both close-on-exec. -1 with *e. */
int pty_open(int *master, int *slave, const Hvd__Window *size, struct err *e);
/* The kernel tells the programs there with SIGWINCH. */
void pty_resize(int master, const Hvd__Window *size);
#define PTY_END_MAX 2
/* The bytes after which a program that reads lines finds the end of its input; `begun`: the last line has no
 * end yet. Returns how many bytes. */
size_t pty_end_of_input(int master, bool begun, uint8_t out[PTY_END_MAX]);
