#include "common/status/status_address.h"

#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX "hvdrun-"
#define LETTER "abcdefghijklmnopqrstuvwxyz0123456789-"

int status_address_in(struct status_address *a, const char *directory, struct err *e)
{
    *a = (struct status_address){.un.sun_family = AF_UNIX, .size = sizeof a->un};
    int n = snprintf(a->un.sun_path, sizeof a->un.sun_path, "%s/%s", directory, STATUS_SOCKET_NAME);
    if (n > 0 && (size_t)n < sizeof a->un.sun_path)
        return 0;
    return err_set(e, ERR_HOST, "the path of a socket is too long: %s/%s", directory, STATUS_SOCKET_NAME);
}

void status_address_of(struct status_address *a, uid_t uid, const char *job)
{
    *a = (struct status_address){.un.sun_family = AF_UNIX};
    int n = snprintf(a->un.sun_path + 1, sizeof a->un.sun_path - 1, PREFIX "%u-%s", (unsigned)uid, job);
    a->size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

bool status_address_parse(const char *name, uid_t *uid, const char **job)
{
    char *end;
    if (strncmp(name, "@" PREFIX, sizeof PREFIX) != 0)
        return false;
    const char *digits = name + sizeof PREFIX;
    unsigned long number = strtoul(digits, &end, 10);
    *uid = (uid_t)number;
    *job = end + 1;
    return digits[0] >= '0' && digits[0] <= '9' && number < UINT_MAX && *end == '-' && (*job)[0] &&
           strspn(*job, LETTER) == strlen(*job);
}
