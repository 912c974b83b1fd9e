/* The user's terminal while a worker has one of its own (--pty): raw, so that every key reaches that worker,
 * and as it was in time. One for the process, as its standard input is. */
#pragma once

#include <stdbool.h>

#include "common/protocol/control.pb-c.h"

/* Makes it raw. Nothing happens when standard input is no terminal, or we are in its background. */
void terminal_make_raw(void);
/* As it was before. Idempotent. */
void terminal_restore(void);
bool terminal_is_raw(void);
/* Of our terminal; without one, that of a usual one. */
void terminal_size(Hvd__Window *size);
