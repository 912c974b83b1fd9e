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
#define LATE_NS      (10 * NSEC_PER_SEC) /* a rank that has sent its elements is back in less */

enum said { ELEMENTS = 1, LEAVES, STOPS, RESULT };

struct link_message {
    uint32_t magic, check; /* CRC-32C of all that follows `check` */
    uint32_t said;
    uint32_t sequence; /* of the operation */
    uint32_t name, bytes;
    uint64_t pad;
    struct tensor_op op;
};
_Static_assert(sizeof(struct link_message) % LINK_ALIGNED == 0, "the elements are aligned");

#define PART_MAX    (LINK_PARTS_MAX / 3 / LINK_ALIGNED * LINK_ALIGNED + 2 * LINK_ALIGNED) /* of three ranks */
#define MESSAGE_MAX (sizeof(struct link_message) + SHM_NAME_MAX + 1 + LINK_ALIGNED + PART_MAX)
_Static_assert(PART_MAX >= LINK_BYTES_MAX && PART_MAX >= LINK_WHOLE_MAX, "the longest elements have room");

/* Elements of another rank, or results that it has made, which came before this rank took them. */
struct early {
    uint32_t sequence, bytes;
    struct tensor_op op;
    uint8_t *elements; /* [bytes]; NULL: they were taken */
};

/* Places of a rank's: two by operation % 2 for elements, and one for its part of a result. */
enum { EARLY_RESULT = 2, EARLY_SLOTS };

/* A name that one of the ranks has spoken of. */
struct linked_name {
    struct linked_name *next; /* in its bucket */
    _Atomic bool left;        /* all its further operations go to the engine, */
    uint32_t left_at;         /* from this one on */
    bool takes;               /* this rank has sent elements */
    uint32_t given, done;     /* this rank's last operation whose elements it has sent, and that has ended */
    uint32_t summed;          /* in parts: the last one of which it has sent its part of the result */
    uint32_t results;         /* in parts: ranks whose part is in the place of the result */
    uint64_t late_at;         /* in parts: it is said then which rank is late; 0: it was said */
    char *name;
    struct early early[][EARLY_SLOTS]; /* by rank; the other ranks may be one operation ahead */
};

/* Another rank. */
struct link_peer {
    int fd; /* -1: there is no connection; this rank itself */
    bool stopped;
    uint8_t *in; /* [MESSAGE_MAX] */
    size_t have;
};

enum state { STATE_UNKNOWN, STATE_UP, STATE_NONE, STATE_BROKEN };

/* Of the process; all under `lock`. */
static struct {
    pthread_mutex_t lock;
    enum state state;
    bool stops, stopped; /* this rank has said so; another one */
    bool sleeps;         /* a thread waits for the sockets, and reads what comes for all of them */
    bool slept;          /* it has just done so */
    bool looked;         /* this rank has looked for what came since it began its last operation */
    uint32_t next;       /* the peer whose socket is looked at next */
    uint64_t broken_at;  /* 0: the engine was told */
    const char *why;     /* it broke; NULL: the engines know */
    uint32_t ranks;
    struct link_peer peer[LINK_HOSTS_MAX]; /* [ranks], by rank */
    uint32_t names;
    struct linked_name *bucket[BUCKETS];
} rank_link = {.lock = PTHREAD_MUTEX_INITIALIZER};

static const char no_memory[] = "has no memory for what the ranks of other hosts have sent";
static const char no_room[] = "has no descriptors left for the connections to the ranks of other hosts";
static const char no_message[] = "got something else than a message from the rank of another host";

static bool is_other(uint32_t rank)
{
    return rank != (uint32_t)client.rank;
}

static size_t fill_up(size_t bytes)
{
    return (bytes + LINK_ALIGNED - 1) / LINK_ALIGNED * LINK_ALIGNED;
}

/* ---- the connection ------------------------------------------------------------------------------------ */

/* why NULL: the engines know, if another rank or its host has gone. */
static void break_link(const char *why)
{
    rank_link.state = STATE_BROKEN;
    rank_link.why = why;
    rank_link.broken_at = clock_now();
    for (uint32_t r = 0; r < rank_link.ranks; r++) {
        rank_link.peer[r].have = 0;
        if (rank_link.peer[r].fd >= 0)
            shutdown(rank_link.peer[r].fd, SHUT_RDWR); /* so that the other rank sees it */
    }
}

/* The connections that the engine has given, in the order of the other ranks. */
static bool take_connections(const int *fds)
{
    bool whole = true;
    for (uint32_t r = 0; r < rank_link.ranks; r++) {
        struct link_peer *p = &rank_link.peer[r];
        *p = (struct link_peer){.fd = -1};
        if (!is_other(r))
            continue;
        *p = (struct link_peer){.fd = *fds++, .in = malloc(MESSAGE_MAX)};
        whole = whole && p->in;
    }
    return whole;
}

/* Asks the engine, once in an epoch. `declines`: this rank is not going to use the connections. */
static void open_link(bool declines)
{
    struct worker_message m = {.type = WORKER_RANK_LINK, .id = declines};
    int fds[WORKER_FDS_MAX];
    unsigned number = WORKER_FDS_MAX;
    if (rank_link.state != STATE_UNKNOWN)
        return;
    rank_link.state = STATE_NONE;
    for (int i = 0; i < WORKER_FDS_MAX; i++)
        fds[i] = -1;
    if (rpc(&m, -1, fds, &number) != HVD_SUCCESS || (number == 0 && m.id == 0))
        return;
    rank_link.ranks = (uint32_t)client.size;
    rank_link.state = STATE_UP;
    if (!take_connections(fds))
        break_link(no_memory);
    else if (number != rank_link.ranks - 1)
        break_link(no_room);
}

/* All ranks' of that place, whether they were used or not. */
static void free_early(struct linked_name *n, uint32_t slot)
{
    for (uint32_t r = 0; r < rank_link.ranks; r++) {
        free(n->early[r][slot].elements);
        n->early[r][slot].elements = NULL;
    }
}

static void free_names(void)
{
    for (uint32_t i = 0; i < BUCKETS; i++)
        while (rank_link.bucket[i]) {
            struct linked_name *n = rank_link.bucket[i];
            rank_link.bucket[i] = n->next;
            for (uint32_t slot = 0; slot < EARLY_SLOTS; slot++)
                free_early(n, slot);
            free(n);
        }
    rank_link.names = 0;
}

void rank_link_close(void)
{
    pthread_mutex_lock(&rank_link.lock);
    free_names();
    for (uint32_t r = 0; r < rank_link.ranks; r++) {
        if (rank_link.peer[r].fd >= 0)
            close(rank_link.peer[r].fd);
        free(rank_link.peer[r].in);
    }
    rank_link.ranks = 0;
    rank_link.state = STATE_UNKNOWN;
    rank_link.stops = rank_link.stopped = false;
    pthread_mutex_unlock(&rank_link.lock);
}

/* Makes it if need be. NULL: no memory, or other ranks have named too many; the connections are broken. */
static struct linked_name *find_name(const char *name)
{
    struct linked_name **at = &rank_link.bucket[hash_text(0, name) % BUCKETS], *n = *at;
    while (n && strcmp(n->name, name) != 0)
        n = n->next;
    if (n)
        return n;
    size_t size = strlen(name) + 1;
    size_t early = rank_link.ranks * sizeof n->early[0];
    n = rank_link.names < LINK_NAMES ? calloc(1, sizeof *n + early + size) : NULL;
    if (!n) {
        break_link(no_memory);
        return NULL;
    }
    n->name = (char *)n->early + early;
    memcpy(n->name, name, size);
    n->next = *at;
    *at = n;
    rank_link.names++;
    return n;
}

/* ---- the words of other ranks about a name ------------------------------------------------------------- */

/* The first operation of the name that goes to the engine; all ranks see which one that is. */
static void leave_name(struct linked_name *n, uint32_t sequence)
{
    if (!n->left || (int32_t)(sequence - n->left_at) < 0)
        n->left_at = sequence;
    n->left = true;
}

/* Of an operation near those that the ranks are in. */
static bool has_left(const struct linked_name *n, uint32_t sequence)
{
    return n->left && (int32_t)(sequence - n->left_at) >= 0;
}

/* That rank's elements for the operation, which this rank has yet to take. */
static const struct early *find_early(const struct linked_name *n, uint32_t rank, uint32_t sequence)
{
    const struct early *e = &n->early[rank][sequence % 2];
    return n->done != sequence && e->sequence == sequence ? e : NULL;
}

/* The part of the result that a rank makes. */
struct result_part {
    size_t count; /* elements */
    size_t at, bytes;
};

static struct result_part find_part(const struct link_operation *o, uint32_t rank)
{
    size_t size = o->op.count > 0 ? o->bytes / o->op.count : 0;
    size_t first = o->op.count * rank / rank_link.ranks, end = o->op.count * (rank + 1) / rank_link.ranks;
    return (struct result_part){end - first, first * size, (end - first) * size};
}

/* Each other rank sends so many to this one for the operation. */
static size_t count_bytes(const struct link_operation *o)
{
    return rank_link_in_parts(o->bytes) ? find_part(o, (uint32_t)client.rank).bytes : o->bytes;
}

static bool is_same(const struct early *e, const struct link_operation *o)
{
    return memcmp(&e->op, &o->op, sizeof o->op) == 0 && e->bytes == count_bytes(o);
}

static bool has_result(const struct linked_name *n, uint32_t rank, uint32_t sequence)
{
    const struct early *e = &n->early[rank][EARLY_RESULT];
    return n->results & 1u << rank || (e->elements && e->sequence == sequence);
}

/* That rank has sent what this rank waits for now. */
static bool has_come(const struct linked_name *n, uint32_t rank, uint32_t sequence)
{
    return n->summed == sequence ? has_result(n, rank, sequence) : find_early(n, rank, sequence) != NULL;
}

/* This rank waits for a word of another one about the operation. */
static bool lacks_word(const struct linked_name *n, uint32_t sequence)
{
    bool lacks = false;
    if (n->done == sequence || (n->summed != sequence && has_left(n, sequence)))
        return false;
    for (uint32_t r = 0; r < rank_link.ranks; r++) {
        if (!is_other(r) || has_come(n, r, sequence))
            continue;
        if (rank_link.peer[r].stopped && n->summed != sequence)
            return false;
        lacks = true;
    }
    return lacks;
}

/* ---- messages in --------------------------------------------------------------------------------------- */

/* The first message in the buffer, and its size if it is whole; else 0. NULL: it is no message. */
static const struct link_message *check_message(const struct link_peer *p, size_t *size)
{
    const struct link_message *m = (const void *)p->in;
    *size = 0;
    if (p->have < sizeof *m)
        return m;
    if (m->magic != LINK_MAGIC || m->said < ELEMENTS || m->said > RESULT || m->name > SHM_NAME_MAX ||
        m->bytes > PART_MAX)
        return NULL;
    size_t whole = sizeof *m + fill_up(m->name) + fill_up(m->bytes);
    if (p->have < whole)
        return m;
    size_t before = offsetof(struct link_message, said);
    if (crc32c(0, p->in + before, whole - before) != m->check)
        return NULL;
    *size = whole;
    return m;
}

static void keep_elements(struct linked_name *n, uint32_t rank, const struct link_message *m,
                          const uint8_t *elements)
{
    struct early *to = &n->early[rank][m->said == RESULT ? EARLY_RESULT : m->sequence % 2];
    free(to->elements);
    *to = (struct early){
        .elements = malloc(m->bytes + 1), .sequence = m->sequence, .bytes = m->bytes, .op = m->op};
    if (to->elements) {
        memcpy(to->elements, elements, m->bytes);
        return;
    }
    *to = (struct early){0};
    break_link(no_memory);
}

/* Reduces a part of the result. The others' elements begin with the part: those of rank `from` at `theirs`,
 * if it is another one, and all others as they were kept. */
static void reduce_part(struct linked_name *n, const struct link_operation *o, const struct result_part *part,
                        uint32_t from, const void *theirs)
{
    const void *in[LINK_HOSTS_MAX];
    void *out = (uint8_t *)o->out + part->at;
    for (uint32_t r = 0; r < rank_link.ranks; r++)
        in[r] = !is_other(r) ? (const uint8_t *)o->in + part->at
                : r == from  ? theirs
                             : n->early[r][o->sequence % 2].elements;
    struct reduce_job job = {.in = in,
                             .inputs = rank_link.ranks,
                             .out = &out,
                             .outputs = 1,
                             .dtype = (hvd_dtype)o->op.dtype,
                             .op = (hvd_op)o->op.op,
                             .divisor = o->op.op == HVD_AVERAGE ? rank_link.ranks : 0,
                             .postscale = o->op.postscale};
    reduce_range(&job, 0, part->count);
    free_early(n, o->sequence % 2);
}

static void end_operation(struct linked_name *n, const struct link_operation *o)
{
    n->done = o->sequence;
    atomic_store(o->carried, o->sequence);
}

static void combine_elements(struct linked_name *n, const struct link_operation *o, uint32_t from,
                             const void *theirs)
{
    struct result_part whole = {.count = o->op.count};
    if (o->op.kind == SHM_ALLREDUCE)
        reduce_part(n, o, &whole, from, theirs);
    end_operation(n, o);
}

/* A rank makes its part of the result when all ranks' elements for the operation have come. So all ranks send
 * theirs, and no rank gives the operation to its engine any more. */
static bool place_result(struct linked_name *n, const struct link_operation *o, uint32_t rank,
                         const struct link_message *m, const uint8_t *elements)
{
    struct result_part part = find_part(o, rank);
    if (n->given != m->sequence || n->done == m->sequence || o->sequence != m->sequence ||
        !rank_link_in_parts(o->bytes) || m->bytes != part.bytes)
        return false;
    memcpy((uint8_t *)o->out + part.at, elements, part.bytes);
    n->results |= 1u << rank;
    return true;
}

/* Those that another thread has read. */
static void take_results(struct linked_name *n, const struct link_operation *o)
{
    for (uint32_t r = 0; r < rank_link.ranks; r++) {
        struct early *e = &n->early[r][EARLY_RESULT];
        struct link_message m = {.sequence = e->sequence, .bytes = e->bytes};
        if (!e->elements || e->sequence != o->sequence)
            continue;
        if (!place_result(n, o, r, &m, e->elements))
            break_link(no_message);
        free(e->elements);
        e->elements = NULL;
    }
    if (n->results == ((1u << rank_link.ranks) - 1 - (1u << client.rank)))
        end_operation(n, o);
}

/* All other ranks' elements were kept, and are for this operation. `but`: of this one they come now. */
static bool has_others(const struct linked_name *n, const struct link_operation *o, uint32_t but)
{
    for (uint32_t r = 0; r < rank_link.ranks; r++) {
        const struct early *e = find_early(n, r, o->sequence);
        if (is_other(r) && r != but && (!e || !is_same(e, o)))
            return false;
    }
    return true;
}

/* The reader's own operation, or NULL. */
struct waiting {
    struct linked_name *name;
    const struct link_operation *o;
};

static void take_message(uint32_t rank, const struct link_message *m, const struct waiting *w)
{
    char name[SHM_NAME_MAX + 1];
    const uint8_t *elements = (const uint8_t *)(m + 1) + fill_up(m->name);
    if (m->said == STOPS) {
        rank_link.peer[rank].stopped = rank_link.stopped = true;
        return;
    }
    memcpy(name, m + 1, m->name);
    name[m->name] = '\0';
    struct linked_name *n = w && strcmp(w->o->name, name) == 0 ? w->name : find_name(name);
    bool is_summed = n && n->summed == m->sequence; /* all ranks have sent what they had to before */
    if (!n || (is_summed ? m->said != RESULT : has_left(n, m->sequence)))
        return; /* it goes to the engine */
    if (m->said == LEAVES)
        leave_name(n, m->sequence);
    else if (m->said == RESULT && w && n == w->name && place_result(n, w->o, rank, m, elements))
        return;
    else if (m->said == ELEMENTS && w && n == w->name && n->given == m->sequence && n->done != m->sequence &&
             w->o->sequence == m->sequence && memcmp(&m->op, &w->o->op, sizeof m->op) == 0 &&
             m->bytes == w->o->bytes && !rank_link_in_parts(m->bytes) && has_others(n, w->o, rank))
        combine_elements(n, w->o, rank, elements);
    else
        keep_elements(n, rank, m, elements);
}

/* All whole messages in the buffer. */
static void take_messages(uint32_t rank, const struct waiting *w)
{
    struct link_peer *p = &rank_link.peer[rank];
    const struct link_message *m;
    size_t size;
    bool taken = false;
    while (rank_link.state == STATE_UP && (m = check_message(p, &size)) != NULL && size > 0) {
        take_message(rank, m, w);
        p->have -= rank_link.state == STATE_UP ? size : p->have;
        memmove(p->in, p->in + size, p->have);
        taken = true;
    }
    if (rank_link.state == STATE_UP && !check_message(p, &size))
        break_link(no_message);
    if (taken && doorbell_has_sleeper(client.mailbox))
        doorbell_ring(client.mailbox); /* it may be another thread's */
}

/* That rank has sent the word that the reader waits for. */
static bool has_word(const struct waiting *w, uint32_t rank)
{
    return w && (w->name->done == w->o->sequence || has_come(w->name, rank, w->o->sequence));
}

/* Reads without waiting, until nothing is there or the reader has what it waits for. */
static void read_peer(uint32_t rank, const struct waiting *w)
{
    struct link_peer *p = &rank_link.peer[rank];
    while (p->fd >= 0 && rank_link.state == STATE_UP && !has_word(w, rank)) {
        ssize_t n = recv(p->fd, p->in + p->have, MESSAGE_MAX - p->have, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0) {
            break_link(NULL);
            return;
        }
        p->have += (size_t)n;
        take_messages(rank, w);
    }
}

/* For other threads, too. */
static void read_all(const struct waiting *w)
{
    for (uint32_t r = 0; r < rank_link.ranks; r++)
        read_peer(r, has_word(w, r) ? NULL : w);
}

/* Each look costs a call of the kernel, so a rank looks after one of its peers at a time. Returns which. */
static uint32_t read_next(const struct waiting *w)
{
    for (uint32_t i = 0; i < rank_link.ranks; i++) {
        rank_link.next = (rank_link.next + 1) % rank_link.ranks;
        if (is_other(rank_link.next) && !has_word(w, rank_link.next))
            break;
    }
    read_peer(rank_link.next, w);
    return rank_link.next;
}

static void read_lacking(const struct waiting *w)
{
    if (rank_link.slept)
        read_all(w);
    rank_link.slept = false;
    while (rank_link.state == STATE_UP && lacks_word(w->name, w->o->sequence) && has_word(w, read_next(w)))
        ;
}

/* ---- messages out -------------------------------------------------------------------------------------- */

/* The other ranks' sockets, for poll(); the room of `full` too, unless that is nobody. Returns how many. */
static nfds_t list_sockets(struct pollfd to[LINK_HOSTS_MAX], uint32_t full)
{
    nfds_t n = 0;
    for (uint32_t r = 0; r < rank_link.ranks; r++)
        if (rank_link.peer[r].fd >= 0)
            to[n++] = (struct pollfd){.fd = rank_link.peer[r].fd,
                                      .events = (short)(r == full ? POLLIN | POLLOUT : POLLIN)};
    return n;
}

/* The rank's socket is full. It may be sending too, as all others, so what comes is read meanwhile. */
static void wait_for_room(uint32_t rank)
{
    struct pollfd p[LINK_HOSTS_MAX];
    poll(p, list_sockets(p, rank), SLICE_MS);
    read_all(NULL);
    if (region_poisoned(&client.region))
        break_link(NULL);
}

static void send_all(uint32_t rank, struct iovec *part, size_t parts)
{
    while (rank_link.state == STATE_UP && parts > 0) {
        struct msghdr msg = {.msg_iov = part, .msg_iovlen = parts};
        ssize_t n = sendmsg(rank_link.peer[rank].fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EAGAIN)
            wait_for_room(rank);
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
static void send_message(uint32_t rank, enum said said, const struct link_operation *o, const void *elements,
                         size_t bytes)
{
    static const uint8_t zeros[LINK_ALIGNED];
    struct {
        struct link_message m;
        uint8_t name[SHM_NAME_MAX + 1 + LINK_ALIGNED];
    } head = {.m = {.magic = LINK_MAGIC, .said = said, .bytes = (uint32_t)bytes}};
    struct iovec part[3] = {{&head, sizeof head.m},
                            {(void *)(uintptr_t)elements, bytes},
                            {(void *)(uintptr_t)zeros, fill_up(bytes) - bytes}};
    if (o) {
        head.m.sequence = o->sequence;
        head.m.name = (uint32_t)strlen(o->name);
        head.m.op = o->op;
        memcpy(head.name, o->name, head.m.name);
        part[0].iov_len += fill_up(head.m.name);
    }
    size_t before = offsetof(struct link_message, said);
    uint32_t check = crc32c(0, (const uint8_t *)&head + before, part[0].iov_len - before);
    for (int i = 1; i < 3; i++)
        check = crc32c(check, part[i].iov_base, part[i].iov_len);
    head.m.check = check;
    send_all(rank, part, part[2].iov_len > 0 ? 3 : part[1].iov_len > 0 ? 2 : 1);
}

/* Each rank begins with the one behind itself, so that not all send to the same one. */
static uint32_t next_rank(uint32_t i)
{
    return ((uint32_t)client.rank + i) % rank_link.ranks;
}

static void send_word(enum said said, const struct link_operation *o)
{
    for (uint32_t i = 1; i < rank_link.ranks; i++)
        send_message(next_rank(i), said, o, NULL, 0);
}

static void send_elements(const struct link_operation *o)
{
    for (uint32_t i = 1; i < rank_link.ranks; i++) {
        struct result_part part = {.bytes = o->bytes};
        if (rank_link_in_parts(o->bytes))
            part = find_part(o, next_rank(i));
        send_message(next_rank(i), ELEMENTS, o, (const uint8_t *)o->in + part.at, part.bytes);
    }
}

/* Makes this rank's part of the result. */
static void send_result(struct linked_name *n, const struct link_operation *o)
{
    struct result_part part = find_part(o, (uint32_t)client.rank);
    reduce_part(n, o, &part, UINT32_MAX, NULL);
    n->summed = o->sequence;
    n->late_at = clock_now() + LATE_NS;
    for (uint32_t i = 1; i < rank_link.ranks; i++)
        send_message(next_rank(i), RESULT, o, (const uint8_t *)o->out + part.at, part.bytes);
}

static void say_stop(void)
{
    if (rank_link.stops)
        return;
    rank_link.stops = true;
    send_word(STOPS, NULL);
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
    if (!rank_link.looked && !rank_link.sleeps)
        read_next(NULL); /* a rank that only sends must not fill the socket of one that does so too */
    rank_link.looked = false;
    if (rank_link.stopped)
        say_stop();
    if (rank_link.state == STATE_NONE || rank_link.stops) {
        if (*linked)
            leave_name(*linked, o->sequence);
        return false;
    }
    if (!*linked)
        *linked = find_name(o->name);
    struct linked_name *n = *linked;
    if (!n || n->left)
        return false;
    if (rank_link.state == STATE_BROKEN)
        return true; /* another rank may wait for this one here: nobody goes on */
    bool is_late = !n->takes && o->sequence != LINK_FIRST; /* all ranks had to begin with that one */
    if (!fits || is_late)
        leave_name(n, o->sequence);
    if (is_late)
        return false;
    n->takes = fits;
    n->given = o->sequence;
    n->results = 0;
    if (fits)
        send_elements(o); /* meanwhile another rank may say that the name leaves */
    else
        send_word(LEAVES, o);
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
    rpc_failed(rank_link.why ? rank_link.why : "has lost its connection to the rank of another host");
}

/* The stall check of the engines names nobody: all ranks have arrived. */
static void tell_late(struct linked_name *n, const struct link_operation *o)
{
    if (n->late_at == 0 || clock_now() < n->late_at)
        return;
    n->late_at = 0;
    for (uint32_t r = 0; r < rank_link.ranks; r++)
        if (is_other(r) && !has_result(n, r, o->sequence))
            rpc_note(LOG_WARNING,
                     "tensor \"%s\": rank %u sent its elements %llu s ago and not its part of the result; "
                     "hvdctl why shows whether it is stopped",
                     n->name, r, LATE_NS / NSEC_PER_SEC);
}

static enum link_step decide_step(struct linked_name *n, const struct link_operation *o)
{
    for (uint32_t r = 0; r < rank_link.ranks && n->summed != o->sequence; r++) {
        const struct early *e = find_early(n, r, o->sequence);
        if (e && !is_same(e, o))
            leave_name(n, o->sequence); /* the other ranks see the same */
    }
    bool due = n->given == o->sequence && n->done != o->sequence;
    if (due && n->summed != o->sequence && !has_left(n, o->sequence) && has_others(n, o, UINT32_MAX)) {
        if (rank_link_in_parts(o->bytes))
            send_result(n, o);
        else
            combine_elements(n, o, UINT32_MAX, NULL);
    }
    if (due && n->summed == o->sequence) {
        take_results(n, o);
        tell_late(n, o);
    }
    if (n->done == o->sequence)
        return LINK_ENDED;
    if (n->summed != o->sequence &&
        (has_left(n, o->sequence) || (rank_link.state == STATE_UP && !lacks_word(n, o->sequence)))) {
        leave_name(n, o->sequence);
        for (uint32_t slot = 0; slot < EARLY_SLOTS; slot++)
            free_early(n, slot);
        return LINK_TO_ENGINE;
    }
    if (rank_link.state == STATE_BROKEN)
        tell_loss();
    return LINK_WAITS;
}

enum link_step rank_link_step(struct linked_name *linked, const struct link_operation *o)
{
    struct waiting w = {linked, o};
    pthread_mutex_lock(&rank_link.lock);
    rank_link.looked = true;
    if (lacks_word(linked, o->sequence) && !rank_link.sleeps)
        read_lacking(&w);
    if (rank_link.stopped)
        say_stop();
    enum link_step step = decide_step(linked, o);
    pthread_mutex_unlock(&rank_link.lock);
    return step;
}

bool rank_link_sleep(const struct linked_name *linked, uint32_t sequence, unsigned ms)
{
    struct pollfd p[LINK_HOSTS_MAX];
    pthread_mutex_lock(&rank_link.lock);
    nfds_t sockets = list_sockets(p, UINT32_MAX);
    bool is_up = rank_link.state == STATE_UP, mine = is_up && !rank_link.sleeps;
    bool is_here = is_up && !lacks_word(linked, sequence); /* another thread has read it just now */
    rank_link.sleeps = rank_link.sleeps || (mine && !is_here);
    pthread_mutex_unlock(&rank_link.lock);
    if (!mine || is_here)
        return is_here;
    poll(p, sockets, ms < SLICE_MS ? (int)ms : SLICE_MS);
    pthread_mutex_lock(&rank_link.lock);
    rank_link.sleeps = false;
    rank_link.slept = true;
    pthread_mutex_unlock(&rank_link.lock);
    if (doorbell_has_sleeper(client.mailbox))
        doorbell_ring(client.mailbox); /* another thread may look after the sockets now */
    return true;
}

bool rank_link_is_unwatched(void)
{
    pthread_mutex_lock(&rank_link.lock);
    bool is = rank_link.state == STATE_UP && !rank_link.sleeps;
    pthread_mutex_unlock(&rank_link.lock);
    return is;
}

void rank_link_drain(void)
{
    if (!rank_link_is_possible() || pthread_mutex_trylock(&rank_link.lock) != 0)
        return; /* its holder reads */
    if (atomic_load_explicit(&client.region.header->rank_link, memory_order_relaxed) == SHM_RANK_LINK_UP)
        open_link(false); /* the others may be sending */
    if (!rank_link.sleeps)
        read_all(NULL);
    pthread_mutex_unlock(&rank_link.lock);
}
