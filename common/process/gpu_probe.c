#include "common/process/gpu_probe.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/protocol/message.h"

#define SAID_MAX (64u << 10)
#define PIECE    4096
#define REAP_MS  200 /* for a killed process; one that hangs in the kernel is left to the reaper */

int gpu_probe_start(struct gpu_probe *p, const char *agent, bool libraries, struct err *e)
{
    char *argv[] = {(char *)"hvdagent", (char *)"gpus", libraries ? (char *)"--libraries" : NULL, NULL};
    struct spawn s = SPAWN_INIT;
    int pair[2];
    if (pipe2(pair, O_CLOEXEC) < 0)
        return err_sys(e, errno, "cannot make a pipe");
    s.path = agent;
    s.argv = argv;
    s.fds[1] = pair[1];
    s.new_session = s.die_with_us = true;
    int rc = spawn_start(&s, &p->child, e);
    close(pair[1]);
    if (rc < 0) {
        close(pair[0]);
        return -1;
    }
    p->fd = pair[0];
    fcntl(p->fd, F_SETFL, O_NONBLOCK);
    buf_init(&p->said, SAID_MAX);
    return 0;
}

int gpu_probe_read(struct gpu_probe *p, struct err *e)
{
    for (;;) {
        uint8_t *space = buf_reserve(&p->said, PIECE);
        if (!space)
            return err_set(e, ERR_PROTOCOL, "hvdagent gpus says too much");
        ssize_t n = read(p->fd, space, PIECE);
        if (n > 0)
            buf_commit(&p->said, (size_t)n);
        else if (n == 0)
            return 1;
        else if (errno == EAGAIN)
            return 0;
        else if (errno != EINTR)
            return err_sys(e, errno, "cannot read what hvdagent gpus says");
    }
}

Hvd__Gpus *gpu_probe_result(const struct gpu_probe *p, struct err *e)
{
    if (p->said.len == 0) {
        err_set(e, ERR_CLOSED, "hvdagent gpus (pid %d) ended without a word: NVIDIA's library killed it",
                (int)p->child.pid);
        return NULL;
    }
    return message_unpack_gpus(buf_data(&p->said), p->said.len, e);
}

void gpu_probe_end(struct gpu_probe *p)
{
    (void)syscall(SYS_pidfd_send_signal, p->child.pidfd, SIGKILL, NULL, 0);
    close(p->fd);
    buf_free(&p->said);
}

static int wait_for_end(struct gpu_probe *p, uint32_t limit_ms, struct err *e)
{
    uint64_t deadline = clock_now() + limit_ms * NSEC_PER_MSEC;
    for (;;) {
        int rc = gpu_probe_read(p, e);
        uint64_t now = clock_now();
        if (rc != 0)
            return rc;
        if (now >= deadline)
            return err_set(e, ERR_TIMEOUT, "NVIDIA's driver did not answer within %.3g s",
                           (double)limit_ms / 1e3);
        struct pollfd f = {.fd = p->fd, .events = POLLIN};
        (void)poll(&f, 1, (int)((deadline - now) / NSEC_PER_MSEC) + 1);
    }
}

Hvd__Gpus *gpu_probe(const char *agent, bool libraries, uint32_t limit_ms, struct err *e)
{
    struct gpu_probe p;
    if (gpu_probe_start(&p, agent, libraries, e) < 0)
        return NULL;
    Hvd__Gpus *g = wait_for_end(&p, limit_ms, e) > 0 ? gpu_probe_result(&p, e) : NULL;
    gpu_probe_end(&p);
    struct pollfd f = {.fd = p.child.pidfd, .events = POLLIN};
    if (poll(&f, 1, REAP_MS) > 0) /* another part of the process may have reaped it */
        (void)waitpid(p.child.pid, NULL, WNOHANG);
    close(p.child.pidfd);
    return g;
}
