#include "agent/rendezvous/pmi1/pmi1.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/clock.h"

/* ---- ranks that have left MPI -------------------------------------------------------------------------- */

static const char unfinished[] = "its MPI program has ended without MPI_Finalize";

static bool *left_flag(struct pmi1 *p, uint32_t rank)
{
    return &p->left[host_local_rank(pmi1_here(p), rank)];
}

/* The rank's process has ended: it must have said cmd=finalize before. */
static void check_finalized(struct pmi1 *p, uint32_t rank)
{
    struct pmi1_client *c = pmi1_client_of(p, rank);
    if (*left_flag(p, rank) || (c && c->phase == PMI1_READY))
        p->r->events->abort(p->r->ctx, rank, 1, unfinished, clock_now());
}

/* A process that runs on without cmd=finalize has lost its MPI program, under a shell for example. Other
 * ranks would wait for that program in MPI. */
static void on_left_long(uv_timer_t *timer)
{
    struct pmi1 *p = timer->data;
    for (uint32_t i = 0; i < p->r->spawn->n_worker; i++) {
        uint32_t rank = host_rank(pmi1_here(p), i);
        if (!*left_flag(p, rank) || p->r->end[rank])
            continue;
        *left_flag(p, rank) = false;
        pmi1_notice(p, "rank %u: %s", rank, unfinished);
        p->r->events->abort(p->r->ctx, rank, 1, unfinished, clock_now());
    }
}

static void on_client_closed(struct pmi1_client *c)
{
    struct pmi1 *p = c->p;
    pmi1_barrier_leave(c);
    if (c->phase != PMI1_READY)
        return;
    *left_flag(p, c->rank) = true;
    if (!uv_is_active((uv_handle_t *)&p->left_timer))
        uv_timer_start(&p->left_timer, on_left_long, PMI1_LEFT_MS, 0);
}

static const struct pmi1_client_events client_events = {pmi1_command, on_client_closed};

/* ---- other sessions ------------------------------------------------------------------------------------ */

static void on_request(void *ctx, uint32_t from, uint64_t ticket, const uint8_t *data, size_t len)
{
    struct pmi1 *p = ctx;
    struct reader r = reader_of(data, len);
    struct pmi1_record name;
    struct err e = ERR_INIT;
    const char *found = NULL;
    enum pmi1_request request = read_u8(&r);
    if (request == PMI1_ASK_BARRIER) {
        uint64_t round = read_u64(&r);
        if (!r.bad)
            (void)pmi1_barrier_check(p, round, &e);
    } else if (pmi1_read_record(&r, &name)) {
        (void)pmi1_names_serve(p, request, name.key, name.value, &found, &e);
    } else {
        r.bad = true;
    }
    if (r.bad || r.left > 0)
        err_set(&e, ERR_PROTOCOL, "another session asked for what is no PMI-1 request");
    tree_answer(p->r->tree, TREE_PMI1, from, ticket, e.code ? &e : NULL, found, found ? strlen(found) : 0);
}

static void on_broadcast(void *ctx, uint32_t from, const uint8_t *data, size_t len)
{
    (void)ctx, (void)from, (void)data, (void)len;
}

/* ---- the method ---------------------------------------------------------------------------------------- */

static void on_knock(void *ctx, int fd)
{
    pmi1_client_new(ctx, fd);
}

static void pmi1_free(struct pmi1 *p)
{
    pmi1_barrier_free(p);
    pmi1_store_free(&p->store);
    pmi1_store_free(&p->names);
    free(p->left);
    free(p);
}

static void on_closed(uv_handle_t *handle)
{
    pmi1_free(handle->data);
}

static int prepare_stores(struct pmi1 *p, struct err *e)
{
    const Hvd__Spawn *spawn = p->r->spawn;
    char mapping[PMI1_VALUE_MAX];
    pmi1_store_init(&p->store, PMI1_STORE_MAX);
    pmi1_store_init(&p->names, PMI1_STORE_MAX);
    p->left = calloc(spawn->n_worker, sizeof *p->left);
    if (!p->left)
        return err_set(e, ERR_MEMORY, "no memory for %zu ranks", spawn->n_worker);
    if (pmi1_mapping(spawn->host, spawn->n_host, mapping, sizeof mapping) == 0 &&
        pmi1_store_put(&p->store, "PMI_process_mapping", mapping, e) < 0)
        return -1;
    return pmi1_barrier_init(p, e);
}

static void *pmi1_open(struct rendezvous *r, struct err *e)
{
    static const struct tree_handler handler = {on_request, on_broadcast};
    struct pmi1 *p = calloc(1, sizeof *p);
    if (!p) {
        err_set(e, ERR_MEMORY, "no memory for PMI-1");
        return NULL;
    }
    p->r = r;
    p->client_events = &client_events;
    if (prepare_stores(p, e) < 0 || lazy_listener_open(&p->listener, r->loop, on_knock, p, e) < 0) {
        pmi1_free(p);
        return NULL;
    }
    uv_timer_init(r->loop, &p->left_timer);
    p->left_timer.data = p;
    tree_serve(r->tree, TREE_PMI1, &handler, p);
    snprintf(r->values.pmi_port, sizeof r->values.pmi_port, "127.0.0.1:%u", p->listener.port);
    return p;
}

static void pmi1_rank_ended(void *state, uint32_t rank)
{
    struct pmi1 *p = state;
    p->any_ended = true;
    if (pmi1_is_here(p, rank))
        check_finalized(p, rank);
    pmi1_barrier_rank_ended(p);
}

static void pmi1_close(void *state)
{
    struct pmi1 *p = state;
    tree_serve(p->r->tree, TREE_PMI1, NULL, NULL);
    /* libuv runs the callbacks of closed handles in reverse order: this one comes last. */
    uv_close((uv_handle_t *)&p->left_timer, on_closed);
    while (p->client) {
        p->client->phase = PMI1_FINAL;
        pmi1_client_close(p->client);
    }
    lazy_listener_close(&p->listener);
}

const struct rendezvous_method rendezvous_pmi1 = {CONTRACT_PMI1, pmi1_open, pmi1_rank_ended, pmi1_close};
