#include "collectives/client/rank_link.h"

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "collectives/client/rpc.h"
#include "collectives/kernels/reduce.h"
#include "collectives/shm/doorbell.h"
#include "common/base/crc32c.h"
#include "common/base/hash.h"

#define LINK_MAGIC   0x6b6e6c31u
#define LINK_ALIGNED 16u
#define LINK_NAMES   65536u /* more is none of a peer's business */
#define BUCKETS      1024u
#define SLICE_MS     50                  /* between two looks whether the job has failed */
#define LOST_NS      (10 * NSEC_PER_SEC) /* that the engines have to tell why the connection broke */

enum said { ELEMENTS = 1, LEAVES, STOPS };

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

/* Elements of the other rank that came before this rank took them. */
struct early {
    uint32_t sequence, bytes, room;
    struct tensor_op op;
    uint8_t *elements; /* [room] */
};

/* A name that one of the ranks has spoken of. */
struct linked_name {
    struct linked_name *next; /* in its bucket */
    _Atomic bool left;        /* all its operations go to the engine */
    bool takes;               /* this rank has sent elements */
    uint32_t given, done;     /* this rank's last operation whose elements it has sent, and that has ended */
    struct early early[2];    /* by operation % 2: the other rank may be one ahead */
    char name[];
};

enum state { STATE_UNKNOWN, STATE_UP, STATE_NONE, STATE_BROKEN };

/* Of the process; all under `lock`. */
static struct {
    pthread_mutex_t lock;
    enum state state;
    int fd;
    bool stops, stopped; /* this rank has said so; the other one */
    bool sleeps;         /* a thread waits for the socket, and reads what comes for all of them */
    uint64_t broken_at;  /* 0: the engine was told */
    const char *why;     /* it broke; NULL: the engines know */
    uint8_t *in;         /* [MESSAGE_MAX] */
    size_t have;
    uint32_t names;
    struct linked_name *bucket[BUCKETS];
} rank_link = {.lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1};

static const char no_memory[] = "has no memory for what the rank of the other host has sent";
static const char no_message[] = "got something else than a message from the rank of the other host";

static size_t fill_up(size_t bytes)
{
    return (bytes + LINK_ALIGNED - 1) / LINK_ALIGNED * LINK_ALIGNED;
}

/* ---- the connection ------------------------------------------------------------------------------------ */

/* why NULL: the engines know, if the other rank or its host has gone. */
static void break_link(const char *why)
{
    rank_link.state = STATE_BROKEN;
    rank_link.why = why;
    rank_link.broken_at = clock_now();
    rank_link.have = 0;
    shutdown(rank_link.fd, SHUT_RDWR); /* so that the other rank sees it */
}

/* Asks the engine, once in an epoch. `declines`: this rank is not going to use the connection. */
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

static void free_names(void)
{
    for (uint32_t i = 0; i < BUCKETS; i++)
        while (rank_link.bucket[i]) {
            struct linked_name *n = rank_link.bucket[i];
            rank_link.bucket[i] = n->next;
            free(n->early[0].elements);
            free(n->early[1].elements);
            free(n);
        }
    rank_link.names = 0;
}

void rank_link_close(void)
{
    pthread_mutex_lock(&rank_link.lock);
    if (rank_link.fd >= 0)
        close(rank_link.fd);
    free(rank_link.in);
    free_names();
    rank_link.fd = -1;
    rank_link.in = NULL;
    rank_link.have = 0;
    rank_link.state = STATE_UNKNOWN;
    rank_link.stops = rank_link.stopped = false;
    pthread_mutex_unlock(&rank_link.lock);
}

/* Makes it if need be. NULL: no memory, or the other rank has named too many; the connection is broken. */
static struct linked_name *find_name(const char *name)
{
    struct linked_name **at = &rank_link.bucket[hash_text(0, name) % BUCKETS], *n = *at;
    while (n && strcmp(n->name, name) != 0)
        n = n->next;
    if (n)
        return n;
    size_t size = strlen(name) + 1;
    n = rank_link.names < LINK_NAMES ? calloc(1, sizeof *n + size) : NULL;
    if (!n) {
        break_link(no_memory);
        return NULL;
    }
    memcpy(n->name, name, size);
    n->next = *at;
    *at = n;
    rank_link.names++;
    return n;
}

/* ---- messages in --------------------------------------------------------------------------------------- */

/* The first message in the buffer, and its size if it is whole; else 0. NULL: it is no message. */
static const struct link_message *check_message(size_t *size)
{
    const struct link_message *m = (const void *)rank_link.in;
    *size = 0;
    if (rank_link.have < sizeof *m)
        return m;
    if (m->magic != LINK_MAGIC || m->said < ELEMENTS || m->said > STOPS || m->name > SHM_NAME_MAX ||
        m->bytes > LINK_BYTES_MAX)
        return NULL;
    size_t whole = sizeof *m + fill_up(m->name) + fill_up(m->bytes);
    if (rank_link.have < whole)
        return m;
    size_t before = offsetof(struct link_message, said);
    if (crc32c(0, rank_link.in + before, whole - before) != m->check)
        return NULL;
    *size = whole;
    return m;
}

static void keep_elements(struct linked_name *n, const struct link_message *m, const uint8_t *elements)
{
    struct early *to = &n->early[m->sequence % 2];
    uint8_t *room = m->bytes > to->room ? realloc(to->elements, m->bytes) : to->elements;
    if (!room && m->bytes > 0) {
        break_link(no_memory);
        return;
    }
    to->room = m->bytes > to->room ? m->bytes : to->room;
    to->elements = room;
    to->sequence = m->sequence;
    to->op = m->op;
    to->bytes = m->bytes;
    if (m->bytes > 0)
        memcpy(to->elements, elements, m->bytes);
}

static void combine_elements(struct linked_name *n, const struct link_operation *o, const void *theirs)
{
    const void *in[2] = {o->in, theirs};
    void *out = o->out;
    if (client.rank == 1) {
        in[0] = theirs;
        in[1] = o->in;
    }
    struct reduce_job job = {.in = in,
                             .inputs = 2,
                             .out = &out,
                             .outputs = 1,
                             .dtype = (hvd_dtype)o->op.dtype,
                             .op = (hvd_op)o->op.op,
                             .divisor = o->op.op == HVD_AVERAGE ? 2 : 0,
                             .postscale = o->op.postscale};
    if (o->op.kind == SHM_ALLREDUCE)
        reduce_range(&job, 0, o->op.count);
    n->done = o->sequence;
    atomic_store(o->carried, o->sequence);
}

/* The reader's own operation, or NULL. */
struct waiting {
    struct linked_name *name;
    const struct link_operation *o;
};

static void take_message(const struct link_message *m, const struct waiting *w)
{
    char name[SHM_NAME_MAX + 1];
    const uint8_t *elements = (const uint8_t *)(m + 1) + fill_up(m->name);
    if (m->said == STOPS) {
        rank_link.stopped = true;
        return;
    }
    memcpy(name, m + 1, m->name);
    name[m->name] = '\0';
    struct linked_name *n = w && strcmp(w->o->name, name) == 0 ? w->name : find_name(name);
    if (!n || n->left)
        return; /* the name goes to the engine */
    if (m->said == LEAVES)
        n->left = true;
    else if (w && n == w->name && n->given == m->sequence && n->done != m->sequence &&
             w->o->sequence == m->sequence && memcmp(&m->op, &w->o->op, sizeof m->op) == 0 &&
             m->bytes == w->o->bytes)
        combine_elements(n, w->o, elements);
    else
        keep_elements(n, m, elements);
}

/* All whole messages in the buffer. */
static void take_messages(const struct waiting *w)
{
    const struct link_message *m;
    size_t size;
    bool taken = false;
    while (rank_link.state == STATE_UP && (m = check_message(&size)) != NULL && size > 0) {
        take_message(m, w);
        rank_link.have -= rank_link.state == STATE_UP ? size : rank_link.have;
        memmove(rank_link.in, rank_link.in + size, rank_link.have);
        taken = true;
    }
    if (rank_link.state == STATE_UP && !check_message(&size))
        break_link(no_message);
    if (taken && doorbell_has_sleeper(client.mailbox))
        doorbell_ring(client.mailbox); /* it may be another thread's */
}

/* Reads without waiting, until nothing is there or the reader's operation has ended. */
static void read_link(const struct waiting *w)
{
    while (rank_link.state == STATE_UP && !(w && w->name->done == w->o->sequence)) {
        ssize_t n =
            recv(rank_link.fd, rank_link.in + rank_link.have, MESSAGE_MAX - rank_link.have, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0) {
            break_link(NULL);
            return;
        }
        rank_link.have += (size_t)n;
        take_messages(w);
    }
}

/* ---- messages out -------------------------------------------------------------------------------------- */

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

/* o NULL: of no name. */
static void send_message(enum said said, const struct link_operation *o)
{
    static const uint8_t zeros[LINK_ALIGNED];
    struct {
        struct link_message m;
        uint8_t name[SHM_NAME_MAX + 1 + LINK_ALIGNED];
    } head = {.m = {.magic = LINK_MAGIC, .said = said}};
    struct iovec part[3] = {{&head, sizeof head.m}};
    if (o) {
        head.m.sequence = o->sequence;
        head.m.name = (uint32_t)strlen(o->name);
        head.m.op = o->op;
        memcpy(head.name, o->name, head.m.name);
        part[0].iov_len += fill_up(head.m.name);
    }
    if (said == ELEMENTS) {
        head.m.bytes = o->bytes;
        part[1] = (struct iovec){(void *)(uintptr_t)o->in, o->bytes};
        part[2] = (struct iovec){(void *)(uintptr_t)zeros, fill_up(o->bytes) - o->bytes};
    }
    size_t before = offsetof(struct link_message, said);
    uint32_t check = crc32c(0, (const uint8_t *)&head + before, part[0].iov_len - before);
    for (int i = 1; i < 3; i++)
        check = crc32c(check, part[i].iov_base, part[i].iov_len);
    head.m.check = check;
    send_all(part, part[2].iov_len > 0 ? 3 : part[1].iov_len > 0 ? 2 : 1);
}

static void say_stop(void)
{
    if (rank_link.stops)
        return;
    rank_link.stops = true;
    send_message(STOPS, NULL);
}

void rank_link_stop(void)
{
    if (!rank_link_is_possible())
        return;
    pthread_mutex_lock(&rank_link.lock);
    open_link(true);
    if (rank_link.state == STATE_UP)
        say_stop();
    pthread_mutex_unlock(&rank_link.lock);
}

/* ---- an operation -------------------------------------------------------------------------------------- */

static bool begin_operation(struct linked_name **linked, const struct link_operation *o, bool fits)
{
    open_link(false);
    if (!rank_link.sleeps)
        read_link(NULL); /* a rank that only sends must not fill the socket of one that does so too */
    if (rank_link.stopped)
        say_stop();
    if (rank_link.state == STATE_NONE || rank_link.stops) {
        if (*linked)
            (*linked)->left = true;
        return false;
    }
    if (!*linked)
        *linked = find_name(o->name);
    struct linked_name *n = *linked;
    if (!n || n->left)
        return false;
    if (rank_link.state == STATE_BROKEN)
        return true; /* the other rank may wait for this one here: nobody goes on */
    bool is_late = !n->takes && o->sequence != LINK_FIRST; /* both ranks had to begin with that one */
    if (!fits || is_late)
        n->left = true;
    if (is_late)
        return false;
    n->takes = fits;
    n->given = o->sequence;
    send_message(fits ? ELEMENTS : LEAVES, o); /* meanwhile the other rank may say that the name leaves */
    return fits;
}

bool rank_link_begin(struct linked_name **linked, const struct link_operation *o, bool fits)
{
    if (o->sequence < LINK_FIRST || (*linked && (*linked)->left))
        return false;
    pthread_mutex_lock(&rank_link.lock);
    bool goes = begin_operation(linked, o, fits);
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

/* The other rank's elements for the operation, which this rank has yet to take. */
static const struct early *find_early(const struct linked_name *n, uint32_t sequence)
{
    const struct early *e = &n->early[sequence % 2];
    return n->done != sequence && e->sequence == sequence ? e : NULL;
}

static enum link_step decide_step(struct linked_name *n, const struct link_operation *o)
{
    const struct early *theirs = find_early(n, o->sequence);
    if (theirs) {
        if (memcmp(&theirs->op, &o->op, sizeof o->op) == 0 && theirs->bytes == o->bytes)
            combine_elements(n, o, theirs->elements);
        else
            n->left = true;
    }
    if (n->done == o->sequence)
        return LINK_ENDED;
    if (n->left || (rank_link.stopped && rank_link.state == STATE_UP))
        return LINK_TO_ENGINE;
    if (rank_link.state == STATE_BROKEN)
        tell_loss();
    return LINK_WAITS;
}

enum link_step rank_link_step(struct linked_name *linked, const struct link_operation *o)
{
    struct waiting w = {linked, o};
    pthread_mutex_lock(&rank_link.lock);
    if (linked->done != o->sequence && !find_early(linked, o->sequence) && !rank_link.sleeps)
        read_link(&w);
    if (rank_link.stopped)
        say_stop();
    enum link_step step = decide_step(linked, o);
    pthread_mutex_unlock(&rank_link.lock);
    return step;
}

bool rank_link_sleep(const struct linked_name *linked, uint32_t sequence, unsigned ms)
{
    pthread_mutex_lock(&rank_link.lock);
    struct pollfd p = {.fd = rank_link.fd, .events = POLLIN};
    bool mine = rank_link.state == STATE_UP && !rank_link.sleeps;
    bool has_come = find_early(linked, sequence) || linked->left; /* another thread has read it just now */
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

void rank_link_drain(void)
{
    if (pthread_mutex_trylock(&rank_link.lock) != 0)
        return; /* its holder reads */
    if (!rank_link.sleeps)
        read_link(NULL);
    pthread_mutex_unlock(&rank_link.lock);
}
