#include "agent/session/mps_tell.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "agent/gpu/gpu.h"
#include "common/process/spawn.h"

pid_t mps_start(const struct mps_place *place, char *const argv[], int in, int out, struct err *e)
{
    struct spawn s = SPAWN_INIT;
    struct spawned child;
    s.path = place->program;
    s.argv = argv;
    s.envp = place->envp;
    s.dir = place->directory;
    s.fds[0] = in;
    s.fds[1] = s.fds[2] = out;
    s.cgroup_fd = place->cgroup_fd;
    s.new_session = s.die_with_us = true;
    if (spawn_start(&s, &child, e) < 0)
        return -1;
    close(child.pidfd);
    return child.pid;
}

pid_t mps_tell(const struct mps_place *place, const char *commands, int out)
{
    char *argv[] = {(char *)MPS_PROGRAM, NULL};
    size_t size = strlen(commands);
    struct err e = ERR_INIT;
    int in[2];
    if (size > MPS_COMMANDS_MAX || pipe2(in, O_CLOEXEC) < 0)
        return -1;
    bool whole = write(in[1], commands, size) == (ssize_t)size;
    close(in[1]);
    pid_t pid = whole ? mps_start(place, argv, in[0], out, &e) : -1;
    close(in[0]);
    return pid;
}
