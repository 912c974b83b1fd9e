#include "agent/rendezvous/pmix_server/upcall_queue.h"

#include <errno.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>

static void drain_items(struct upcall_queue *b)
{
    struct upcall *last = atomic_exchange_explicit(&b->last, NULL, memory_order_acquire), *first = NULL;
    while (last) {
        struct upcall *before = last->next;
        last->next = first;
        first = last;
        last = before;
    }
    while (first) {
        struct upcall *next = first->next;
        first->run(first);
        first = next;
    }
}

static void on_posted(uv_poll_t *poll, int status, int events)
{
    struct upcall_queue *b = poll->data;
    uint64_t count;
    (void)status, (void)events;
    (void)!read(b->fd, &count, sizeof count);
    drain_items(b);
}

int upcall_queue_open(struct upcall_queue *b, uv_loop_t *loop, struct err *e)
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

void upcall_queue_post(struct upcall_queue *b, struct upcall *item)
{
    static const uint64_t one = 1;
    item->next = atomic_load_explicit(&b->last, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&b->last, &item->next, item, memory_order_release,
                                                  memory_order_relaxed))
        ;
    (void)!write(b->fd, &one, sizeof one);
}
