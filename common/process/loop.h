/* An event loop that bears a moment without memory or descriptors. */
#pragma once

#include <uv.h>

#include "common/base/err.h"

/* uv_loop_init for our programs; to be the first use of libuv in the process. */
int loop_init(uv_loop_t *loop, struct err *e);
