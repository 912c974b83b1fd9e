/* Direct modex: what a rank of another host has put, asked of that host alone.
 *
 * There the library waits until the rank has committed; when it ends before, the answer is an error. The
 * asking host gives up at its client's time-out. */
#include <stdlib.h>
#include <string.h>

#include "agent/rendezvous/pmix_server/pmix_server.h"
#include "common/base/buf.h"

struct modex { /* asked by a rank of this host */
    struct upcall item;
    uint32_t rank;
    uint64_t timeout_ms, handle;
    struct pmix_clock *clock;
    pmix_modex_cbfunc_t done;
    void *ctx;
};

struct modex_answer { /* owed to another host */
    struct upcall item;
    struct modex_answer *next;
    struct pmix_asked asked;
    uint32_t rank;
    bool answered;
    pmix_status_t status;
    uint8_t *data;
    size_t len;
};

/* ---- asking -------------------------------------------------------------------------------------------- */

static void end_modex(struct modex *m, pmix_status_t status, const uint8_t *data, size_t len)
{
    char *copy = status == PMIX_SUCCESS ? malloc(len ? len : 1) : NULL;
    pmix_clock_stop(m->clock);
    if (status == PMIX_SUCCESS && !copy)
        status = PMIX_ERR_NOMEM;
    if (copy)
        memcpy(copy, data, len);
    m->done(status, copy, copy ? len : 0, m->ctx, free, copy);
    free(m);
}

/* The library's status, then its data. */
static void on_answer(void *ctx, const struct err *why, const uint8_t *data, size_t len)
{
    struct modex *m = ctx;
    if (why || len < 4)
        end_modex(m, why && why->code == ERR_TIMEOUT ? PMIX_ERR_TIMEOUT : PMIX_ERR_NOT_FOUND, NULL, 0);
    else
        end_modex(m, (pmix_status_t)get_u32(data), data + 4, len - 4);
}

static void on_late(void *ctx)
{
    struct modex *m = ctx;
    struct err why = ERR_INIT;
    err_set(&why, ERR_TIMEOUT, "the time-out of the operation");
    pmix_tree_cancel(m->handle, &why);
}

static void begin_modex(struct upcall *item)
{
    struct modex *m = (struct modex *)item;
    struct rendezvous *r = pmix_server.r;
    uint8_t question[5] = {PMIX_MESSAGE_MODEX};
    uint64_t timeout_ms = m->timeout_ms;
    put_u32(question + 1, m->rank);
    uint64_t handle =
        pmix_tree_request(rendezvous_host_of(r, m->rank), question, sizeof question, on_answer, m);
    if (!handle)
        return;
    m->handle = handle;
    m->clock = pmix_clock_start(timeout_ms, on_late, m);
}

pmix_status_t pmix_modex(const pmix_proc_t *proc, const pmix_info_t info[], size_t infos,
                         pmix_modex_cbfunc_t done, void *ctx)
{
    const struct rendezvous *r = pmix_server.r;
    if (!pmix_is_ours(proc->nspace) || proc->rank >= r->spawn->size ||
        rendezvous_host_of(r, proc->rank) == r->spawn->host_index)
        return PMIX_ERR_NOT_FOUND;
    struct modex *m = calloc(1, sizeof *m);
    if (!m)
        return PMIX_ERR_NOMEM;
    *m = (struct modex){.item = {NULL, begin_modex},
                        .rank = proc->rank,
                        .timeout_ms = pmix_timeout_of(info, infos),
                        .done = done,
                        .ctx = ctx};
    upcall_queue_post(&pmix_server.upcalls, &m->item);
    return PMIX_SUCCESS;
}

/* ---- answering ----------------------------------------------------------------------------------------- */

static void answer_modex(struct modex_answer *a, pmix_status_t status, const uint8_t *data, size_t len)
{
    struct err none = ERR_INIT;
    uint8_t *m = malloc(4 + len);
    if (a->answered) {
        free(m);
        return;
    }
    a->answered = true;
    if (m) {
        put_u32(m, (uint32_t)status);
        if (len > 0)
            memcpy(m + 4, data, len);
        pmix_answer(&a->asked, NULL, m, 4 + len);
    } else {
        err_set(&none, ERR_MEMORY, "no memory for a value");
        pmix_answer(&a->asked, &none, NULL, 0);
    }
    free(m);
}

static void run_answer(struct upcall *item)
{
    struct modex_answer *a = (struct modex_answer *)item, **at = &pmix_server.modex_answer;
    while (*at && *at != a)
        at = &(*at)->next;
    if (*at)
        *at = a->next;
    answer_modex(a, a->status, a->data, a->len);
    free(a->data);
    free(a);
}

/* On the library's thread. */
static void on_found(pmix_status_t status, char *data, size_t len, void *ctx)
{
    struct modex_answer *a = ctx;
    a->status = status;
    a->data = status == PMIX_SUCCESS && len > 0 ? malloc(len) : NULL;
    if (a->data) {
        memcpy(a->data, data, len);
        a->len = len;
    } else if (status == PMIX_SUCCESS && len > 0) {
        a->status = PMIX_ERR_NOMEM;
    }
    upcall_queue_post(&pmix_server.upcalls, &a->item);
}

void pmix_modex_asked(struct pmix_asked asked, const uint8_t *data, size_t len)
{
    const struct rendezvous *r = pmix_server.r;
    uint32_t rank = len == 4 ? get_u32(data) : UINT32_MAX;
    struct err e = ERR_INIT;
    pmix_proc_t proc;
    struct modex_answer *a = calloc(1, sizeof *a);
    bool here = rank < r->spawn->size && rendezvous_host_of(r, rank) == r->spawn->host_index;
    if (!a || !here) {
        err_set(&e, ERR_NOT_FOUND, "rank %u is not here", rank);
        pmix_answer(&asked, &e, NULL, 0);
        free(a);
        return;
    }
    *a = (struct modex_answer){.item = {NULL, run_answer}, .asked = asked, .rank = rank};
    PMIX_LOAD_PROCID(&proc, pmix_server.space, rank);
    a->next = pmix_server.modex_answer;
    pmix_server.modex_answer = a;
    pmix_status_t rc = PMIx_server_dmodex_request(&proc, on_found, a);
    if (rc != PMIX_SUCCESS) {
        a->status = rc;
        run_answer(&a->item);
    } else if (r->end[rank]) {
        pmix_modex_rank_ended(rank);
    }
}

/* Values that the library has of the rank are still given. A rank that has not committed its values is no
 * longer waited for. */
void pmix_modex_rank_ended(uint32_t rank)
{
    for (struct modex_answer *a = pmix_server.modex_answer; a; a = a->next)
        if (a->rank == rank)
            answer_modex(a, PMIX_ERR_LOST_CONNECTION, NULL, 0);
}
