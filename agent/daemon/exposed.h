/* What a managed agent's node is for Prometheus: the same from the agent itself and from hvdctl. */
#ifndef HVD_AGENT_DAEMON_EXPOSED_H
#define HVD_AGENT_DAEMON_EXPOSED_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct exposed_node {
    uint32_t slots, taken;
    bool drained;
};

void exposed_node(FILE *out, const struct exposed_node *n);

#endif
