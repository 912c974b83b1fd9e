/* A name becomes addresses, in a thread of its own that nobody has to wait for. */
#ifndef HVD_LAUNCHER_TRANSPORT_SSH_SSH_LOOKUP_H
#define HVD_LAUNCHER_TRANSPORT_SSH_SSH_LOOKUP_H

#include <netdb.h>
#include <stdatomic.h>

#include "common/base/err.h"

struct ssh_lookup {
    atomic_int owners;    /* the thread and whoever asked */
    atomic_bool answered; /* status and list are there; set before the event */
    int event_fd;         /* readable when the answer is there */
    int status;           /* getaddrinfo's; valid once event_fd is readable, as is list */
    int family;
    struct addrinfo *list;
    char host[];
};

/* NULL with *e filled when no thread can be started. */
struct ssh_lookup *ssh_lookup_start(const char *host, int family, struct err *e);
/* Gives it back, answered or not; a resolver that has no answer yet is left to itself. */
void ssh_lookup_release(struct ssh_lookup *l);

#endif
