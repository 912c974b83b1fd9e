/* An event loop that bears a moment without memory or descriptors. */
#ifndef HVD_COMMON_PROCESS_LOOP_H
#define HVD_COMMON_PROCESS_LOOP_H

#include <uv.h>

#include "common/base/err.h"

/* uv_loop_init for our programs; to be the first use of libuv in the process. */
int loop_init(uv_loop_t *loop, struct err *e);

#endif
