/* A question to the managed agent of this host: what it gives to whom (AgentQuery), or root's word that it is
 * to take no new jobs (AgentDrain). For programs; waits for the answer, at most some seconds. */
#ifndef HVD_AGENT_DAEMON_PROTOCOL_QUERY_H
#define HVD_AGENT_DAEMON_PROTOCOL_QUERY_H

#include "agent/daemon/protocol/wire.h"

/* A connection to the daemon's socket, non-blocking. -1 with an empty *e when there is no managed agent on
 * this host, else with what is wrong. */
int daemon_connect(struct err *e);
/* Its AgentStatus, or its Gpus where they are asked for, in an answer that message_free frees; NULL with *e,
 * also when it refuses or there is none.
 */
Hvd__Daemon *daemon_ask(const Hvd__Daemon *question, struct err *e);

#endif
