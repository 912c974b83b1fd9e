/* Questions of the workers, and the connections that they come on.
 *
 * A connection is a stranger until its HELLO was accepted: same user, the job's token, a rank of this host
 * that has not joined, this epoch. A question is answered at once, but a question about a GPU may be answered
 * later. A message that may not come closes the connection. In an elastic job a hello waits for a membership
 * that has the worker. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "collectives/engine/engine.h"
#include "collectives/engine/forget.h"
#include "collectives/engine/gpu/gpu.h"
#include "collectives/engine/joins.h"
#include "collectives/engine/membership.h"
#include "collectives/engine/names.h"
#include "collectives/engine/rank_link.h"
#include "collectives/engine/reinit.h"
#include "collectives/engine/sets.h"
#include "collectives/engine/workers.h"
#include "collectives/shm/numbers.h"
#include "common/base/log.h"
#include "common/base/secret.h"

#define ABORT_TEXT_MAX 301 /* bytes of a rank's sentence */

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

/* ---- questions ----------------------------------------------------------------------------------------- */

static int refuse_question(struct worker_message *answer, int status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static int refuse_question(struct worker_message *answer, int status, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(answer->text, sizeof answer->text, fmt, args);
    va_end(args);
    return status;
}

/* Puts the sentence of *e, if there is one, into the answer. Returns `status`. */
static int answer_with(struct worker_message *answer, int status, const struct err *e)
{
    return e->code == ERR_NONE ? status : refuse_question(answer, status, "%s", e->text);
}

/* A descriptor that becomes readable when the peer ends; it names the process that connected even if its id
 * is reused. */
static int peer_pidfd(int socket, uint32_t pid)
{
    int fd;
    socklen_t len = sizeof fd;
    if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &fd, &len) == 0)
        return fd;
    return (int)syscall(SYS_pidfd_open, pid, 0);
}

static bool is_ours(const struct engine *engine, const struct worker_message *q, const struct ucred *peer)
{
    return peer->uid == geteuid() && secret_equal(q->token, engine->workers.token, WORKER_TOKEN_SIZE);
}

static int refuse_stranger(struct worker_message *a)
{
    return refuse_question(a, HVD_ERR_SYSTEM,
                           "this process does not belong to the job: its HVD_JOB_TOKEN is another one's");
}

static int check_hello(const struct engine *engine, const struct worker_message *q, const struct ucred *peer,
                       struct worker_message *a)
{
    uint32_t member = region_member(&engine->region, q->rank);
    if (!is_ours(engine, q, peer))
        return refuse_stranger(a);
    if (q->epoch - engine->epoch <= 1 && region_poisoned(&engine->region))
        return region_poison_read(&engine->region, a->text, sizeof a->text); /* and there is no next one */
    if (q->epoch != engine->epoch)
        return refuse_question(a, HVD_ERR_SYSTEM, "HVD_EPOCH is %u, the job is at %u", q->epoch,
                               engine->epoch);
    char ranks[96];
    if (member >= engine->workers.members)
        return refuse_question(a, HVD_ERR_SYSTEM, "rank %u is not one of this host (%s)", q->rank,
                               ranks_text(engine->region.rank, engine->workers.members, ranks, sizeof ranks));
    if (engine->workers.member[member].joined && engine->workers.member[member].epoch != engine->epoch &&
        !engine->workers.member[member].shut_down)
        return refuse_question(a, HVD_ERR_SYSTEM, "rank %u has not left epoch %u", q->rank,
                               engine->workers.member[member].epoch);
    if (engine->workers.member[member].joined && engine->workers.member[member].epoch == engine->epoch)
        return refuse_question(a, HVD_ERR_SYSTEM, "rank %u has joined the job already, as process %u",
                               q->rank, engine->workers.member[member].pid);
    return HVD_SUCCESS;
}

/* The connection becomes the member's. */
static int seat_worker(struct engine *engine, struct worker *w, struct member *m, uint32_t pid,
                       struct worker_message *a)
{
    struct err e = ERR_INIT;
    if (workers_watch_process(engine, m, peer_pidfd(w->watch.fd, pid), pid, &e) != 0)
        return refuse_question(a, HVD_ERR_SYSTEM, "process %u cannot be watched", pid);
    m->joined = true;
    m->shut_down = false;
    m->epoch = engine->epoch;
    m->forgot = 0;
    m->worker = w;
    w->member = (uint32_t)(m - engine->workers.member);
    engine_gpus_begin(engine, w->member);
    return HVD_SUCCESS;
}

/* Of the members of this host. */
static void describe_place(const struct engine *engine, uint32_t member, struct worker_message *a)
{
    const struct host *here = &engine->host[engine->self];
    struct worker_place place = {.rank = (int32_t)here->rank[member],
                                 .size = (int32_t)engine->size,
                                 .local_rank = (int32_t)member,
                                 .local_size = (int32_t)here->ranks,
                                 .membership = engine->epoch};
    for (uint32_t h = 0; h < engine->hosts; h++) {
        place.cross_size += engine->host[h].ranks > member;
        place.cross_rank += h < engine->self && engine->host[h].ranks > member;
    }
    memcpy(a->text, &place, sizeof place);
}

/* The answer to a worker that waits; false: the worker waits on. */
static bool take_seat(struct engine *engine, struct worker *w, struct worker_message *a)
{
    uint32_t rank = engine_rank_of(engine, w->number), member = UINT32_MAX;
    struct ucred peer;
    socklen_t len = sizeof peer;
    if (rank != UINT32_MAX)
        member = region_member(&engine->region, rank);
    if (member < engine->workers.members) {
        struct member *m = &engine->workers.member[member];
        bool taken = m->joined && m->epoch == engine->epoch;
        if (w->left >= engine->epoch || taken || region_poisoned(&engine->region))
            return false; /* the next membership has the worker, or the launcher ends it */
        if (getsockopt(w->watch.fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) != 0)
            a->status = refuse_question(a, HVD_ERR_SYSTEM, "the peer's credentials cannot be read");
        else
            a->status = seat_worker(engine, w, m, (uint32_t)peer.pid, a);
        if (a->status == HVD_SUCCESS)
            describe_place(engine, member, a);
        return true;
    }
    if (w->left == 0 || w->left >= engine->epoch)
        return false;
    a->status = refuse_question(a, HVD_ERR_LEFT, "this worker is not among the %u ranks of membership %u",
                                engine->membership->alone ? 0 : engine->size, engine->epoch);
    return true;
}

/* The descriptors that a member gets; returns their number. */
static unsigned seat_fds(const struct engine *engine, int status, int fds[WORKER_HELLO_FDS])
{
    fds[0] = engine->region_fd;
    fds[1] = engine->loop.kick.fd;
    return status == HVD_SUCCESS ? WORKER_HELLO_FDS : 0;
}

static void tell_of_wait(struct engine *engine, const struct worker *w)
{
    log_debug("worker %u waits, having left membership %u", w->number, w->left);
    Hvd__Engine message = HVD__ENGINE__INIT;
    Hvd__EngineRank waits = HVD__ENGINE_RANK__INIT;
    struct err e = ERR_INIT;
    waits.rank = w->number;
    waits.membership = w->left;
    message.body_case = HVD__ENGINE__BODY_WAITS;
    message.waits = &waits;
    if (engine_send(engine, &message, &e) != 0)
        log_warning("%s", e.text);
}

/* A worker of an elastic job calls hvd_init. */
static int wait_for_seat(struct engine *engine, struct worker *w, const struct worker_message *q,
                         struct worker_message *a)
{
    if (q->id != 1)
        return refuse_question(a, HVD_ERR_SYSTEM, "this program's libhvd knows no elastic jobs");
    w->number = q->rank;
    w->left = q->epoch;
    w->waits = true;
    tell_of_wait(engine, w);
    if (take_seat(engine, w, a)) {
        w->waits = false;
        return a->status;
    }
    return HVD_SUCCESS;
}

static int welcome_worker(struct engine *engine, struct worker *w, const struct worker_message *q,
                          struct worker_message *a)
{
    struct ucred peer;
    socklen_t len = sizeof peer;
    struct err e = ERR_INIT;
    if (getsockopt(w->watch.fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) != 0)
        return refuse_question(a, HVD_ERR_SYSTEM, "the peer's credentials cannot be read");
    if (engine->membership)
        return is_ours(engine, q, &peer) ? wait_for_seat(engine, w, q, a) : refuse_stranger(a);
    if (is_ours(engine, q, &peer) && q->epoch == engine->epoch + 1 && reinit_begin(engine, &e) != 0)
        log_debug("no next epoch: %s", e.text); /* the check says so to the rank */
    int status = check_hello(engine, q, &peer, a);
    if (status != HVD_SUCCESS)
        return status;
    struct member *m = &engine->workers.member[region_member(&engine->region, q->rank)];
    rank_link_welcome(engine, q);
    return seat_worker(engine, w, m, (uint32_t)peer.pid, a);
}

static void tell_session(struct engine *engine, Hvd__EngineRank *rank, Hvd__Engine__BodyCase what)
{
    Hvd__Engine message = HVD__ENGINE__INIT;
    struct err e = ERR_INIT;
    rank->membership = engine->membership ? engine->epoch : 0;
    message.body_case = what;
    if (what == HVD__ENGINE__BODY_INITIALIZED)
        message.initialized = rank;
    else if (what == HVD__ENGINE__BODY_STAGE)
        message.stage = rank;
    else
        message.shut_down = rank;
    if (engine_send(engine, &message, &e) != 0)
        log_warning("%s", e.text);
}

/* stage: of hvd_stage, else 0. */
static void tell_of_member(struct engine *engine, uint32_t member, uint32_t stage, Hvd__Engine__BodyCase what)
{
    Hvd__EngineRank rank = HVD__ENGINE_RANK__INIT;
    rank.rank = engine_worker_of(engine, engine->region.rank[member]);
    rank.pid = engine->workers.member[member].pid;
    rank.stage = stage;
    tell_session(engine, &rank, what);
}

static int get_segment(const struct engine *engine, uint32_t id, struct worker_message *a, int *fd)
{
    if (id >= ENGINE_SEGMENTS_MAX || engine->names.segment[id].fd < 0)
        return refuse_question(a, HVD_ERR_INVALID, "there is no tensor segment %u", id);
    *fd = engine->names.segment[id].fd;
    return HVD_SUCCESS;
}

static int add_segment(struct engine *engine, struct worker *w, struct worker_message *a)
{
    int fd = w->reader.number_of_fds == 1 ? w->reader.fds[0] : -1;
    if (fd < 0)
        return refuse_question(a, HVD_ERR_INVALID, "a tensor segment came without its descriptor");
    w->reader.fds[0] = -1;
    struct err e = ERR_INIT;
    int status = segments_add(engine, w->member, fd, &a->id, &e);
    return answer_with(a, status, &e);
}

static int add_set(struct engine *engine, const struct worker *w, const struct worker_message *q,
                   struct worker_message *a)
{
    struct err e = ERR_INIT;
    size_t n = q->id;
    uint32_t few[WORKER_NUMBERS_MAX], *many = NULL;
    if (n == 0 && w->reader.number_of_fds == 1)
        many = numbers_read(w->reader.fds[0], engine->size, &n);
    if (!many && (q->id == 0 || q->id > WORKER_NUMBERS_MAX))
        return refuse_question(a, HVD_ERR_INVALID, "a process set came without its ranks");
    if (!many)
        memcpy(few, q->text, n * sizeof *few);
    int status = sets_add(engine, q->set, w->member, many ? many : few, (uint32_t)n, &e);
    free(many);
    return answer_with(a, status, &e);
}

/* The ranks of a new set that stand behind a name. */
static int add_set_behind(struct engine *engine, const struct worker *w, const struct worker_message *q,
                          struct err *e)
{
    uint32_t rank[WORKER_BEHIND_MAX];
    size_t at = strlen(q->text) + 1;
    if (q->id == 0)
        return HVD_SUCCESS;
    if (q->id > WORKER_BEHIND_MAX || at > SHM_TEXT_MAX - q->id * sizeof *rank) {
        err_set(e, ERR_PROTOCOL, "a process set came without its ranks");
        return HVD_ERR_INVALID;
    }
    memcpy(rank, q->text + at, q->id * sizeof *rank);
    return sets_add(engine, q->set, w->member, rank, q->id, e);
}

static int name_slot(struct engine *engine, const struct worker *w, const struct worker_message *q,
                     struct worker_message *a)
{
    struct err e = ERR_INIT;
    int status = add_set_behind(engine, w, q, &e);
    if (status != HVD_SUCCESS)
        return answer_with(a, status, &e);
    struct set *set = sets_find(engine, q->set);
    if (!set && q->set < 0)
        return refuse_question(a, HVD_ERR_MEMORY,
                               "no room for what two ranks send each other (at most %u pairs)",
                               ENGINE_PAIRS_MAX);
    if (!set)
        return refuse_question(a, HVD_ERR_SET_UNKNOWN, "there is no process set %d", q->set);
    if (team_index(set->team, engine->region.rank[w->member]) == UINT32_MAX)
        return refuse_question(a, HVD_ERR_SET_FOREIGN, "rank %u is not in process set %d",
                               engine->region.rank[w->member], q->set);
    status = forget_for(engine, set, q->text, &a->id, &e);
    if (status == HVD_SUCCESS)
        forget_hold(engine, a->id, w->member);
    else if (a->id == SHM_SLOTS && forget_more(engine, w->member, q->epoch, &a->epoch))
        return HVD_SUCCESS;
    return answer_with(a, status, &e);
}

/* The slot may be another name's by now: then there is nothing to tell. */
static void tell_name(const struct engine *engine, const struct worker *w, uint32_t slot,
                      struct worker_message *a)
{
    const struct name *n = slot < engine->names.count ? &engine->names.name[slot] : NULL;

    if (!n || !n->text || team_index(n->set->team, engine->region.rank[w->member]) == UINT32_MAX)
        return;
    a->set = n->set->team->id;
    snprintf(a->text, sizeof a->text, "%s", n->text);
}

/* A rank that lives cannot go on: the others would wait for its part. */
static void member_failed(struct engine *engine, uint32_t member, const char *why)
{
    uint32_t rank = engine->region.rank[member];
    char text[SHM_TEXT_MAX];
    snprintf(text, sizeof text, "rank %u on %.100s (pid %u) %.300s", rank, engine_host_of(engine, rank),
             engine->workers.member[member].pid, why);
    engine_poison_by(engine, rank, HVD_ERR_PEER, text);
}

/* A rank that has failed and lives: it is the cause, and ends with a status of its own. */
static void member_gives_up(struct engine *engine, uint32_t member, const char *said)
{
    uint32_t rank = engine->region.rank[member];
    char why[ABORT_TEXT_MAX], text[SHM_TEXT_MAX];

    snprintf(why, sizeof why, "%.*s", (int)sizeof why - 1, *said ? said : "it did not say why");
    log_printable(why);
    snprintf(text, sizeof text, "rank %u on %.100s (pid %u) gave up: %s", rank, engine_host_of(engine, rank),
             engine->workers.member[member].pid, why);
    engine_gave_up(engine, rank, why, text);
}

static void log_note(const struct engine *engine, uint32_t member, const struct worker_message *q)
{
    uint32_t rank = engine->region.rank[member];
    char text[SHM_TEXT_MAX];
    snprintf(text, sizeof text, "%.*s", (int)sizeof text - 1, q->text);
    log_printable(text);
    if (q->id == LOG_WARNING || q->id == LOG_ERROR)
        log_at((enum log_level)q->id, "rank %u on %.100s: %s", rank, engine_host_of(engine, rank), text);
    else
        log_info("%s", text);
}

static void member_enters(struct engine *engine, uint32_t member)
{
    engine->started = true;
    tell_of_member(engine, member, 0, HVD__ENGINE__BODY_INITIALIZED);
}

static void member_leaves(struct engine *engine, uint32_t member)
{
    engine->workers.member[member].shut_down = true;
    tell_of_member(engine, member, 0, HVD__ENGINE__BODY_SHUT_DOWN);
    if (workers_have_left(engine))
        engine_parts_left(engine);
}

/* A worker whose membership is over here leaves it. */
static int leave_former(struct engine *engine, struct worker *w, struct worker_message *answer)
{
    Hvd__EngineRank rank = HVD__ENGINE_RANK__INIT;
    struct err e = ERR_INIT;
    rank.rank = w->number;
    if (w->reader.message.type != WORKER_SHUT_DOWN)
        return -1;
    tell_session(engine, &rank, HVD__ENGINE__BODY_SHUT_DOWN);
    return worker_send(w->watch.fd, answer, NULL, 0, &e);
}

/* Words that a member tells of itself; the answer is empty. */
static bool hear_news(struct engine *engine, const struct worker *w, const struct worker_message *q)
{
    switch (q->type) {
    case WORKER_INITIALIZED:
        member_enters(engine, w->member);
        return true;
    case WORKER_FAILED:
        member_failed(engine, w->member, q->text);
        return true;
    case WORKER_ABORT:
        member_gives_up(engine, w->member, q->text);
        return true;
    case WORKER_NOTE:
        log_note(engine, w->member, q);
        return true;
    case WORKER_STAGE:
        if (engine->membership)
            tell_of_member(engine, w->member, q->id, HVD__ENGINE__BODY_STAGE);
        return true;
    case WORKER_SHUT_DOWN:
        member_leaves(engine, w->member);
        return true;
    default:
        return false;
    }
}

/* Answers the question in the worker's reader, if not later. -1: close the connection. */
static int answer_question(struct engine *engine, struct worker *w)
{
    const struct worker_message *q = &w->reader.message;
    struct worker_message a = {.tag = WORKER_MESSAGE_TAG, .type = q->type};
    int fds[WORKER_HELLO_FDS] = {-1, -1};
    unsigned number = 0;
    struct err e = ERR_INIT;
    if (w->former)
        return leave_former(engine, w, &a);
    if ((q->type == WORKER_HELLO) != (w->member == WORKER_STRANGER) || w->waits)
        return -1;
    switch (q->type) {
    case WORKER_HELLO:
        a.status = welcome_worker(engine, w, q, &a);
        if (w->waits)
            return 0;
        number = seat_fds(engine, a.status, fds);
        break;
    case WORKER_NAME:
        a.status = name_slot(engine, w, q, &a);
        break;
    case WORKER_ADD_SET:
        a.status = add_set(engine, w, q, &a);
        break;
    case WORKER_REMOVE_SET:
        sets_remove(engine, q->set, w->member);
        break;
    case WORKER_SLOT:
        tell_name(engine, w, q->id, &a);
        break;
    case WORKER_FORGET:
        if (q->id > WORKER_NUMBERS_MAX)
            return -1;
        forget_given(engine, w->member, q);
        break;
    case WORKER_JOIN:
        if (q->id > WORKER_REFUSES)
            return -1;
        joins_member(engine, w->member, (enum worker_join)q->id);
        break;
    case WORKER_ADD_SEGMENT:
        a.status = add_segment(engine, w, &a);
        break;
    case WORKER_GET_SEGMENT:
        a.status = get_segment(engine, q->id, &a, &fds[0]);
        number = a.status == HVD_SUCCESS;
        break;
    case WORKER_FLIGHT:
        fds[0] = flight_give(engine, &a);
        number = fds[0] >= 0;
        break;
    case WORKER_RANK_LINK:
        rank_link_ask(engine, q);
        return 0;
    default: /* WORKER_DEVICE_...: worker_receive lets no other type through */
        if (!hear_news(engine, w, q) && !engine_gpus_answer(engine, w->member, &w->reader, &a))
            return 0;
    }
    if (worker_send(w->watch.fd, &a, fds, number, &e) != 0)
        return -1;
    return w->member == WORKER_STRANGER ? -1 : 0;
}

/* ---- elastic jobs -------------------------------------------------------------------------------------- */

/* Answers workers that wait and that the membership has; and those that it has not any more. */
static void seat_waiting(struct engine *engine)
{
    for (uint32_t i = 0; i < engine->workers.connections; i++) {
        struct worker *w = &engine->workers.connection[i];
        struct worker_message a = {.tag = WORKER_MESSAGE_TAG, .type = WORKER_HELLO};
        int fds[WORKER_HELLO_FDS];
        struct err e = ERR_INIT;
        if (w->watch.fd < 0 || !w->waits || !take_seat(engine, w, &a))
            continue;
        w->waits = false;
        unsigned number = seat_fds(engine, a.status, fds);
        if (worker_send(w->watch.fd, &a, fds, number, &e) != 0 || number == 0)
            workers_drop(engine, w);
    }
}

static void seat_if_due(struct engine *engine, struct turn *turn)
{
    (void)turn;
    if (__builtin_expect(!engine->membership, 1) || !engine->membership->seats)
        return;
    engine->membership->seats = false;
    seat_waiting(engine);
}

const struct engine_part questions_part = {.progress = seat_if_due};

/* ---- connections --------------------------------------------------------------------------------------- */

static void worker_ready(struct engine *engine, struct watch *watch, uint32_t events)
{
    struct worker *w = (struct worker *)watch;
    struct err e = ERR_INIT;
    (void)events;
    int rc;
    while ((rc = worker_receive(watch->fd, &w->reader, &e)) == 1) {
        if (answer_question(engine, w) != 0) {
            rc = -1;
            break;
        }
        worker_reader_reset(&w->reader);
    }
    if (rc < 0)
        workers_drop(engine, w);
}

void workers_accept(struct engine *engine, struct watch *watch, uint32_t events)
{
    struct err e = ERR_INIT;
    (void)events;
    int fd;
    while ((fd = accept4(watch->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0) {
        struct worker *w = NULL;
        for (uint32_t i = 0; i < engine->workers.connections && !w; i++)
            if (engine->workers.connection[i].watch.fd < 0)
                w = &engine->workers.connection[i];
        if (!w) {
            close(fd); /* more connections than all ranks of this host and a few strangers can have */
            continue;
        }
        *w = (struct worker){.watch = {fd, worker_ready}, .member = WORKER_STRANGER};
        if (engine_watch(engine, &w->watch, EPOLLIN, &e) != 0)
            workers_drop(engine, w);
    }
    if (errno == EMFILE || errno == ENFILE) {
        char text[SHM_TEXT_MAX];
        snprintf(text, sizeof text, "the engine on %.100s has no descriptors left (%s)",
                 engine->host[engine->self].name,
                 errno == EMFILE ? "RLIMIT_NOFILE, ulimit -Hn" : "fs.file-max");
        engine_unwatch(engine, watch); /* it would be ready for ever */
        close(watch->fd);              /* workers that were not accepted would wait */
        watch->fd = -1;
        log_error("%s", text);
        engine_poison(engine, HVD_ERR_SYSTEM, text);
    }
}
