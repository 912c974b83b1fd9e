/* The messages that a session, and `hvdagent attach` before it, may send, by the state of the host. */
#pragma once

#include <stdbool.h>

#include "common/protocol/legal.h"

extern const struct legal_table host_legal;

/* Messages about a lease come from attach only, and attach sends no others. */
bool host_legal_is_lease(unsigned body);
