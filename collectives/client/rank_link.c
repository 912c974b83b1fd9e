#include "collectives/client/rank_link.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "collectives/client/names.h"
#include "collectives/client/operation.h"
#include "collectives/client/rpc.h"
#include "collectives/client/sets.h"
#include "collectives/kernels/dtype.h"
#include "collectives/kernels/reduce.h"
#include "collectives/shm/doorbell.h"
#include "common/base/crc32c.h"

#define LINK_MAGIC   0x6b6e6c31u
#define LINK_ALIGNED 16u
#define SLICE_MS     50 /* between two looks whether the job has failed */
#define LOST_NS      (10 * NSEC_PER_SEC) /* that the engines have to tell why the connection broke */

enum said { ELEMENTS = 1, LEAVES, RANK_LINK_STOPS };

struct link_message {
    uint32_t magic, check; /* CRC-32C of all that follows `check` */
    uint32_t said;
    uint32_t sequence; /* of the operation */
    uint32_t name, bytes;
    uint64_t pad;
    struct tensor_op op;
};
_Static_assert(sizeof(struct link_message) % LINK_ALIGNED == 0, "the elements are aligned");

#define MESSAGE_MAX (sizeof(struct link_message) + SHM_NAME_MAX + 1 + LINK_BYTES_MAX)

enum state { STATE_UNKNOWN, STATE_UP, STATE_NONE, STATE_BROKEN };

/* Of the process; all under `lock`. */
static struct {
    pthread_mutex_t lock;
    enum state state;
    int fd;
    bool stops, stopped; /* this rank has said so; the other one */
    bool sleeps;         /* a thread waits for the socket, and reads what comes for all of them */
    uint64_t broken_at;  /* 0: the engine was told */
    const char *why;
    uint8_t *in; /* [MESSAGE_MAX] */
    size_t have;
} rank_link = {.lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1};

static size_t fill_up(size_t bytes)
{
    return (bytes + LINK_ALIGNED - 1) / LINK_ALIGNED * LINK_ALIGNED;
}

static const char no_memory[] = "has no memory for what the rank of the other host has sent";

/* ---- the connection ------------------------------------------------------------------------------------ */

/* why NULL: the engines know, if the other rank or its host has gone. */
static void break_link(const char *why)
{
    rank_link.state = STATE_BROKEN;
    rank_link.why = why;
    rank_link.broken_at = clock_now();
    rank_link.have = 0;
}

/* Asks the engine, once in an epoch. `declines`: this rank is not going to use it. */
static void open_link(bool declines)
{
    struct worker_message m = {.type = WORKER_RANK_LINK, .id = declines};
    unsigned fds = 1;
    int fd = -1;
    if (rank_link.state != STATE_UNKNOWN)
        return;
    rank_link.state = STATE_NONE;
    if (rpc(&m, -1, &fd, &fds) != HVD_SUCCESS || fds == 0)
        return;
    rank_link.in = malloc(MESSAGE_MAX);
    rank_link.fd = fd;
    if (rank_link.in)
        rank_link.state = STATE_UP;
    else
        break_link(no_memory);
}

void rank_link_close(void)
{
    pthread_mutex_lock(&rank_link.lock);
    if (rank_link.fd >= 0)
        close(rank_link.fd);
    free(rank_link.in);
    rank_link.fd = -1;
    rank_link.in = NULL;
    rank_link.have = 0;
    rank_link.state = STATE_UNKNOWN;
    rank_link.stops = rank_link.stopped = false;
    pthread_mutex_unlock(&rank_link.lock);
}

void rank_link_forget(struct tensor_link *link)
{
    pthread_mutex_lock(&rank_link.lock);
    free(link->theirs[0].elements);
    free(link->theirs[1].elements);
    *link = (struct tensor_link){0};
    pthread_mutex_unlock(&rank_link.lock);
}

/* ---- what comes ---------------------------------------------------------------------------------------- */

/* The whole of it is there. NULL: it is no message, and the connection is of no use any more. */
static const struct link_message *check_message(size_t *size)
{
    const struct link_message *m = (const void *)rank_link.in;
    *size = 0;
    if (rank_link.have < sizeof *m)
        return m;
    size_t name = fill_up(m->name), whole = sizeof *m + name + fill_up(m->bytes);
    if (m->magic != LINK_MAGIC || m->said < ELEMENTS || m->said > RANK_LINK_STOPS || m->name > SHM_NAME_MAX ||
        m->bytes > LINK_BYTES_MAX)
        return NULL;
    if (rank_link.have < whole)
        return m;
    const uint8_t *from = (const uint8_t *)&m->said;
    if (crc32c(0, from, whole - (size_t)(from - rank_link.in)) != m->check)
        return NULL;
    *size = whole;
    return m;
}

/* Keeps them for when this rank comes to the operation. */
static void keep_elements(struct tensor_link *link, const struct link_message *m, const uint8_t *elements)
{
    struct link_given *to = &link->theirs[m->sequence % 2];
    if (!to->elements)
        to->elements = malloc(LINK_BYTES_MAX);
    if (!to->elements) {
        break_link(no_memory);
        return;
    }
    to->sequence = m->sequence;
    to->op = m->op;
    to->bytes = m->bytes;
    memcpy(to->elements, elements, m->bytes);
}

static void combine_elements(struct tensor *t, const void *theirs)
{
    const struct tensor_op *op = &t->op.what;
    const void *in[2] = {t->op.in, theirs};
    void *out = t->op.out;
    if (client.rank == 1) {
        in[0] = theirs;
        in[1] = t->op.in;
    }
    struct reduce_job job = {.in = in,
                             .inputs = 2,
                             .out = &out,
                             .outputs = 1,
                             .dtype = (hvd_dtype)op->dtype,
                             .op = (hvd_op)op->op,
                             .divisor = op->op == HVD_AVERAGE ? 2 : 0,
                             .postscale = op->postscale};
    if (op->kind == SHM_ALLREDUCE)
        reduce_range(&job, 0, op->count);
    t->link.done = t->sequence;
    atomic_store(&t->view.member_slot[t->view.me]->carried, t->sequence);
}

/* `self` waits, and its lock is held; others may be anybody's. */
static void take_message(const struct link_message *m, struct tensor *self)
{
    char name[SHM_NAME_MAX + 1];
    const uint8_t *elements = (const uint8_t *)(m + 1) + fill_up(m->name);
    if (m->said == RANK_LINK_STOPS) {
        rank_link.stopped = true;
        return;
    }
    memcpy(name, m + 1, m->name);
    name[m->name] = '\0';
    struct tensor *t = self && strcmp(self->name, name) == 0 ? self : tensor_known(client.set[HVD_WORLD], name);
    if (!t || t->link.use == LINK_LEFT)
        return; /* it was forgotten, and the other rank hears that; or it goes to the engine */
    if (m->said == LEAVES) {
        t->link.use = LINK_LEFT;
    } else if (t == self && t->link.given == m->sequence && t->sequence == m->sequence &&
               memcmp(&m->op, &t->op.what, sizeof m->op) == 0 && m->bytes == t->op.bytes) {
        combine_elements(t, elements);
    } else {
        keep_elements(&t->link, m, elements);
    }
}

/* All whole messages in the buffer. */
static void take_messages(struct tensor *self)
{
    const struct link_message *m;
    size_t size;
    bool taken = false;
    while (rank_link.state == STATE_UP && (m = check_message(&size)) != NULL && size > 0) {
        take_message(m, self);
        rank_link.have -= rank_link.state == STATE_UP ? size : rank_link.have;
        memmove(rank_link.in, rank_link.in + size, rank_link.have);
        taken = true;
    }
    if (rank_link.state == STATE_UP && !check_message(&size))
        break_link("got something else than a message from the rank of the other host");
    if (taken && doorbell_has_sleeper(client.mailbox))
        doorbell_ring(client.mailbox); /* it may be another thread's */
}

/* Reads without waiting, until nothing is there or the operation of `self` has ended. */
static void read_link(struct tensor *self)
{
    while (rank_link.state == STATE_UP && !(self && self->link.done == self->sequence)) {
        size_t room = MESSAGE_MAX - rank_link.have;
        ssize_t n = recv(rank_link.fd, rank_link.in + rank_link.have, room, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0) {
            break_link(NULL);
            return;
        }
        rank_link.have += (size_t)n;
        take_messages(self);
    }
}

/* ---- what goes ----------------------------------------------------------------------------------------- */

/* The socket is full. Both ranks may send, so what comes is read meanwhile. */
static void wait_for_room(void)
{
    struct pollfd p = {.fd = rank_link.fd, .events = POLLOUT | POLLIN};
    poll(&p, 1, SLICE_MS);
    if (p.revents & POLLIN)
        read_link(NULL);
    if (region_poisoned(&client.region))
        break_link(NULL);
}

static void send_all(struct iovec *part, size_t parts)
{
    while (rank_link.state == STATE_UP && parts > 0) {
        struct msghdr msg = {.msg_iov = part, .msg_iovlen = parts};
        ssize_t n = sendmsg(rank_link.fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EAGAIN)
            wait_for_room();
        else if (n < 0 && errno != EINTR)
            break_link(NULL);
        size_t sent = n > 0 ? (size_t)n : 0;
        for (; parts > 0 && sent >= part->iov_len; parts--)
            sent -= part++->iov_len;
        if (parts > 0)
            *part = (struct iovec){(uint8_t *)part->iov_base + sent, part->iov_len - sent};
    }
}

/* t NULL: of no tensor. */
static void send_message(enum said said, const struct tensor *t)
{
    struct {
        struct link_message m;
        uint8_t name[SHM_NAME_MAX + 1 + LINK_ALIGNED];
    } head = {.m = {.magic = LINK_MAGIC, .said = said}};
    static const uint8_t zeros[LINK_ALIGNED];
    struct iovec part[3] = {{&head, sizeof head.m}};
    if (t) {
        head.m.sequence = t->sequence;
        head.m.name = (uint32_t)strlen(t->name);
        head.m.op = t->op.what;
        memcpy(head.name, t->name, head.m.name);
        part[0].iov_len += fill_up(head.m.name);
    }
    if (said == ELEMENTS) {
        head.m.bytes = (uint32_t)t->op.bytes;
        part[1] = (struct iovec){(void *)(uintptr_t)t->op.in, t->op.bytes};
        part[2] = (struct iovec){(void *)(uintptr_t)zeros, fill_up(t->op.bytes) - t->op.bytes};
    }
    size_t before = offsetof(struct link_message, said);
    uint32_t check = crc32c(0, (const uint8_t *)&head + before, part[0].iov_len - before);
    for (int i = 1; i < 3; i++)
        check = crc32c(check, part[i].iov_base, part[i].iov_len);
    head.m.check = check;
    send_all(part, part[2].iov_len > 0 ? 3 : part[1].iov_len > 0 ? 2 : 1);
}

/* ---- an operation -------------------------------------------------------------------------------------- */

static void answer_stop(void)
{
    if (__builtin_expect(!rank_link.stopped || rank_link.stops, 1))
        return;
    rank_link.stops = true;
    send_message(RANK_LINK_STOPS, NULL);
}

void rank_link_stop(void)
{
    if (!rank_link_is_possible())
        return;
    pthread_mutex_lock(&rank_link.lock);
    open_link(true);
    if (rank_link.state == STATE_UP && !rank_link.stops) {
        rank_link.stops = true;
        send_message(RANK_LINK_STOPS, NULL);
    }
    pthread_mutex_unlock(&rank_link.lock);
}

/* A sum that this rank can make of two arrays, or a barrier. */
static bool is_for_link(const struct tensor *t, bool will_wait)
{
    const struct tensor_op *op = &t->op.what;
    if (!will_wait || t->op.group || t->op.path || op->device || is_sized(&t->op))
        return false;
    return op->kind == SHM_BARRIER ||
           (op->kind == SHM_ALLREDUCE && op_elementwise(op->op) && op->prescale == 1 &&
            op->compression == HVD_COMPRESSION_NONE && t->op.bytes > 0 && t->op.bytes <= LINK_BYTES_MAX);
}

/* rank_link.lock is held. */
static bool begin_operation(struct tensor *t, bool will_wait)
{
    open_link(false);
    answer_stop();
    bool is_new = t->link.use == LINK_UNTRIED;
    bool goes = is_for_link(t, will_wait);
    if (t->link.use == LINK_LEFT)
        return false;
    if (rank_link.state == STATE_BROKEN)
        return true; /* the other rank may wait for this one here: nobody goes on */
    if (rank_link.state != STATE_UP || rank_link.stops || (is_new && t->sequence != LINK_FIRST)) {
        t->link.use = LINK_LEFT;
        return false;
    }
    send_message(goes ? ELEMENTS : LEAVES, t);
    t->link.use = goes ? LINK_TAKES : LINK_LEFT;
    t->link.given = goes ? t->sequence : 0;
    t->kept = t->kept || goes;
    return goes;
}

bool rank_link_begin(struct tensor *t, bool will_wait)
{
    if (t->sequence < LINK_FIRST || t->link.use == LINK_LEFT)
        return false;
    pthread_mutex_lock(&rank_link.lock);
    bool goes = begin_operation(t, will_wait);
    pthread_mutex_unlock(&rank_link.lock);
    return goes;
}

/* This rank cannot go on, and the engines have told nothing. */
static void tell_loss(void)
{
    if (rank_link.broken_at == 0 || (!rank_link.why && clock_now() < rank_link.broken_at + LOST_NS))
        return;
    rank_link.broken_at = 0;
    rpc_failed(rank_link.why ? rank_link.why : "has lost its connection to the rank of the other host");
}

/* The other rank's part of the present operation, which this rank has yet to take. */
static const struct link_given *find_given(const struct tensor *t)
{
    const struct link_given *g = &t->link.theirs[t->sequence % 2];
    return t->link.done != t->sequence && g->sequence == t->sequence ? g : NULL;
}

static enum link_step decide_step(struct tensor *t)
{
    struct tensor_link *link = &t->link;
    const struct link_given *theirs = find_given(t);
    if (theirs) {
        if (memcmp(&theirs->op, &t->op.what, sizeof theirs->op) == 0 && theirs->bytes == t->op.bytes)
            combine_elements(t, theirs->elements);
        else
            link->use = LINK_LEFT;
    }
    if (link->done == t->sequence)
        return LINK_ENDED;
    if (link->use == LINK_LEFT || (rank_link.stopped && rank_link.state == STATE_UP))
        return LINK_TO_ENGINE;
    if (rank_link.state == STATE_BROKEN)
        tell_loss();
    return LINK_WAITS;
}

enum link_step rank_link_step(struct tensor *t)
{
    pthread_mutex_lock(&rank_link.lock);
    if (t->link.done != t->sequence && !find_given(t) && !rank_link.sleeps)
        read_link(t);
    answer_stop();
    enum link_step step = decide_step(t);
    pthread_mutex_unlock(&rank_link.lock);
    return step;
}

bool rank_link_sleep(const struct tensor *t, unsigned ms)
{
    pthread_mutex_lock(&rank_link.lock);
    struct pollfd p = {.fd = rank_link.fd, .events = POLLIN};
    bool mine = rank_link.state == STATE_UP && !rank_link.sleeps;
    bool has_come = find_given(t) || t->link.use == LINK_LEFT; /* by another thread, just now */
    rank_link.sleeps = rank_link.sleeps || (mine && !has_come);
    pthread_mutex_unlock(&rank_link.lock);
    if (!mine || has_come)
        return has_come;
    poll(&p, 1, ms < SLICE_MS ? (int)ms : SLICE_MS);
    pthread_mutex_lock(&rank_link.lock);
    rank_link.sleeps = false;
    pthread_mutex_unlock(&rank_link.lock);
    if (doorbell_has_sleeper(client.mailbox))
        doorbell_ring(client.mailbox); /* another thread may look after the socket now */
    return true;
}
