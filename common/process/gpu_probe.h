/* Asks about the GPUs of this host: starts `hvdagent gpus` (agent/gpu/gpu_scan.h) and takes what it
 * says. A driver that hangs costs that process its life, and us no more than the time that we give it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/process/spawn.h"
#include "common/protocol/control.pb-c.h"

#define GPU_PROBE_MS 8000 /* the first answer of a driver that keeps no state may take seconds */

struct gpu_probe {
    struct spawned child;
    int fd; /* its output; close-on-exec, does not block */
    struct buf said;
};

/* `agent`: the path of hvdagent. -1 with *e: there is nothing to free. */
int gpu_probe_start(struct gpu_probe *p, const char *agent, bool libraries, struct err *e);
/* Reads the bytes that have come: 1 at their end, 0 when more are to come, -1 with *e. */
int gpu_probe_read(struct gpu_probe *p, struct err *e);
/* The answer, once all of it was read; freed with message_free. NULL with *e. */
Hvd__Gpus *gpu_probe_result(const struct gpu_probe *p, struct err *e);
/* Kills it if it still runs and closes what we have of it, but for child.pidfd, which becomes readable when
 * it has ended: the caller's, which reaps the process. */
void gpu_probe_end(struct gpu_probe *p);

/* All of that at once. The error of a driver that does not answer in time is ERR_TIMEOUT. */
Hvd__Gpus *gpu_probe(const char *agent, bool libraries, uint32_t limit_ms, struct err *e);
