/* Queries that the library cannot answer itself, signals of a rank for ranks of its own job, and the refusal
 * of new processes. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/rendezvous/pmix_server/pmix_server.h"
#include "common/base/buf.h"
#include "common/protocol/host_ranks.h"
#include "common/base/log.h"
#include "common/protocol/spawn_programs.h"

/* ---- queries ------------------------------------------------------------------------------------------- */

#define ANSWERS_MAX 64

struct query {
    struct upcall item;
    char **key;
    size_t keys;
    pmix_info_t *answer;
    size_t answers;
    pmix_info_cbfunc_t done;
    void *ctx;
};

static void free_answers(void *ctx)
{
    struct query *q = ctx;
    PMIX_INFO_FREE(q->answer, ANSWERS_MAX);
    for (size_t i = 0; i < q->keys; i++)
        free(q->key[i]);
    free(q->key);
    free(q);
}

static bool add_table(pmix_info_t *to, const char *key, bool local)
{
    const struct rendezvous *r = pmix_server.r;
    const Hvd__HostRanks *here = r->spawn->host[r->spawn->host_index];
    uint32_t count = local ? here->ranks : r->spawn->size;
    pmix_data_array_t *array;
    PMIX_DATA_ARRAY_CREATE(array, count, PMIX_PROC_INFO);
    pmix_proc_info_t *p = array ? array->array : NULL;
    for (uint32_t i = 0; p && i < count; i++) {
        char name[256];
        uint32_t rank = local ? host_rank(here, i) : i;
        pmix_node_name(r, rendezvous_host_of(r, rank), name, sizeof name);
        PMIX_LOAD_PROCID(&p[i].proc, pmix_server.space, rank);
        p[i].hostname = strdup(name);
        p[i].executable_name = strdup(spawn_program_get(r->spawn, spawn_program_of(r->spawn, rank)).argv[0]);
        p[i].state = r->end[rank] ? PMIX_PROC_STATE_TERMINATED : PMIX_PROC_STATE_RUNNING;
    }
    if (!p)
        return false;
    PMIX_LOAD_KEY(to->key, key);
    to->value.type = PMIX_DATA_ARRAY;
    to->value.data.darray = array;
    return true;
}

static bool add_answer(pmix_info_t *to, const char *key)
{
    uint32_t size = pmix_server.r->spawn->size;
    if (strcmp(key, PMIX_QUERY_NAMESPACES) == 0)
        PMIX_INFO_LOAD(to, key, pmix_server.space, PMIX_STRING);
    else if (strcmp(key, PMIX_JOB_SIZE) == 0 || strcmp(key, PMIX_UNIV_SIZE) == 0)
        PMIX_INFO_LOAD(to, key, &size, PMIX_UINT32);
    else if (strcmp(key, PMIX_QUERY_SPAWN_SUPPORT) == 0 || strcmp(key, PMIX_QUERY_DEBUG_SUPPORT) == 0)
        PMIX_INFO_LOAD(to, key, "", PMIX_STRING);
    else if (strcmp(key, PMIX_QUERY_PROC_TABLE) == 0 || strcmp(key, PMIX_QUERY_LOCAL_PROC_TABLE) == 0)
        return add_table(to, key, strcmp(key, PMIX_QUERY_LOCAL_PROC_TABLE) == 0);
    else
        return false;
    return true;
}

static void run_query(struct upcall *item)
{
    struct query *q = (struct query *)item;
    for (size_t i = 0; i < q->keys && q->answers < ANSWERS_MAX; i++)
        q->answers += add_answer(&q->answer[q->answers], q->key[i]);
    pmix_status_t rc = q->answers == q->keys ? PMIX_SUCCESS
                       : q->answers > 0      ? PMIX_ERR_PARTIAL_SUCCESS
                                             : PMIX_ERR_NOT_FOUND;
    q->done(rc, q->answers ? q->answer : NULL, q->answers, q->ctx, free_answers, q);
}

pmix_status_t pmix_query(pmix_proc_t *asker, pmix_query_t *queries, size_t count, pmix_info_cbfunc_t done,
                         void *ctx)
{
    struct query *q = calloc(1, sizeof *q);
    size_t keys = 0;
    (void)asker;
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; queries[i].keys && queries[i].keys[k]; k++)
            keys++;
    if (!q)
        return PMIX_ERR_NOMEM;
    q->item.run = run_query;
    q->done = done;
    q->ctx = ctx;
    q->key = calloc(keys ? keys : 1, sizeof *q->key);
    PMIX_INFO_CREATE(q->answer, ANSWERS_MAX);
    bool good = q->key && q->answer;
    for (size_t i = 0; i < count && good; i++)
        for (size_t k = 0; good && queries[i].keys && queries[i].keys[k]; k++)
            good = (q->key[q->keys++] = strdup(queries[i].keys[k])) != NULL;
    if (!good) {
        free_answers(q);
        return PMIX_ERR_NOMEM;
    }
    upcall_queue_post(&pmix_server.upcalls, &q->item);
    return PMIX_SUCCESS;
}

/* ---- signals: to all hosts; each sends it to its own --------------------------------------------------- */

struct order {
    struct upcall item;
    size_t len;
    uint8_t message[]; /* its kind, the signal, ranks */
};

void pmix_signal_told(const uint8_t *data, size_t len)
{
    struct rendezvous *r = pmix_server.r;
    int number = len >= 4 ? (int)get_u32(data) : 0;
    if (number <= 0 || number >= NSIG)
        return;
    for (size_t at = 4; at + 4 <= len; at += 4) {
        uint32_t rank = get_u32(data + at);
        if (rank < r->spawn->size && rendezvous_host_of(r, rank) == r->spawn->host_index)
            r->events->signal(r->ctx, rank, number);
    }
}

static void run_order(struct upcall *item)
{
    struct order *o = (struct order *)item;
    pmix_tree_broadcast(o->message, o->len);
    pmix_signal_told(o->message + 1, o->len - 1);
    free(o);
}

static int signal_of(const pmix_info_t *directives, size_t count)
{
    static const struct {
        const char *key;
        int number;
    } known[] = {{PMIX_JOB_CTRL_KILL, SIGKILL},
                 {PMIX_JOB_CTRL_TERMINATE, SIGTERM},
                 {PMIX_JOB_CTRL_PAUSE, SIGSTOP},
                 {PMIX_JOB_CTRL_RESUME, SIGCONT}};
    for (size_t i = 0; i < count; i++) {
        if (PMIX_CHECK_KEY(&directives[i], PMIX_JOB_CTRL_SIGNAL) && directives[i].value.type == PMIX_INT)
            return directives[i].value.data.integer;
        for (size_t k = 0; k < sizeof known / sizeof *known; k++)
            if (PMIX_CHECK_KEY(&directives[i], known[k].key) && PMIX_INFO_TRUE(&directives[i]))
                return known[k].number;
    }
    return 0;
}

pmix_status_t pmix_job_control(const pmix_proc_t *asker, const pmix_proc_t targets[], size_t count,
                               const pmix_info_t directives[], size_t infos, pmix_info_cbfunc_t done,
                               void *ctx)
{
    uint32_t size = pmix_server.r->spawn->size;
    int number = signal_of(directives, infos);
    bool all = count == 0;
    (void)asker, (void)done, (void)ctx;
    if (number <= 0 || number >= NSIG)
        return PMIX_ERR_NOT_SUPPORTED;
    for (size_t i = 0; i < count; i++) {
        if (!pmix_is_ours(targets[i].nspace) ||
            (targets[i].rank >= size && targets[i].rank != PMIX_RANK_WILDCARD))
            return PMIX_ERR_NOT_FOUND;
        all = all || targets[i].rank == PMIX_RANK_WILDCARD;
    }
    size_t ranks = all ? size : count;
    struct order *o = malloc(sizeof *o + 5 + 4 * ranks);
    if (!o)
        return PMIX_ERR_NOMEM;
    o->item.run = run_order;
    o->len = 5 + 4 * ranks;
    o->message[0] = PMIX_MESSAGE_SIGNAL;
    put_u32(o->message + 1, (uint32_t)number);
    for (size_t i = 0; i < ranks; i++)
        put_u32(o->message + 5 + 4 * i, all ? (uint32_t)i : targets[i].rank);
    upcall_queue_post(&pmix_server.upcalls, &o->item);
    return PMIX_OPERATION_SUCCEEDED;
}

/* ---- new processes ------------------------------------------------------------------------------------- */

struct refusal {
    struct upcall item;
    uint32_t rank;
};

static void run_refusal(struct upcall *item)
{
    struct refusal *f = (struct refusal *)item;
    struct rendezvous *r = pmix_server.r;
    char text[160];
    if (!pmix_server.spawn_was_refused) {
        pmix_server.spawn_was_refused = true;
        snprintf(text, sizeof text,
                 "rank %u asked for new processes: MPI_Comm_spawn and PMIx_Spawn are not offered", f->rank);
        r->events->notice(r->ctx, LOG_ERROR, text);
    }
    free(f);
}

pmix_status_t pmix_spawn(const pmix_proc_t *asker, const pmix_info_t info[], size_t infos,
                         const pmix_app_t apps[], size_t count, pmix_spawn_cbfunc_t done, void *ctx)
{
    struct refusal *f = malloc(sizeof *f);
    (void)info, (void)infos, (void)apps, (void)count, (void)done, (void)ctx;
    if (f) {
        *f = (struct refusal){{NULL, run_refusal}, asker->rank};
        upcall_queue_post(&pmix_server.upcalls, &f->item);
    }
    return PMIX_ERR_NOT_SUPPORTED;
}
