/* What the launcher says to `hvdagent attach` before a lease is asked for. All of it stays in `in`: it is the
 * session's. */
#ifndef HVD_AGENT_DAEMON_PROTOCOL_HANDSHAKE_H
#define HVD_AGENT_DAEMON_PROTOCOL_HANDSHAKE_H

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/protocol/message.h"

/* Its first frame, whole: Hello, to be given to message_free. NULL with *e. */
Hvd__Control *greeting_read_hello(struct buf *in, struct err *e);
/* Hello.hold: tells it which node this is (AGENT_HELD), and waits for its Go, as long as it lives and no
 * signal comes to `signals`, a signalfd. No connection to the daemon is kept meanwhile: the daemon waits for
 * nobody who says nothing. */
int greeting_hold(struct buf *in, int signals, struct err *e);

#endif
