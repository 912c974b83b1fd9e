/* Does spinning pay? (pure)
 *
 * A hand-over between two processors takes a fraction of a microsecond, a wake-up of a sleeper ten. But who
 * spins on a processor that somebody else wants delays the very one it waits for. The kernel counts how long
 * this process was ready to run and did not: while there was work and that time is little, we try spinning
 * for a beat; when it then grows, we stop, for longer each time. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct spin_policy {
    bool spin;      /* the answer */
    uint64_t at;    /* of the last look */
    uint64_t delay; /* until then; nanoseconds */
    uint32_t quiet; /* beats with work, without a spin, since it was given up */
    uint32_t wait;  /* so many, and it is tried */
};

/* To be called at every beat. `delay`: nanoseconds for which the process has waited for a processor since it
 * began; UINT64_MAX: not known. `worked`: there was work since the last call. */
void spin_policy_update(struct spin_policy *policy, uint64_t now, uint64_t delay, bool worked);
