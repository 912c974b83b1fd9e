/* The talk of `hvdagent attach` and the launcher before there is a session. All bytes of the launcher stay in
 * `in`: they are for the session. The messages of attach are about the lease and have a magic of their own
 * (FRAME_ATTACH_MAGIC of common/protocol/frame.h). */
#ifndef HVD_AGENT_DAEMON_PROTOCOL_HANDSHAKE_H
#define HVD_AGENT_DAEMON_PROTOCOL_HANDSHAKE_H

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/protocol/message.h"

/* The launcher's first frame, whole: Hello, to be given to message_free. NULL with *e. */
Hvd__Control *handshake_read_hello(struct buf *in, struct err *e);
/* Hello.hold: tells the launcher which node this is, and waits for its Go, as long as it lives and no signal
 * comes to `signals`, a signalfd. No connection to the daemon is kept meanwhile: the daemon closes silent
 * clients. */
int handshake_hold(struct buf *in, int signals, struct err *e);
/* Sends the launcher LeaseWaiting: `text` is the job's place in the queue, empty when the wait is over. */
void handshake_tell_waiting(const char *text);
/* Sends the launcher LeaseRefusal with the text of `why`; its code is BUSY for ERR_BUSY. */
void handshake_tell_refusal(const struct err *why);

#endif
