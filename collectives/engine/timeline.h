/* The engine's own timeline: a track for each tensor, in a file beside those of the ranks. */
#pragma once

#include "collectives/engine/engine.h"

enum timeline_point {
    TIMELINE_ANNOUNCED,
    TIMELINE_DUE, /* since: when all hosts were known to have it */
    TIMELINE_REDUCE,
    TIMELINE_NETWORK,
    TIMELINE_SPREAD,
    TIMELINE_SETTLED
};

extern const struct engine_part timeline_part;

/* Only while there is one. */
void engine_timeline_record(struct engine *engine, const struct tensor_view *view, enum timeline_point point,
                            uint64_t since);

/* Another name's operations in this slot get a track of their own. */
void engine_timeline_forget(struct engine *engine, uint32_t slot);

static inline void timeline_mark(struct engine *engine, const struct tensor_view *view,
                                 enum timeline_point point, uint64_t since)
{
    if (__builtin_expect(engine->timeline != NULL, 0))
        engine_timeline_record(engine, view, point, since);
}
