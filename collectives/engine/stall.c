#include "collectives/engine/stall.h"

bool stall_seen(struct stall *s, uint32_t slot, uint32_t operation, bool together, uint64_t now)
{
    if (together) {
        s->slot[slot].since = 0;
        return false;
    }
    if (s->slot[slot].since == 0 || s->slot[slot].operation != operation) {
        s->slot[slot].since = now;
        s->slot[slot].operation = operation;
        s->slot[slot].reported = false;
        return false;
    }
    if (s->warn_ns == 0 || s->slot[slot].reported || now - s->slot[slot].since < s->warn_ns)
        return false;
    s->slot[slot].reported = true;
    return true;
}
