/* NVIDIA's nvidia-cuda-mps-control, started without -f: it passes the lines of its standard input on to the
 * control daemon of CUDA_MPS_PIPE_DIRECTORY, prints the answers, and ends with 0 when there were some. That
 * is the documented way to ask. */
#pragma once

#include <sys/types.h>

#include "common/base/err.h"

#define MPS_COMMANDS_MAX 32768 /* bytes: a pipe takes them at once */

struct mps_place {
    const char *program;   /* its path */
    const char *directory; /* its working directory: the job's */
    int directory_fd;
    char **envp; /* borrowed while it runs */
    int cgroup_fd;
};

/* Starts the program; in and out: its descriptors 0 and 1, or -1. Its pid, or -1 with *e. */
pid_t mps_start(const struct mps_place *place, char *const argv[], int in, int out, struct err *e);
/* Has it pass `commands` on; the answer goes to `out`, or nowhere (-1). Its pid, or -1. */
pid_t mps_tell(const struct mps_place *place, const char *commands, int out);
