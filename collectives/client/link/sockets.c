#include "collectives/client/link/sockets.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "collectives/client/rpc.h"

#define LOST_NS (10 * NSEC_PER_SEC) /* that the engines have to tell why the connection broke */

/* Another rank. */
struct link_peer {
    int fd;      /* -1: there is no connection; this rank itself */
    uint8_t *in; /* [LINK_MESSAGE_MAX] */
    size_t have;
    uint8_t *place; /* of the rest of a piece, */
    size_t left;    /* so many bytes; 0: none is being read */
    bool held, drained;
};

static struct {
    enum link_state state;
    bool crowded, near;
    uint64_t broken_at; /* 0: the engine was told */
    const char *why;    /* it broke; NULL: the engines know */
    bool expects_pieces;
    int bell; /* an eventfd; -1: there is none, and a poll() ends after its time */
    uint32_t ranks;
    struct link_peer peer[LINK_HOSTS_MAX]; /* [ranks], by rank */
} sockets;

static const char no_memory[] = "has no memory for what the ranks of other hosts send";
static const char no_room[] = "has no descriptors left for the connections to the ranks of other hosts";
static const char no_message[] = "got something else than a message from the rank of another host";

enum link_state link_state(void)
{
    return sockets.state;
}

uint32_t link_ranks(void)
{
    return sockets.ranks;
}

bool link_is_crowded(void)
{
    return sockets.crowded;
}

bool link_is_near(void)
{
    return sockets.near;
}

/* ---- from the first to the last ------------------------------------------------------------------------ */

void link_break(const char *why)
{
    sockets.state = LINK_BROKEN;
    sockets.why = why;
    sockets.broken_at = clock_now();
    for (uint32_t r = 0; r < sockets.ranks; r++) {
        sockets.peer[r].have = sockets.peer[r].left = 0;
        if (sockets.peer[r].fd >= 0)
            shutdown(sockets.peer[r].fd, SHUT_RDWR); /* so that the other rank sees it */
    }
}

void link_tell_loss(void)
{
    if (sockets.broken_at == 0 || (!sockets.why && clock_now() < sockets.broken_at + LOST_NS))
        return;
    sockets.broken_at = 0;
    rpc_failed(sockets.why ? sockets.why : "has lost its connection to the rank of another host");
}

/* The connections that the engine has given, in the order of the other ranks. */
static bool take_connections(const int *fds)
{
    bool whole = true;
    for (uint32_t r = 0; r < sockets.ranks; r++) {
        struct link_peer *p = &sockets.peer[r];
        *p = (struct link_peer){.fd = -1};
        if (!link_is_other(r))
            continue;
        *p = (struct link_peer){.fd = *fds++, .in = link_room_get()};
        whole = whole && p->in;
    }
    return whole;
}

void link_open(bool declines)
{
    struct worker_message m = {.type = WORKER_RANK_LINK, .id = declines};
    int fds[WORKER_FDS_MAX];
    unsigned number = WORKER_FDS_MAX;
    if (sockets.state != LINK_UNKNOWN)
        return;
    sockets.state = LINK_NONE;
    for (int i = 0; i < WORKER_FDS_MAX; i++)
        fds[i] = -1;
    if (rpc(&m, -1, fds, &number) != HVD_SUCCESS || (number == 0 && m.id == 0))
        return;
    sockets.ranks = (uint32_t)client.size;
    sockets.crowded = m.set == WORKER_LINKS_CROWDED;
    sockets.near = sockets.crowded || m.set == WORKER_LINKS_NEAR;
    sockets.bell = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    sockets.state = LINK_UP;
    if (!take_connections(fds))
        link_break(no_memory);
    else if (number != sockets.ranks - 1)
        link_break(no_room);
}

void link_close(void)
{
    for (uint32_t r = 0; r < sockets.ranks; r++) {
        if (sockets.peer[r].fd >= 0)
            close(sockets.peer[r].fd);
        link_room_put(sockets.peer[r].in);
    }
    link_room_free();
    if (sockets.ranks > 0 && sockets.bell >= 0)
        close(sockets.bell);
    sockets.ranks = 0;
    sockets.expects_pieces = false;
    sockets.state = LINK_UNKNOWN;
}

nfds_t link_list(struct pollfd to[LINK_HOSTS_MAX], uint32_t full)
{
    nfds_t n = 0;
    for (uint32_t r = 0; r < sockets.ranks; r++) {
        short events = (short)((sockets.peer[r].held ? 0 : POLLIN) | (full & 1u << r ? POLLOUT : 0));
        if (sockets.peer[r].fd >= 0 && events) /* without events, an end would be told again and again */
            to[n++] = (struct pollfd){.fd = sockets.peer[r].fd, .events = events};
    }
    return n;
}

struct pollfd link_bell(void)
{
    return (struct pollfd){.fd = sockets.state == LINK_UP ? sockets.bell : -1, .events = POLLIN};
}

void link_wake(void)
{
    if (sockets.state == LINK_UP && sockets.bell >= 0)
        (void)!write(sockets.bell, &(uint64_t){1}, sizeof(uint64_t));
}

void link_woke(void)
{
    uint64_t times;
    if (sockets.state == LINK_UP && sockets.bell >= 0)
        (void)!read(sockets.bell, &times, sizeof times);
}

/* ---- messages in --------------------------------------------------------------------------------------- */

/* Bytes that link_receive may read into the memory of messages. Bytes behind the head of a piece belong to
 * another place. */
static size_t room_for_messages(const struct link_peer *p)
{
    if (p->left > 0 || (sockets.expects_pieces && p->have < sizeof(struct link_message)))
        return sizeof(struct link_message) - p->have;
    return LINK_MESSAGE_MAX - p->have;
}

static void count_received(struct link_peer *p, size_t n)
{
    size_t placed = n < p->left ? n : p->left;
    p->place += placed;
    p->left -= placed;
    p->have += n - placed;
}

bool link_receive(uint32_t rank)
{
    struct link_peer *p = &sockets.peer[rank];
    if (p->fd < 0 || sockets.state != LINK_UP || p->held)
        return false;
    struct iovec part[2] = {{p->place, p->left}, {p->in + p->have, room_for_messages(p)}};
    struct msghdr msg = {.msg_iov = part, .msg_iovlen = 2};
    size_t wanted = part[0].iov_len + part[1].iov_len;
    ssize_t n;
    do
        n = recvmsg(p->fd, &msg, MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    p->drained = n < (ssize_t)wanted;
    if (n > 0)
        count_received(p, (size_t)n);
    else if (n == 0 || errno != EAGAIN)
        link_break(NULL);
    return n > 0;
}

bool link_is_drained(uint32_t rank)
{
    return sockets.peer[rank].drained;
}

void link_expect_pieces(bool coming)
{
    sockets.expects_pieces = coming;
}

void link_hold(uint32_t rank, bool held)
{
    sockets.peer[rank].held = held;
}

void link_place(uint32_t rank, void *place)
{
    struct link_peer *p = &sockets.peer[rank];
    if (sockets.state != LINK_UP)
        return;
    size_t bytes = ((const struct link_message *)(const void *)p->in)->piece;
    link_drop(rank);
    size_t here = p->have < bytes ? p->have : bytes;
    memcpy(place, p->in, here);
    p->have -= here;
    memmove(p->in, p->in + here, p->have);
    p->place = (uint8_t *)place + here;
    p->left = bytes - here;
}

size_t link_place_left(uint32_t rank)
{
    return sockets.peer[rank].left;
}

const struct link_message *link_first(uint32_t rank)
{
    const struct link_peer *p = &sockets.peer[rank];
    const struct link_message *m = (const void *)p->in;
    enum link_is is = sockets.state == LINK_UP ? link_message_check(m, p->have) : LINK_IS_PART;
    if (is == LINK_IS_NONE)
        link_break(no_message);
    return is == LINK_IS_WHOLE ? m : NULL;
}

void link_drop(uint32_t rank)
{
    struct link_peer *p = &sockets.peer[rank];
    if (sockets.state != LINK_UP)
        return;
    size_t size = link_message_size((const void *)p->in);
    p->have -= size;
    memmove(p->in, p->in + size, p->have);
}

void *link_keep(uint32_t rank)
{
    struct link_peer *p = &sockets.peer[rank];
    bool alone = sockets.state == LINK_UP && p->have == link_message_size((const void *)p->in);
    void *next = alone ? link_room_get() : NULL, *kept = p->in;
    if (!next)
        return NULL;
    p->in = next;
    p->have = 0;
    return kept;
}

/* ---- messages out -------------------------------------------------------------------------------------- */

bool link_send(const struct link_out *out, uint32_t rank, size_t *sent)
{
    struct iovec part[3];
    struct msghdr msg = {.msg_iov = part, .msg_iovlen = 3};
    while (sockets.state == LINK_UP) {
        size_t skip = *sent;
        link_out_list(out, part);
        for (msg.msg_iov = part, msg.msg_iovlen = 3; msg.msg_iovlen > 0 && skip >= msg.msg_iov->iov_len;
             msg.msg_iovlen--)
            skip -= msg.msg_iov++->iov_len;
        if (msg.msg_iovlen == 0)
            return true;
        *msg.msg_iov = (struct iovec){(uint8_t *)msg.msg_iov->iov_base + skip, msg.msg_iov->iov_len - skip};
        ssize_t n = sendmsg(sockets.peer[rank].fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EAGAIN)
            return false;
        if (n < 0 && errno != EINTR)
            link_break(NULL);
        *sent += n > 0 ? (size_t)n : 0;
    }
    return true;
}
