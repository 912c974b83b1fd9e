/* Operations of several ranks, after the library has gathered the ranks of this host: fence, connect,
 * disconnect and the making and ending of groups are each one gather of tree.h among the participants' hosts.
 *
 * Each host brings its status and the library's blob; each gets all blobs one after the other and the first
 * bad status. An operation ends early, on all hosts, by its time-out on one host, and when a participant has
 * died before it came. Only the participant's host knows whether the participant came before it died, so that
 * host is asked. Its answer travels behind its part of the gather: after the answer "no" the operation may
 * end. */
#include "agent/rendezvous/pmix_server/pmix_server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/rendezvous/pmix_server/upcall_queue.h"
#include "common/base/buf.h"
#include "common/base/log.h"

struct collective {
    struct upcall item;
    struct collective *next;
    char *id;              /* kind, name of a group, and participants: "fence:0-3,7-7,", "group=name:0-3," */
    uint32_t *rank, *host; /* ascending */
    size_t ranks, hosts;
    uint8_t *blob; /* status, length and the library's bytes */
    size_t len;
    uint64_t timeout_ms, handle;
    uint32_t round;    /* the number of operations of this id that this host has joined, with this one */
    uint32_t asked_of; /* the dead rank about which its host was asked last */
    struct pmix_clock *clock;
    void (*finish)(struct collective *c, pmix_status_t status, uint8_t *data, size_t len);
    union {
        pmix_modex_cbfunc_t modex;
        pmix_op_cbfunc_t op;
        pmix_info_cbfunc_t info;
    } done;
    void *ctx;
    bool wants_context; /* of a group: a number of its own */
};

static void free_collective(struct collective *c)
{
    free(c->id);
    free(c->rank);
    free(c->host);
    free(c->blob);
    free(c);
}

/* ---- joined operations --------------------------------------------------------------------------------- */

/* How often this host has joined the operations of an id. The number tells operations of one id apart, and
 * another host learns from it whether a rank that has died had come to an operation. An id is kept while it
 * may come again: a set of participants for the whole job, a group until its end. */
struct joined {
    struct joined *next;
    uint32_t count, refused; /* operations joined; operations that this host has said it will never join */
    char id[];
};

static struct joined **find_joined(const char *id)
{
    struct joined **at = &pmix_server.joined;
    while (*at && strcmp((*at)->id, id) != 0)
        at = &(*at)->next;
    return at;
}

/* Makes the entry when there is none; NULL without memory. */
static struct joined *get_joined(const char *id)
{
    struct joined *j = *find_joined(id);
    if (j)
        return j;
    j = malloc(sizeof *j + strlen(id) + 1);
    if (!j)
        return NULL;
    j->next = pmix_server.joined;
    j->count = j->refused = 0;
    memcpy(j->id, id, strlen(id) + 1);
    return pmix_server.joined = j;
}

/* All hosts forget the id alike, and so do the gathers. */
static void forget_joined(const char *id)
{
    struct joined **at = find_joined(id), *j = *at;
    if (!j)
        return;
    *at = j->next;
    pmix_tree_forget(id, strlen(id));
    free(j);
}

/* ---- participants -------------------------------------------------------------------------------------- */

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static size_t sort_unique(uint32_t *n, size_t count)
{
    size_t kept = 0;
    qsort(n, count, sizeof *n, by_number);
    for (size_t i = 0; i < count; i++)
        if (i == 0 || n[i] != n[kept - 1])
            n[kept++] = n[i];
    return kept;
}

static pmix_status_t find_ranks(struct collective *c, const pmix_proc_t procs[], size_t count)
{
    const Hvd__Spawn *spawn = pmix_server.r->spawn;
    c->rank = malloc((count > spawn->size ? count : spawn->size) * sizeof *c->rank);
    if (!c->rank)
        return PMIX_ERR_NOMEM;
    for (size_t i = 0; i < count; i++) {
        if (!pmix_is_ours(procs[i].nspace) ||
            (procs[i].rank >= spawn->size && procs[i].rank != PMIX_RANK_WILDCARD))
            return PMIX_ERR_NOT_FOUND;
        if (procs[i].rank != PMIX_RANK_WILDCARD) {
            c->rank[c->ranks++] = procs[i].rank;
            continue;
        }
        for (c->ranks = 0; c->ranks < spawn->size; c->ranks++)
            c->rank[c->ranks] = (uint32_t)c->ranks;
        return PMIX_SUCCESS;
    }
    c->ranks = sort_unique(c->rank, c->ranks);
    return c->ranks ? PMIX_SUCCESS : PMIX_ERR_BAD_PARAM;
}

static pmix_status_t find_hosts(struct collective *c)
{
    c->host = malloc(c->ranks * sizeof *c->host);
    if (!c->host)
        return PMIX_ERR_NOMEM;
    for (size_t i = 0; i < c->ranks; i++)
        c->host[i] = rendezvous_host_of(pmix_server.r, c->rank[i]);
    c->hosts = sort_unique(c->host, c->ranks);
    return PMIX_SUCCESS;
}

/* Ranks as ranges. A list that is too long for an id is replaced by a hash. */
static pmix_status_t make_id(struct collective *c, const char *kind)
{
    size_t size = TREE_ID_MAX, at = (size_t)snprintf(NULL, 0, "%s:", kind);
    uint64_t sum = 1469598103934665603u, other = 88172645463325252u;
    if (at + 64 > size)
        return PMIX_ERR_BAD_PARAM;
    c->id = malloc(size);
    if (!c->id)
        return PMIX_ERR_NOMEM;
    snprintf(c->id, size, "%s:", kind);
    size_t from = at;
    for (size_t i = 0; i < c->ranks; i++) {
        size_t last = i;
        while (last + 1 < c->ranks && c->rank[last + 1] == c->rank[last] + 1)
            last++;
        sum = (sum ^ c->rank[i]) * 1099511628211u;
        other = (other ^ c->rank[last]) * 6364136223846793005u + 1;
        if (at < size)
            at += (size_t)snprintf(c->id + at, size - at, "%u-%u,", c->rank[i], c->rank[last]);
        i = last;
    }
    if (at >= size)
        snprintf(c->id + from, size - from, "#%zu.%016llx%016llx", c->ranks, (unsigned long long)sum,
                 (unsigned long long)other);
    return PMIX_SUCCESS;
}

static bool takes_part(const struct collective *c, uint32_t rank)
{
    return bsearch(&rank, c->rank, c->ranks, sizeof rank, by_number) != NULL;
}

/* ---- the end ------------------------------------------------------------------------------------------- */

static void end_collective(struct collective *c, pmix_status_t status, uint8_t *data, size_t len)
{
    struct collective **at = &pmix_server.collective;
    while (*at && *at != c)
        at = &(*at)->next;
    if (*at)
        *at = c->next;
    pmix_clock_stop(c->clock);
    c->finish(c, status, data, len);
    free_collective(c);
}

/* Each part: status, length, bytes. */
static void on_gathered(void *ctx, const struct err *why, const uint8_t *data, size_t len)
{
    struct collective *c = ctx;
    pmix_status_t status = PMIX_SUCCESS;
    uint8_t *all = why ? NULL : malloc(len ? len : 1);
    size_t used = 0;
    if (!all) {
        bool late = why && why->code == ERR_TIMEOUT, broken = why && why->code != ERR_CLOSED;
        end_collective(c,
                       late     ? PMIX_ERR_TIMEOUT
                       : broken ? PMIX_ERR_UNREACH
                                : PMIX_ERR_LOST_CONNECTION,
                       NULL, 0);
        return;
    }
    while (len >= 8) {
        pmix_status_t theirs = (pmix_status_t)get_u32(data);
        size_t part = get_u32(data + 4);
        if (part > len - 8)
            break;
        if (status == PMIX_SUCCESS)
            status = theirs;
        memcpy(all + used, data + 8, part);
        used += part;
        data += 8 + part;
        len -= 8 + part;
    }
    if (len > 0)
        status = PMIX_ERR_UNPACK_FAILURE;
    end_collective(c, status, all, used);
}

static void cancel_collective(struct collective *c, enum err_code code, const char *text)
{
    struct err why = ERR_INIT;
    err_set(&why, code, "%s", text);
    pmix_tree_cancel(c->handle, &why);
}

static void on_late(void *ctx)
{
    cancel_collective(ctx, ERR_TIMEOUT, "the time-out of the operation");
}

/* ---- the dead ------------------------------------------------------------------------------------------ */

struct question {
    uint64_t handle;
};

static struct collective *by_handle(uint64_t handle)
{
    struct collective *c = pmix_server.collective;
    while (c && c->handle != handle)
        c = c->next;
    return c;
}

static void on_joined_known(void *ctx, const struct err *why, const uint8_t *data, size_t len)
{
    struct question *q = ctx;
    struct collective *c = by_handle(q->handle);
    free(q);
    if (c && (why || len != 1 || data[0] == 0))
        cancel_collective(c, ERR_CLOSED, "a participant has ended");
}

static void ask_of_dead(struct collective *c, uint32_t rank)
{
    size_t len = 1 + 4 + strlen(c->id);
    uint32_t host = rendezvous_host_of(pmix_server.r, rank);
    struct question *q = malloc(sizeof *q);
    uint8_t *m = malloc(len);
    if (q && m) {
        q->handle = c->handle;
        m[0] = PMIX_MESSAGE_JOINED;
        put_u32(m + 1, c->round);
        memcpy(m + 5, c->id, len - 5);
        (void)pmix_tree_request(host, m, len, on_joined_known, q);
    } else {
        free(q);
    }
    free(m);
}

/* A host that was told "no" has ended its operation, so this host refuses to join that operation later. */
void pmix_collective_asked(struct pmix_asked asked, const uint8_t *data, size_t len)
{
    uint8_t answer = 0;
    char *id = len >= 4 && len - 4 <= TREE_ID_MAX ? strndup((const char *)data + 4, len - 4) : NULL;
    struct joined *j = id ? get_joined(id) : NULL;
    if (j && j->count >= get_u32(data))
        answer = 1;
    else if (j && j->refused < get_u32(data))
        j->refused = get_u32(data);
    free(id);
    pmix_answer(&asked, NULL, &answer, 1);
}

/* The library itself knows of dead ranks of this host. */
static void check_dead(struct collective *c, uint32_t rank)
{
    struct rendezvous *r = pmix_server.r;
    if (r->end[rank] && rendezvous_host_of(r, rank) != r->spawn->host_index)
        ask_of_dead(c, rank);
}

/* Asking may end the operation. */
static void check_all(uint64_t handle)
{
    struct collective *c;
    for (size_t i = 0; (c = by_handle(handle)) != NULL && i < c->ranks; i++)
        check_dead(c, c->rank[i]);
}

static struct collective *not_asked(uint32_t rank)
{
    struct collective *c = pmix_server.collective;
    while (c && (c->asked_of == rank || !takes_part(c, rank)))
        c = c->next;
    return c;
}

void pmix_collective_rank_ended(uint32_t rank)
{
    for (struct collective *c; (c = not_asked(rank));) {
        c->asked_of = rank;
        check_dead(c, rank);
    }
}

/* ---- the beginning ------------------------------------------------------------------------------------- */

static void begin_collective(struct upcall *item)
{
    struct collective *c = (struct collective *)item;
    struct pmix_server *s = &pmix_server;
    struct joined *j = get_joined(c->id);
    if (!j) {
        end_collective(c, PMIX_ERR_NOMEM, NULL, 0);
        return;
    }
    c->round = ++j->count;
    c->next = s->collective;
    s->collective = c;
    /* The gather may end at once, and then *c is freed. */
    uint64_t timeout_ms = c->timeout_ms;
    bool refused = c->round <= j->refused;
    uint64_t handle =
        pmix_tree_gather(c->id, strlen(c->id), c->host, c->hosts, c->blob, c->len, on_gathered, c);
    if (!handle)
        return;
    c->handle = handle;
    if (refused) {
        cancel_collective(c, ERR_CLOSED, "a participant has ended");
        return;
    }
    c->clock = pmix_clock_start(timeout_ms, on_late, c);
    check_all(handle);
}

static pmix_status_t local_status(const pmix_info_t *info, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (PMIX_CHECK_KEY(&info[i], PMIX_LOCAL_COLLECTIVE_STATUS) && info[i].value.type == PMIX_STATUS)
            return info[i].value.data.status;
    return PMIX_SUCCESS;
}

/* On the library's thread. */
static struct collective *new_collective(const char *kind, const pmix_proc_t procs[], size_t count,
                                         const pmix_info_t info[], size_t infos, const void *data, size_t len,
                                         pmix_status_t *rc)
{
    struct collective *c = calloc(1, sizeof *c);
    *rc = PMIX_ERR_NOMEM;
    if (!c)
        return NULL;
    c->item.run = begin_collective;
    c->asked_of = UINT32_MAX;
    c->timeout_ms = pmix_timeout_of(info, infos);
    c->len = 8 + len;
    c->blob = len < UINT32_MAX ? malloc(c->len) : NULL;
    if (c->blob)
        *rc = find_ranks(c, procs, count);
    if (*rc == PMIX_SUCCESS)
        *rc = find_hosts(c);
    if (*rc == PMIX_SUCCESS)
        *rc = make_id(c, kind);
    if (*rc != PMIX_SUCCESS) {
        free_collective(c);
        return NULL;
    }
    put_u32(c->blob, (uint32_t)local_status(info, infos));
    put_u32(c->blob + 4, (uint32_t)len);
    if (len > 0)
        memcpy(c->blob + 8, data, len);
    return c;
}

/* ---- fence --------------------------------------------------------------------------------------------- */

static void finish_fence(struct collective *c, pmix_status_t status, uint8_t *data, size_t len)
{
    c->done.modex(status, (const char *)data, len, c->ctx, free, data);
}

pmix_status_t pmix_fence(const pmix_proc_t procs[], size_t count, const pmix_info_t info[], size_t infos,
                         char *data, size_t len, pmix_modex_cbfunc_t done, void *ctx)
{
    pmix_status_t rc;
    struct collective *c = new_collective("fence", procs, count, info, infos, data, len, &rc);
    free(data);
    if (!c)
        return rc;
    c->finish = finish_fence;
    c->done.modex = done;
    c->ctx = ctx;
    upcall_queue_post(&pmix_server.upcalls, &c->item);
    return PMIX_SUCCESS;
}

/* ---- connect and disconnect: a fence without data ------------------------------------------------------ */

static void finish_op(struct collective *c, pmix_status_t status, uint8_t *data, size_t len)
{
    (void)len;
    free(data);
    c->done.op(status, c->ctx);
}

static pmix_status_t begin_op(const char *kind, const pmix_proc_t procs[], size_t count,
                              const pmix_info_t info[], size_t infos, pmix_op_cbfunc_t done, void *ctx)
{
    pmix_status_t rc;
    struct collective *c = new_collective(kind, procs, count, info, infos, NULL, 0, &rc);
    if (!c)
        return rc;
    c->finish = finish_op;
    c->done.op = done;
    c->ctx = ctx;
    upcall_queue_post(&pmix_server.upcalls, &c->item);
    return PMIX_SUCCESS;
}

pmix_status_t pmix_connect(const pmix_proc_t procs[], size_t count, const pmix_info_t info[], size_t infos,
                           pmix_op_cbfunc_t done, void *ctx)
{
    return begin_op("connect", procs, count, info, infos, done, ctx);
}

pmix_status_t pmix_disconnect(const pmix_proc_t procs[], size_t count, const pmix_info_t info[], size_t infos,
                              pmix_op_cbfunc_t done, void *ctx)
{
    return begin_op("disconnect", procs, count, info, infos, done, ctx);
}

/* ---- groups -------------------------------------------------------------------------------------------- */

struct group_answer {
    pmix_info_t *info;
    size_t count;
};

static void free_group_answer(void *arg)
{
    struct group_answer *a = arg;
    PMIX_INFO_FREE(a->info, a->count);
    free(a);
}

/* A number that every host computes alike: from the group's id and the number of its makings. */
static size_t context_of(const struct collective *c)
{
    uint64_t sum = 1469598103934665603u;
    for (const char *p = c->id; *p; p++)
        sum = (sum ^ (uint8_t)*p) * 1099511628211u;
    return (size_t)(((sum >> 34) + c->round) | 1u << 30);
}

static const char group_begin[] = "group=", group_end[] = "end of group=";

/* The group has ended for all members; a later group of that name is a new one. */
static void forget_group(const struct collective *c)
{
    char *begin;
    forget_joined(c->id);
    if (asprintf(&begin, "%s%s", group_begin, c->id + strlen(group_end)) < 0)
        return;
    forget_joined(begin);
    free(begin);
}

static void finish_group(struct collective *c, pmix_status_t status, uint8_t *data, size_t len)
{
    struct group_answer *a = calloc(1, sizeof *a);
    (void)len;
    free(data);
    if (a && status == PMIX_SUCCESS && c->wants_context) {
        size_t number = context_of(c);
        PMIX_INFO_CREATE(a->info, 1);
        if (a->info) {
            a->count = 1;
            PMIX_INFO_LOAD(&a->info[0], PMIX_GROUP_CONTEXT_ID, &number, PMIX_SIZE);
        }
    }
    if (status == PMIX_SUCCESS && strncmp(c->id, group_end, strlen(group_end)) == 0)
        forget_group(c);
    if (a)
        c->done.info(status, a->info, a->count, c->ctx, free_group_answer, a);
    else
        c->done.info(PMIX_ERR_NOMEM, NULL, 0, c->ctx, NULL, NULL);
}

pmix_status_t pmix_group(pmix_group_operation_t operation, char name[], const pmix_proc_t procs[],
                         size_t count, const pmix_info_t info[], size_t infos, pmix_info_cbfunc_t done,
                         void *ctx)
{
    char kind[PMIX_MAX_KEYLEN + 32];
    pmix_status_t rc;
    bool construct = operation == PMIX_GROUP_CONSTRUCT;
    if (!construct && operation != PMIX_GROUP_DESTRUCT)
        return PMIX_ERR_NOT_SUPPORTED;
    if (strlen(name) > PMIX_MAX_KEYLEN)
        return PMIX_ERR_BAD_PARAM;
    snprintf(kind, sizeof kind, "%s%s", construct ? group_begin : group_end, name);
    struct collective *c = new_collective(kind, procs, count, info, infos, NULL, 0, &rc);
    if (!c)
        return rc;
    for (size_t i = 0; i < infos && construct; i++)
        if (PMIX_CHECK_KEY(&info[i], PMIX_GROUP_ASSIGN_CONTEXT_ID))
            c->wants_context = PMIX_INFO_TRUE(&info[i]);
    c->finish = finish_group;
    c->done.info = done;
    c->ctx = ctx;
    upcall_queue_post(&pmix_server.upcalls, &c->item);
    return PMIX_SUCCESS;
}
