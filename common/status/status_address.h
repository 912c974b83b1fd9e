/* The places at which questions about a job are answered (status_server.h).
 *
 * A session listens in the job's directory on its host. hvdrun listens at a name of the kernel's abstract
 * namespace, which is no file: the name ends with hvdrun, however that dies. Everybody can take such a name,
 * and can connect to it; both ends ask the kernel for the user at the other end. */
#pragma once

#include <stdbool.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

#include "common/base/err.h"

#define STATUS_SOCKET_NAME "status"

struct status_address {
    struct sockaddr_un un;
    socklen_t size;
};

/* Of a session whose job has this directory. -1 with *e: the path is too long. */
int status_address_in(struct status_address *a, const char *directory, struct err *e);
/* Of the hvdrun of that user's job. The name of a job has 64 bytes at most. */
void status_address_of(struct status_address *a, uid_t uid, const char *job);
/* Whether a name of /proc/net/unix, where abstract names begin with '@', is one of status_address_of. *job
 * leads into `name`. */
bool status_address_parse(const char *name, uid_t *uid, const char **job);
