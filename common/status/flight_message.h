/* The content of a flight recorder, as messages of control.proto. */
#pragma once

#include <stddef.h>

#include "common/protocol/control.pb-c.h"
#include "common/status/flight.h"

/* Of the workers of one host that have recorded operations, and of its engine. */
struct flight_messages {
    Hvd__Flight **list;
    size_t count;
};

/* With the last operations of each worker, `each` at most. Without memory, workers are missing. */
void flight_messages_make(struct flight_messages *m, const struct flight *f, size_t each);
void flight_messages_free(struct flight_messages *m);
