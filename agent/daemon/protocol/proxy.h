/* The bytes between hvdrun (our stdin and stdout) and the connection to a managed agent.
 *
 * Both directions have a buffer of their own and go on by themselves: one that is full stops only its
 * reading. The first bytes of the connection say who speaks. All bytes of a session are passed on. Of the
 * daemon only the job's place in the queue is passed on (handshake.h). The connection is half closed towards
 * the session when the launcher closes its end, or a signal comes. The proxy ends when the connection has
 * ended and all bytes were passed on, or cannot be. */
#ifndef HVD_AGENT_DAEMON_PROTOCOL_PROXY_H
#define HVD_AGENT_DAEMON_PROTOCOL_PROXY_H

#include <stdbool.h>

#include "common/base/buf.h"

enum proxy_answer { PROXY_SILENCE, PROXY_SESSION, PROXY_DAEMON };

struct proxy {
    int fd;      /* the connection; not ours */
    int signals; /* a signalfd: what comes there asks for the end; ours */
    struct buf up, down;
    bool up_over, up_closed; /* nothing more comes from the launcher; the session knows */
    bool down_over;          /* nothing more comes from the connection */
    bool waited;             /* in the daemon's queue */
    enum proxy_answer answer;
};

void proxy_init(struct proxy *b, int fd, int signals);
/* Until the end. In `down` is then what the daemon said behind its magic. */
void proxy_run(struct proxy *b);
void proxy_close(struct proxy *b);

#endif
