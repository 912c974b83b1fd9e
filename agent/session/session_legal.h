/* The messages that a launcher may send, by the state of the session. */
#ifndef HVD_AGENT_SESSION_SESSION_LEGAL_H
#define HVD_AGENT_SESSION_SESSION_LEGAL_H

#include "common/protocol/legal.h"

extern const struct legal_table session_legal;

#endif
