#include "agent/daemon/async_close.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define STACK (64u << 10)

static void close_all(void *arg)
{
    struct async_close *c = arg;
    const struct linger none = {0};
    for (size_t i = 0; i < c->count; i++)
        (void)setsockopt(c->fd[i], SOL_SOCKET, SO_LINGER, &none, sizeof none);
    for (size_t i = 0; i < c->count; i++)
        close(c->fd[i]);
    uv_async_send(&c->ended);
}

static void on_ended(uv_async_t *async)
{
    struct async_close *c = async->data;
    uv_thread_join(&c->thread);
    c->done(c->ctx);
}

int async_close_start(struct async_close *closing, uv_loop_t *loop, const int *fd, size_t count,
                      void (*done)(void *ctx), void *ctx)
{
    uv_thread_options_t options = {.flags = UV_THREAD_HAS_STACK_SIZE, .stack_size = STACK};
    if (!closing->done) { /* else: another attempt */
        if (uv_async_init(loop, &closing->ended, on_ended) < 0)
            return -1;
        uv_unref((uv_handle_t *)&closing->ended);
    }
    closing->ended.data = closing;
    closing->fd = fd;
    closing->count = count;
    closing->done = done;
    closing->ctx = ctx;
    return uv_thread_create_ex(&closing->thread, &options, close_all, closing) < 0 ? -1 : 0;
}

bool close_if_read(int socket)
{
    int unread = -1;
    if (shutdown(socket, SHUT_RD) < 0 || ioctl(socket, FIONREAD, &unread) < 0 || unread > 0)
        return false;
    close(socket);
    return true;
}

bool close_is_harmless(int fd)
{
    int domain;
    socklen_t size = sizeof domain;
    if (fcntl(fd, F_GETPIPE_SZ) > 0)
        return true;
    return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_UNIX;
}
