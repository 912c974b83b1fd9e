#include "collectives/client/link/rank_link.h"

#include <string.h>

#include "collectives/client/link/sockets.h"
#include "collectives/client/link/stream.h"
#include "collectives/client/link/words.h"
#include "collectives/shm/doorbell.h"

#define SLICE_MS 50         /* between two looks whether the job has failed */
#define COPY_MAX (4u << 10) /* more elements stay in the memory in which they came */
#define ROUNDS   16         /* of a stream, in one step */

/* Of the process; all but `gate` under `lock`, as the sockets and the words are. A thread that waits for
 * `lock` holds `gate`. So a thread that has just given `lock` back cannot take it again first. */
static struct {
    pthread_mutex_t gate, lock;
    bool stops;                   /* this rank has said LINK_STOPS */
    bool stopped[LINK_HOSTS_MAX]; /* by rank: another one has */
    bool any_stopped;
    struct linked_name *streamed; /* its operation is a stream, or will be when all ranks agree; NULL: none */
    bool stalled; /* the stream cannot move before something comes, or there is room in a socket */
    bool sleeps;  /* a thread waits for the sockets, and reads for all; one that has a stream reads as well */
    bool slept;   /* it has just done so */
    bool looked;  /* this rank has looked since it began its last operation */
    uint32_t next; /* the peer whose socket is looked at next */
} rank_link = {.gate = PTHREAD_MUTEX_INITIALIZER, .lock = PTHREAD_MUTEX_INITIALIZER};

static const char no_memory[] = "has no memory for what the ranks of other hosts have sent";
static const char no_stream[] = "got a piece from the rank of another host, but no operation goes in pieces";
static const char no_result[] = "got a result from the rank of another host that it has not asked for";

static void lock_link(void)
{
    pthread_mutex_lock(&rank_link.gate);
    pthread_mutex_lock(&rank_link.lock);
    pthread_mutex_unlock(&rank_link.gate);
}

static void unlock_link(void)
{
    pthread_mutex_unlock(&rank_link.lock);
}

void rank_link_close(void)
{
    lock_link();
    words_free(link_ranks());
    stream_free();
    rank_link.streamed = NULL;
    link_close();
    memset(rank_link.stopped, 0, sizeof rank_link.stopped);
    rank_link.stops = rank_link.any_stopped = false;
    unlock_link();
}

/* NULL: the connections are broken. */
static struct linked_name *find_name(const char *name)
{
    struct linked_name *n = words_of_name(name, link_ranks());
    if (!n)
        link_break(no_memory);
    return n;
}

/* ---- the words that an operation lacks ----------------------------------------------------------------- */

static enum link_way way_of(const struct link_operation *o)
{
    return link_way_of(o, link_ranks(), link_is_crowded());
}

static struct link_part part_of(const struct link_operation *o, uint32_t rank)
{
    return link_part_of(o, way_of(o), rank, link_ranks());
}

static uint32_t root_of(uint32_t sequence)
{
    return link_root(sequence, link_ranks());
}

/* Other ranks may have this one as their root, even if its own call goes another way. */
static bool may_be_root(const struct link_operation *o)
{
    return link_ranks() > 2 && link_is_crowded() && !link_is_other(root_of(o->sequence));
}

static bool is_root(const struct linked_name *n)
{
    return n->way == LINK_ROOT && !link_is_other(root_of(n->given));
}

/* The operation may still go to the engines. Else all ranks have sent their elements. */
static bool may_leave(const struct linked_name *n, uint32_t sequence)
{
    return n->made != sequence || n->way == LINK_ROOT;
}

/* The operation that this rank is in goes to the engines. */
static bool has_left(const struct linked_name *n, uint32_t sequence)
{
    return words_have_left(n, sequence) || (is_root(n) && rank_link.stops);
}

/* Elements that come with the word of another rank. Those of a stream come later. */
static size_t bytes_with_word(const struct link_operation *o)
{
    return way_of(o) == LINK_STREAM ? 0 : part_of(o, (uint32_t)client.rank).bytes;
}

static bool is_same(const struct early *e, const struct link_operation *o)
{
    return memcmp(&e->op, &o->op, sizeof o->op) == 0 && e->way == way_of(o) &&
           link_way_takes(e->way, (uint32_t)client.rank, root_of(o->sequence)) &&
           e->bytes == bytes_with_word(o);
}

/* All ranks have agreed, and the pieces are on their way. */
static bool is_streaming(const struct linked_name *n, uint32_t sequence)
{
    return n->way == LINK_STREAM && n->made == sequence && n->done != sequence;
}

/* That rank has sent what this rank waits for now. */
static bool has_come(const struct linked_name *n, uint32_t rank, uint32_t sequence)
{
    if (n->made != sequence)
        return words_elements(n, rank, sequence) != NULL;
    if (n->way == LINK_STREAM)
        return stream_has_all(rank);
    return !link_way_makes(n->way, rank, root_of(sequence)) || words_have_result(n, rank, sequence);
}

/* This rank waits for a word of another one about the operation. */
static bool lacks_word(const struct linked_name *n, uint32_t sequence)
{
    bool lacks = false, leaves = may_leave(n, sequence);
    if (n->done == sequence || (leaves && has_left(n, sequence)))
        return false;
    if (is_streaming(n, sequence))
        return true;
    for (uint32_t r = 0; r < link_ranks(); r++) {
        if (!link_is_other(r) || has_come(n, r, sequence))
            continue;
        if (rank_link.stopped[r] && leaves)
            return false;
        lacks = true;
    }
    return lacks;
}

/* All other ranks' elements were kept, and are for this operation. `but`: of this one they come now. */
static bool has_others(const struct linked_name *n, const struct link_operation *o, uint32_t but)
{
    for (uint32_t r = 0; r < link_ranks(); r++) {
        const struct early *e = words_elements(n, r, o->sequence);
        if (link_is_other(r) && r != but && (!e || !is_same(e, o)))
            return false;
    }
    return true;
}

/* All parts of the result that other ranks make. */
static bool has_results(const struct linked_name *n)
{
    for (uint32_t r = 0; r < link_ranks(); r++)
        if (link_is_other(r) && link_way_makes(n->way, r, root_of(n->given)) && !(n->results & 1u << r))
            return false;
    return true;
}

/* ---- elements and results ------------------------------------------------------------------------------ */

/* Keeps the message until this rank can use it. */
static void keep_elements(struct linked_name *n, uint32_t rank, const struct link_message *m)
{
    struct early e = {.sequence = m->sequence,
                      .bytes = m->bytes,
                      .way = m->way,
                      .op = m->op,
                      .elements = link_message_elements(m)};
    uint32_t slot = m->said == LINK_RESULT ? EARLY_RESULT : m->sequence % 2;
    e.room = m->bytes > COPY_MAX ? link_keep(rank) : NULL;
    if (!words_keep(n, rank, slot, &e))
        link_break(no_memory);
    if (!e.room)
        link_drop(rank);
}

/* Reduces a part of the result. The others' elements begin with the part: those of rank `from` at `theirs`,
 * if it is another one, and all others as they were kept. */
static void reduce_part(struct linked_name *n, const struct link_operation *o, const struct link_part *part,
                        uint32_t from, const void *theirs)
{
    const void *in[LINK_HOSTS_MAX];
    uint32_t ranks = link_ranks();
    for (uint32_t r = 0; r < ranks; r++)
        in[r] = !link_is_other(r) ? (const uint8_t *)o->in + part->at
                : r == from       ? theirs
                                  : n->early[r][o->sequence % 2].elements;
    if (o->op.kind == SHM_ALLREDUCE)
        link_reduce(o, in, ranks, (uint8_t *)o->out + part->at, part->count);
    words_drop(n, o->sequence % 2, ranks);
}

static void end_operation(struct linked_name *n, const struct link_operation *o)
{
    n->done = o->sequence;
    atomic_store(o->carried, o->sequence);
}

/* Of all ranks' elements, each of which this rank has whole. */
static void combine_elements(struct linked_name *n, const struct link_operation *o, uint32_t from,
                             const void *theirs)
{
    struct link_part whole = part_of(o, (uint32_t)client.rank);
    reduce_part(n, o, &whole, from, theirs);
    end_operation(n, o);
}

/* A rank makes its part of the result when the elements of all ranks for the operation have come to it. */
static bool place_result(struct linked_name *n, const struct link_operation *o, uint32_t rank,
                         uint32_t sequence, const uint8_t *elements, size_t bytes)
{
    if (n->given != sequence || n->done == sequence || o->sequence != sequence ||
        !link_way_makes(n->way, rank, root_of(sequence)) || bytes != part_of(o, rank).bytes)
        return false;
    if (bytes > 0)
        memcpy((uint8_t *)o->out + part_of(o, rank).at, elements, bytes);
    n->results |= 1u << rank;
    return true;
}

/* Those that another thread has read. */
static void take_results(struct linked_name *n, const struct link_operation *o)
{
    for (uint32_t r = 0; r < link_ranks(); r++) {
        struct early *e = &n->early[r][EARLY_RESULT];
        if (!e->elements || e->sequence != o->sequence)
            continue;
        if (!place_result(n, o, r, e->sequence, e->elements, e->bytes))
            link_break(no_result);
        words_forget(e);
    }
    if (has_results(n))
        end_operation(n, o);
}

/* ---- messages in --------------------------------------------------------------------------------------- */

/* The reader's own operation, or NULL. */
struct waiting {
    struct linked_name *name;
    const struct link_operation *o;
};

/* The last elements of the operation that the reader is in: they need no copy. */
static bool ends_operation(const struct waiting *w, const struct linked_name *n, uint32_t rank,
                           const struct link_message *m)
{
    return w && n == w->name && n->way == LINK_WHOLE && n->given == m->sequence && n->done != m->sequence &&
           w->o->sequence == m->sequence && memcmp(&m->op, &w->o->op, sizeof m->op) == 0 &&
           m->way == LINK_WHOLE && m->bytes == w->o->bytes && has_others(n, w->o, rank);
}

/* false: they wait for this rank's operation. */
static bool take_at_once(struct linked_name *n, uint32_t rank, const struct link_message *m,
                         const struct waiting *w)
{
    if (may_leave(n, m->sequence) ? words_have_left(n, m->sequence) : m->said != LINK_RESULT)
        return true; /* the operation goes to the engine, or has the rank's elements already */
    if (m->said == LINK_LEAVES) {
        words_leave(n, m->sequence);
        return true;
    }
    if (m->said == LINK_RESULT)
        return w && n == w->name &&
               place_result(n, w->o, rank, m->sequence, link_message_elements(m), m->bytes);
    if (!ends_operation(w, n, rank, m))
        return false;
    combine_elements(n, w->o, rank, link_message_elements(m));
    return true;
}

/* false: it has to wait, and all that comes behind it. */
static bool take_piece(uint32_t rank, const struct link_message *m)
{
    if (rank_link.streamed)
        return stream_take(rank, m);
    link_break(no_stream);
    return false;
}

static void take_word(uint32_t rank, const struct link_message *m, const struct waiting *w)
{
    char name[SHM_NAME_MAX + 1];
    struct linked_name *n = NULL;
    memcpy(name, m + 1, m->name);
    name[m->name] = '\0';
    if (m->said == LINK_STOPS)
        rank_link.stopped[rank] = rank_link.any_stopped = true;
    else
        n = w && strcmp(w->o->name, name) == 0 ? w->name : find_name(name);
    if (n && !take_at_once(n, rank, m, w))
        keep_elements(n, rank, m);
    else
        link_drop(rank);
}

/* Something has changed that other threads may wait for: by the bell, or one of them for the sockets. */
static void wake_threads(void)
{
    rank_link.stalled = false;
    if (rank_link.sleeps)
        link_wake();
    if (doorbell_has_sleeper(client.mailbox))
        doorbell_ring(client.mailbox);
}

static void take_messages(uint32_t rank, const struct waiting *w)
{
    const struct link_message *m;
    bool is_own = w && w->name == rank_link.streamed; /* its pieces are no news for others */
    bool news = stream_count(rank) && !is_own;
    while ((m = link_first(rank)) != NULL) {
        bool is_piece = link_is_piece(m);
        if (!is_piece)
            take_word(rank, m, w);
        else if (!take_piece(rank, m))
            break;
        news = news || !is_piece || !is_own;
        (void)stream_count(rank);
    }
    if (news)
        wake_threads();
}

/* That rank has sent the word that the reader waits for. */
static bool has_word(const struct waiting *w, uint32_t rank)
{
    return w && (w->name->done == w->o->sequence || has_come(w->name, rank, w->o->sequence));
}

/* Reads without waiting, until nothing is there or the reader has what it waits for. */
static void read_peer(uint32_t rank, const struct waiting *w)
{
    while (!has_word(w, rank) && link_receive(rank))
        take_messages(rank, w);
}

/* Reads for other threads, too. */
static void read_all(const struct waiting *w)
{
    for (uint32_t r = 0; r < link_ranks(); r++)
        read_peer(r, has_word(w, r) ? NULL : w);
}

/* Each look costs a call of the kernel, so a rank looks after one of its peers at a time. Returns which. */
static uint32_t read_next(const struct waiting *w)
{
    for (uint32_t i = 0; i < link_ranks(); i++) {
        rank_link.next = (rank_link.next + 1) % link_ranks();
        if (link_is_other(rank_link.next) && !has_word(w, rank_link.next))
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
    while (link_state() == LINK_UP && lacks_word(w->name, w->o->sequence) && has_word(w, read_next(w)))
        ;
}

/* ---- a stream ------------------------------------------------------------------------------------------ */

/* Until a piece of the rank can be summed, or all is read that is there. */
static bool read_pieces(uint32_t rank, const struct waiting *w)
{
    bool moved = false, more = true;
    while (more && link_receive(rank)) {
        take_messages(rank, w);
        moved = true;
        more = !stream_has_all(rank) && !stream_is_ahead(rank) && !link_is_drained(rank);
    }
    return moved;
}

/* true: there are free slots, for pieces that had to wait. */
static bool sum_pieces(const struct waiting *w)
{
    bool summed = stream_sum();
    for (uint32_t r = 0; summed && r < link_ranks(); r++)
        if (link_is_other(r))
            take_messages(r, w);
    return summed;
}

/* A message to each rank and one from each, in turns, as long as that is possible. Other threads have their
 * turns between the steps. */
static void move_stream(const struct waiting *w)
{
    bool moves = !rank_link.stalled;
    int rounds = 0;
    for (; moves && rounds < ROUNDS && link_state() == LINK_UP && !stream_is_complete(); rounds++) {
        moves = false;
        for (uint32_t i = 1; i < link_ranks(); i++) {
            uint32_t rank = ((uint32_t)client.rank + i) % link_ranks();
            moves = stream_send(rank) || moves;
            moves = read_pieces(rank, w) || moves;
        }
        moves = sum_pieces(w) || moves;
    }
    if (rounds > 1 && rank_link.sleeps)
        link_wake(); /* that thread may wait for too little now */
    rank_link.stalled = !moves;
}

/* ---- messages out -------------------------------------------------------------------------------------- */

/* The rank's socket is full. It may be sending too, as all others, so what comes is read meanwhile. A stream
 * goes on for the other ranks: they may need its pieces before they read. */
static void wait_for_room(uint32_t rank)
{
    struct pollfd p[LINK_HOSTS_MAX];
    poll(p, link_list(p, 1u << rank), SLICE_MS);
    rank_link.stalled = false;
    read_all(NULL);
    sum_pieces(NULL);
    for (uint32_t r = 0; r < link_ranks(); r++)
        if (link_is_other(r) && r != rank)
            (void)stream_send(r);
    if (region_poisoned(&client.region))
        link_break(NULL);
}

static void send_message(const struct link_out *out, uint32_t rank)
{
    size_t sent = 0;
    while (!stream_send_rest(rank) || !link_send(out, rank, &sent))
        wait_for_room(rank);
}

/* Each rank begins with the one behind itself, so that not all send to the same one. */
static void send_to_all(const struct link_out *out)
{
    for (uint32_t i = 1; i < link_ranks(); i++)
        send_message(out, ((uint32_t)client.rank + i) % link_ranks());
}

static void send_word(enum link_said said, const struct link_operation *o)
{
    struct link_out out;
    link_out_make(&out, &(struct link_words){.said = said}, o);
    send_to_all(&out);
}

/* A message with the part of `base` that belongs to the rank. */
static void make_message(struct link_out *out, enum link_said said, const struct link_operation *o,
                         const void *base, uint32_t part_of_rank)
{
    struct link_part part = part_of(o, part_of_rank);
    enum link_way way = way_of(o);
    struct link_words words = {said, way, (const uint8_t *)base + part.at,
                               way == LINK_STREAM ? 0 : part.bytes};
    link_out_make(out, &words, o);
}

static void send_elements(const struct link_operation *o)
{
    struct link_out out;
    enum link_way way = way_of(o);
    bool is_made = false;
    for (uint32_t i = 1; i < link_ranks(); i++) {
        uint32_t rank = ((uint32_t)client.rank + i) % link_ranks();
        if (!link_way_takes(way, rank, root_of(o->sequence)))
            continue;
        if (!is_made || way == LINK_PARTS)
            make_message(&out, LINK_ELEMENTS, o, o->in, rank);
        is_made = true;
        send_message(&out, rank);
    }
}

/* Makes this rank's part of the result. */
static void send_result(struct linked_name *n, const struct link_operation *o)
{
    struct link_out out;
    struct link_part part = part_of(o, (uint32_t)client.rank);
    reduce_part(n, o, &part, UINT32_MAX, NULL);
    n->made = o->sequence;
    make_message(&out, LINK_RESULT, o, o->out, (uint32_t)client.rank);
    send_to_all(&out);
}

static void say_stop(void)
{
    if (rank_link.stops)
        return;
    rank_link.stops = true;
    send_word(LINK_STOPS, NULL);
}

void rank_link_stop(void)
{
    if (!rank_link_is_possible())
        return;
    lock_link();
    link_open(true);
    if (link_state() == LINK_UP)
        say_stop();
    unlock_link();
}

/* ---- an operation -------------------------------------------------------------------------------------- */

/* An operation whose caller waits later goes in one trip, or not at all. There is one stream at a time: a
 * name that comes beside another one leaves for good, as it would again and again. */
static bool can_go(const struct link_operation *o)
{
    if (way_of(o) == LINK_STREAM)
        return !o->waits_later && !rank_link.streamed;
    return !o->waits_later || o->bytes <= (link_ranks() > 2 ? LINK_WHOLE_MAX : LINK_BYTES_MAX);
}

static void give_elements(struct linked_name *n, const struct link_operation *o)
{
    n->way = way_of(o);
    n->given = o->sequence;
    n->results = 0;
    if (n->way == LINK_STREAM)
        rank_link.streamed = n;
    if (!link_way_takes(n->way, (uint32_t)client.rank, root_of(o->sequence)))
        n->made = o->sequence;
    send_elements(o); /* meanwhile another rank may say that the name leaves */
}

static bool begin_operation(struct linked_name **linked, const struct link_operation *o, bool fits)
{
    link_open(false);
    if (!rank_link.looked && !rank_link.sleeps)
        read_next(NULL); /* a rank that only sends must not fill the socket of one that does so too */
    rank_link.looked = false;
    if (rank_link.any_stopped)
        say_stop();
    if (link_state() == LINK_NONE || rank_link.stops) {
        if (*linked)
            words_leave(*linked, o->sequence);
        return false;
    }
    if (!*linked)
        *linked = find_name(o->name);
    struct linked_name *n = *linked;
    if (!n || n->left)
        return false;
    if (link_state() == LINK_BROKEN)
        return true; /* another rank may wait for this one here: nobody goes on */
    bool is_late = !n->takes && o->sequence != LINK_FIRST; /* all ranks had to begin with that one */
    fits = fits && can_go(o);
    if (!fits || is_late)
        words_leave(n, o->sequence);
    if (is_late)
        return false;
    n->takes = fits;
    if (fits)
        give_elements(n, o);
    else
        send_word(LINK_LEAVES, o);
    return fits;
}

bool rank_link_begin(struct linked_name **linked, const struct link_operation *o, bool fits)
{
    if (o->sequence < LINK_FIRST || (*linked && (*linked)->left))
        return false;
    lock_link();
    bool goes = begin_operation(linked, o, fits);
    unlock_link();
    return goes;
}

/* All ranks have agreed: none leaves the operation any more. */
static void begin_stream(struct linked_name *n, const struct link_operation *o)
{
    const struct waiting w = {n, o};
    words_drop(n, o->sequence % 2, link_ranks());
    n->made = o->sequence;
    if (!stream_begin(o))
        link_break(no_memory);
    for (uint32_t r = 0; r < link_ranks(); r++)
        if (link_is_other(r))
            take_messages(r, &w);
    wake_threads();
    move_stream(&w);
}

static void end_stream(struct linked_name *n)
{
    if (rank_link.streamed != n)
        return;
    stream_end();
    rank_link.streamed = NULL;
}

/* The name's elements have all come, or a message shows that there will be no result. */
static void try_to_end(struct linked_name *n, const struct link_operation *o)
{
    for (uint32_t r = 0; r < link_ranks() && may_leave(n, o->sequence); r++) {
        const struct early *e = words_elements(n, r, o->sequence);
        if (e && !is_same(e, o))
            words_leave(n, o->sequence); /* the other ranks see the same, or the root tells them */
    }
    if (n->given != o->sequence || n->done == o->sequence)
        return;
    if (n->made != o->sequence && !has_left(n, o->sequence) && has_others(n, o, UINT32_MAX)) {
        if (n->way == LINK_WHOLE)
            combine_elements(n, o, UINT32_MAX, NULL);
        else if (n->way == LINK_STREAM)
            begin_stream(n, o);
        else
            send_result(n, o);
    }
    if (is_streaming(n, o->sequence) && stream_is_complete() && link_state() == LINK_UP)
        end_operation(n, o);
    else if (n->made == o->sequence && n->way != LINK_STREAM)
        take_results(n, o);
}

static enum link_step decide_step(struct linked_name *n, const struct link_operation *o)
{
    try_to_end(n, o);
    if (n->done == o->sequence) {
        end_stream(n);
        return LINK_ENDED;
    }
    bool is_told = link_state() == LINK_UP && !lacks_word(n, o->sequence);
    if (may_leave(n, o->sequence) && (has_left(n, o->sequence) || is_told)) {
        words_leave(n, o->sequence);
        end_stream(n);
        if (may_be_root(o) && link_state() == LINK_UP)
            send_word(LINK_LEAVES, o);
        for (uint32_t slot = 0; slot < EARLY_SLOTS; slot++)
            words_drop(n, slot, link_ranks());
        return LINK_TO_ENGINE;
    }
    if (link_state() == LINK_BROKEN)
        link_tell_loss();
    return LINK_WAITS;
}

enum link_step rank_link_step(struct linked_name *linked, const struct link_operation *o)
{
    struct waiting w = {linked, o};
    lock_link();
    rank_link.looked = true;
    if (is_streaming(linked, o->sequence))
        move_stream(&w);
    else if (lacks_word(linked, o->sequence) && !rank_link.sleeps)
        read_lacking(&w);
    if (rank_link.any_stopped)
        say_stop();
    enum link_step step = decide_step(linked, o);
    unlock_link();
    return step;
}

bool rank_link_sleep(const struct linked_name *linked, uint32_t sequence, unsigned ms)
{
    struct pollfd p[LINK_HOSTS_MAX + 1];
    lock_link();
    nfds_t n = link_list(p, stream_to_send());
    p[n++] = link_bell();
    bool is_up = link_state() == LINK_UP, mine = is_up && !rank_link.sleeps;
    bool moves = is_streaming(linked, sequence) && !rank_link.stalled;
    bool is_here = is_up && (moves || !lacks_word(linked, sequence)); /* another thread has just read it */
    rank_link.sleeps = rank_link.sleeps || (mine && !is_here);
    unlock_link();
    if (!mine || is_here)
        return is_here;
    poll(p, n, ms < SLICE_MS ? (int)ms : SLICE_MS);
    lock_link();
    link_woke();
    rank_link.sleeps = rank_link.stalled = false;
    rank_link.slept = true;
    unlock_link();
    if (doorbell_has_sleeper(client.mailbox))
        doorbell_ring(client.mailbox); /* another thread may look after the sockets now */
    return true;
}

bool rank_link_is_streaming(const struct linked_name *linked, uint32_t sequence)
{
    return is_streaming(linked, sequence);
}

void rank_link_abandon(struct linked_name *linked)
{
    lock_link();
    if (rank_link.streamed == linked) {
        end_stream(linked);
        if (link_state() == LINK_UP)
            link_break(NULL);
    }
    unlock_link();
}

bool rank_link_is_unwatched(void)
{
    lock_link();
    bool is = link_state() == LINK_UP && !rank_link.sleeps;
    unlock_link();
    return is;
}

void rank_link_drain(void)
{
    if (!rank_link_is_possible() || pthread_mutex_trylock(&rank_link.lock) != 0)
        return; /* its holder may read; if not, the next look does */
    if (atomic_load_explicit(&client.region.header->rank_link, memory_order_relaxed) == SHM_RANK_LINK_UP)
        link_open(false); /* the others may be sending */
    if (!rank_link.sleeps)
        read_all(NULL);
    rank_link.stalled = false; /* a part of a piece may have come, and perhaps nobody waits for room */
    unlock_link();
}
