/* The messages that a session may send, by the state of its host. */
#ifndef HVD_LAUNCHER_HOST_HOST_LEGAL_H
#define HVD_LAUNCHER_HOST_HOST_LEGAL_H

#include "common/protocol/legal.h"

extern const struct legal_table host_legal;

#endif
