/* The bytes between hvdrun (our stdin and stdout) and the connection to a managed agent.
 *
 * Both directions have a buffer of their own and go on by themselves: one that is full stops only its
 * reading. What comes first from the connection says who speaks: a session, and all that follows is passed
 * on; or the daemon, and nothing is, but where the job stands in its queue (handshake.h). Our end of the
 * launcher is half closed towards the session when the launcher closes its own, or a signal comes; the bridge
 * ends when the connection has ended and all that came was passed on, or cannot be. */
#ifndef HVD_AGENT_DAEMON_PROTOCOL_PROXY_H
#define HVD_AGENT_DAEMON_PROTOCOL_PROXY_H

#include <stdbool.h>

#include "common/base/buf.h"

enum bridge_answer { BRIDGE_SILENCE, BRIDGE_SESSION, BRIDGE_DAEMON };

struct bridge {
    int fd;      /* the connection; not ours */
    int signals; /* a signalfd: what comes there asks for the end; ours */
    struct buf up, down;
    bool up_over, up_closed; /* nothing more comes from the launcher; the session knows */
    bool down_over;          /* nothing more comes from the connection */
    bool waited;             /* in the daemon's queue */
    enum bridge_answer answer;
};

void bridge_init(struct bridge *b, int fd, int signals);
/* Until the end. In `down` is then what the daemon said behind its magic. */
void bridge_run(struct bridge *b);
void bridge_close(struct bridge *b);

#endif
