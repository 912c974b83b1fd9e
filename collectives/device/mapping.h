/* An allocation of a GPU at addresses of this process: one of another process that came as a descriptor, or
 * one of ours at a second place. It lives as long as any mapping or handle of it does. */
#ifndef HVD_DEVICE_MAPPING_H
#define HVD_DEVICE_MAPPING_H

#include <stddef.h>

#include "collectives/device/driver.h"
#include "common/err.h"

/* All `bytes` of it, for that GPU to read and write. Needs DRIVER_VMM. */
int mapping_open(const struct driver *d, int gpu, cu_allocation allocation, size_t bytes, cu_pointer *at,
                 struct err *e);
/* Nothing may be using it any more: not even work that lies in a stream. */
void mapping_close(const struct driver *d, cu_pointer at, size_t bytes);

#endif
