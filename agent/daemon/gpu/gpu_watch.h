/* The health of a node's GPUs: asks for it now and then, in a process of its own
 * (common/process/gpu_probe.h), with an end to each wait; reads the kernel's log; and says what is wrong
 * (gpu_health.h). While anything is, no new jobs are taken.
 *
 *   IDLE     until the next time, or until a client wants to know now
 *   ASKING   hvdagent gpus runs
 *   CLOSING  it has said all, or was killed: the loop lets go of its pipe
 *
 * A process that hangs in the driver cannot even be killed: no other is started while it is there. A node
 * where the daemon found no GPU when it started is not watched. */
#pragma once

#include <uv.h>

#include "agent/daemon/admission/leases.h"
#include "agent/daemon/gpu/gpu_health.h"
#include "agent/daemon/gpu/kernel_log.h"
#include "common/base/fsm.h"
#include "common/process/gpu_probe.h"

struct daemon;

struct gpu_watch {
    struct daemon *daemon;
    struct fsm fsm;
    uv_timer_t timer; /* the next time; while it runs, its end */
    uv_poll_t poll;
    struct gpu_probe probe;
    pid_t stuck;     /* one that was killed and has not ended; 0: none */
    Hvd__Gpus *last; /* the last answer; NULL: none, because of `failure` */
    char failure[GPU_FAULT_TEXT];
    uint64_t at; /* when that was */
    struct kernel_log log;
    struct gpu_health health;
    bool open, started; /* the watch; the process */
    bool unsaved;       /* a fault that its file does not know of yet */
};

/* Counts the GPUs, which may take GPU_PROBE_MS; for the start. */
void gpu_watch_open(struct gpu_watch *w, struct daemon *d);
void gpu_watch_close(struct gpu_watch *w);
/* The configuration or the leases have changed. */
void gpu_watch_follow(struct gpu_watch *w);
uint32_t gpu_watch_slots(const struct gpu_watch *w);
/* True when what is known is of now; else gpus_checked of daemon_events comes when it is. */
bool gpu_watch_fresh(struct gpu_watch *w);
/* Why no new jobs are taken, after a look into the kernel's log; empty: they are. Returns `text`. */
const char *gpu_watch_refuses(struct gpu_watch *w, char *text, size_t size);
/* Root's word that the GPUs may be used again, as far as they are well. */
void gpu_watch_accept(struct gpu_watch *w);
/* The GPUs, for this user: of GPUs of other users it says only that they are taken. Valid until the next
 * call. */
const Hvd__Gpus *gpu_watch_tell(struct gpu_watch *w, uid_t uid);
#define GPU_LEASE_TEXT (16 + GPU_SET_MAX * (GPU_UUID_MAX + 1))
/* A lease as `hvdagent session --lease` takes it: "2:0,1", with UUIDs where numbers will not do. */
void gpu_watch_lease(const struct gpu_watch *w, const struct lease *lease, char text[GPU_LEASE_TEXT]);
