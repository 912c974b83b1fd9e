#include "agent/rendezvous/pmix_server/pmix_bridge.h"

#include <errno.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>

static void drain_items(struct bridge *b)
{
    struct bridge_item *last = atomic_exchange_explicit(&b->last, NULL, memory_order_acquire), *first = NULL;
    while (last) {
        struct bridge_item *before = last->next;
        last->next = first;
        first = last;
        last = before;
    }
    while (first) {
        struct bridge_item *next = first->next;
        first->run(first);
        first = next;
    }
}

static void on_posted(uv_poll_t *poll, int status, int events)
{
    struct bridge *b = poll->data;
    uint64_t count;
    (void)status, (void)events;
    (void)!read(b->fd, &count, sizeof count);
    drain_items(b);
}

int bridge_open(struct bridge *b, uv_loop_t *loop, struct err *e)
{
    atomic_init(&b->last, NULL);
    b->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (b->fd < 0)
        return err_sys(e, errno, "cannot make an eventfd");
    int rc = uv_poll_init(loop, &b->poll, b->fd);
    if (rc < 0) {
        close(b->fd);
        return err_set(e, ERR_SYSTEM, "cannot watch an eventfd: %s", uv_strerror(rc));
    }
    b->poll.data = b;
    uv_poll_start(&b->poll, UV_READABLE, on_posted);
    return 0;
}

void bridge_post(struct bridge *b, struct bridge_item *item)
{
    static const uint64_t one = 1;
    item->next = atomic_load_explicit(&b->last, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&b->last, &item->next, item, memory_order_release,
                                                  memory_order_relaxed))
        ;
    (void)!write(b->fd, &one, sizeof one);
}
