/* The reasons for which a GPU makes itself slower, as NVML tells them (nvmlClocksEventReason...): the bits
 * and their words. Others, as an idle GPU or clocks that somebody has set, are no trouble. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define GPU_SLOW_POWER_CAP   0x04u /* by the driver: it would need more power than it may */
#define GPU_SLOW_HARDWARE    0x08u /* by the GPU itself; mostly with one of those below */
#define GPU_SLOW_SOFT_HEAT   0x20u /* by the driver */
#define GPU_SLOW_HEAT        0x40u /* by the GPU itself */
#define GPU_SLOW_POWER_BRAKE 0x80u /* the machine's power supply has told it to */
#define GPU_SLOW_BY_HEAT     (GPU_SLOW_SOFT_HEAT | GPU_SLOW_HEAT)
#define GPU_SLOW_ALL         (GPU_SLOW_POWER_CAP | GPU_SLOW_HARDWARE | GPU_SLOW_BY_HEAT | GPU_SLOW_POWER_BRAKE)

#define GPU_SLOW_TEXT 64

/* "heat, power brake"; empty: nothing slows it. Returns `text`. */
const char *gpu_slow_text(uint64_t reasons, char text[GPU_SLOW_TEXT]);
