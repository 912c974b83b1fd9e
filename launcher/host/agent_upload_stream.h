/* hvdrun's side of the conversation in launcher/host/agent_upload.h. No I/O: the host (host.c) writes what
 * is to be written and shows what arrives. */
#ifndef HVD_LAUNCHER_HOST_AGENT_UPLOAD_STREAM_H
#define HVD_LAUNCHER_HOST_AGENT_UPLOAD_STREAM_H

#include "launcher/host/agent_upload.h"

struct host_sending {
    const uint8_t *bytes; /* on their way */
    size_t left;
    bool files;     /* they were asked for */
    uint64_t since; /* when they were asked for; host.c sets it */
    size_t filled;  /* of the line that arrives; the rest of a long one is dropped, it is no answer */
    char line[96];
};

enum sending_answer { SENDING_NONE, SENDING_WANT, SENDING_HAVE };

/* The script is to be written. */
void host_sending_begin(struct host_sending *s, const struct sent_agent *a);
/* Takes bytes up to the end of an answer; *used of them. SENDING_WANT: the files are to be written.
 * SENDING_HAVE: what follows is the agent's. */
enum sending_answer host_sending_receive(struct host_sending *s, const struct sent_agent *a,
                                         const uint8_t *bytes, size_t len, size_t *used);
void host_sending_written(struct host_sending *s, size_t taken);

#endif
