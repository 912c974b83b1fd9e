/* A rankfile: for each rank its host and the cores that it is bound to, as OpenMPI has them.
 *
 *   rank 0=host1 slot=0-1      cores 0 and 1 of host1
 *   rank 1=host1 slot=1:0,2    cores 0 and 2 of its socket 1
 *   rank 2=+n1 slot=0:*        all cores of socket 0 of the second host
 *   rank 3=host2               not bound; # starts a comment
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"

#define RANKFILE_LAST UINT32_MAX /* the last core there is */

struct rankfile_cores {
    bool in_socket;
    uint32_t socket, first, last;
};

struct rankfile_rank {
    uint32_t line;   /* 0: the file has none for this rank */
    char *host;      /* NULL: the number */
    uint32_t number; /* +nNUMBER: of the list of hosts */
    uint32_t count;
    struct rankfile_cores *cores;
};

struct rankfile {
    char *path;
    uint32_t count;
    struct rankfile_rank *rank;
};

/* NULL with *e (ERR_USAGE), which names file and line. `path` is for that. */
struct rankfile *rankfile_parse(const char *bytes, size_t len, const char *path, struct err *e);
struct rankfile *rankfile_read(const char *path, struct err *e);
void rankfile_free(struct rankfile *f);
