/* The barrier: when every rank of this host waits in the barrier, the host joins a gather of all hosts, with
 * the puts since the last barrier. When the gather ends, every host knows every key and answers its clients.
 *
 * A rank that has ended cannot come, so that a barrier would never end by itself. A host knows this of its
 * own ranks only: the news that a rank elsewhere has ended may overtake the end of the last barrier of that
 * rank. So:
 *
 *   a rank of this host has ended,     the barrier breaks: the gather is joined with the reason, which all
 *   other ranks of this host wait      other hosts get as the end of their barriers
 *   a rank of another host has ended,  that host is asked, once a barrier. Either it has joined, and the end
 *   ranks of this host wait            is on its way, or it will never join: the barrier breaks here
 *
 * A broken barrier stays broken, as ranks do not come back. Its clients get an error instead of barrier_out:
 * MPICH ignores the rc= of barrier_out and would run into the next wait, in shared memory. */
#include "agent/rendezvous/pmi1/pmi1.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"

static void set_broken(struct pmi1 *p, const char *why);
static void break_here(struct pmi1 *p, const char *why);

int pmi1_barrier_init(struct pmi1 *p, struct err *e)
{
    buf_init(&p->barrier.puts, PMI1_STORE_MAX);
    p->barrier.asked = calloc(p->r->spawn->n_host, sizeof *p->barrier.asked);
    return p->barrier.asked ? 0 : err_set(e, ERR_MEMORY, "no memory for %zu hosts", p->r->spawn->n_host);
}

void pmi1_barrier_free(struct pmi1 *p)
{
    buf_free(&p->barrier.puts);
    free(p->barrier.broken);
    free(p->barrier.asked);
}

static void release_clients(struct pmi1 *p)
{
    /* An answer may close its client, which takes it out of the list. */
    for (struct pmi1_client *c = p->client, *next; c; c = next) {
        next = c->next;
        if (!c->waiting)
            continue;
        c->waiting = false;
        p->barrier.waiting--;
        if (p->barrier.broken)
            pmi1_refuse(c, "barrier_failed", p->barrier.broken);
        else
            pmi1_answer(c, "cmd=barrier_out rc=0");
    }
}

static void take_records(struct pmi1 *p, const uint8_t *data, size_t len)
{
    struct reader r = reader_of(data, len);
    struct pmi1_record record;
    struct err e = ERR_INIT;
    while (!p->barrier.broken && pmi1_read_record(&r, &record)) {
        if (record.kind == PMI1_FAILED)
            set_broken(p, record.value);
        else if (pmi1_store_put(&p->store, record.key, record.value, &e) < 0)
            break_here(p, e.text);
    }
    if (r.bad)
        break_here(p, "another session sent what is no barrier");
}

static void on_gathered(void *ctx, const struct err *why, const uint8_t *data, size_t len)
{
    struct pmi1 *p = ctx;
    p->barrier.pending = false;
    if (why)
        set_broken(p, why->text);
    else
        take_records(p, data, len);
    release_clients(p);
}

static void join_gather(struct pmi1 *p, const void *blob, size_t len)
{
    size_t hosts = p->r->spawn->n_host;
    uint32_t *host = malloc(hosts * sizeof *host);
    p->barrier.joined++;
    p->barrier.pending = true;
    if (!host) {
        struct err e = ERR_INIT;
        err_set(&e, ERR_MEMORY, "no memory for a barrier");
        on_gathered(p, &e, NULL, 0);
        return;
    }
    for (size_t i = 0; i < hosts; i++)
        host[i] = (uint32_t)i;
    (void)tree_gather(p->r->tree, TREE_PMI1, "barrier", 7, host, hosts, blob, len, on_gathered, p);
    free(host);
}

/* From here on there is no barrier any more. The clients are not answered yet. */
static void set_broken(struct pmi1 *p, const char *why)
{
    if (p->barrier.broken)
        return;
    p->barrier.broken = strdup(why);
    if (!p->barrier.broken)
        p->barrier.broken = calloc(1, 1);
    log_info("the PMI-1 barrier has failed: %s", why);
}

/* Tells the clients, and the other hosts unless a gather is under way that will tell them. */
static void break_here(struct pmi1 *p, const char *why)
{
    uint8_t blob[PMI1_RECORD_MAX];
    char reason[PMI1_VALUE_MAX];
    struct writer w = writer_of(blob, sizeof blob);
    if (p->barrier.broken)
        return;
    set_broken(p, why);
    snprintf(reason, sizeof reason, "%s", why);
    pmi1_write_record(&w, PMI1_FAILED, NULL, reason);
    if (!p->barrier.pending && p->r->spawn->n_host > 1)
        join_gather(p, blob, sizeof blob - w.left);
    release_clients(p);
}

/* ---- ranks that have ended ----------------------------------------------------------------------------- */

static void on_told(void *ctx, const struct err *why, const uint8_t *data, size_t len)
{
    (void)data, (void)len;
    if (why)
        break_here(ctx, why->text);
}

static void ask_host(struct pmi1 *p, uint32_t host, uint64_t round)
{
    uint8_t request[9];
    struct writer w = writer_of(request, sizeof request);
    write_u8(&w, PMI1_ASK_BARRIER);
    write_u64(&w, round);
    (void)tree_request(p->r->tree, TREE_PMI1, host, request, sizeof request, on_told, p);
}

static void ask_once(struct pmi1 *p, uint32_t host, uint64_t round)
{
    if (p->barrier.asked[host] == round + 1)
        return;
    p->barrier.asked[host] = round + 1;
    ask_host(p, host, round);
}

/* Describes the first rank of this host that has ended, and tells the user once; false when all live. */
static bool find_ended(struct pmi1 *p, char *text, size_t size)
{
    const Hvd__HostRanks *here = pmi1_here(p);
    for (uint32_t i = 0; i < here->ranks; i++) {
        uint32_t rank = host_rank(here, i);
        if (p->r->end[rank]) {
            snprintf(text, size, "rank %u has ended (%s)", rank, p->r->end[rank]);
            if (!p->barrier.said)
                pmi1_notice(p, "%s while others wait for it in an MPI barrier (PMI-1)", text);
            p->barrier.said = true;
            return true;
        }
    }
    return false;
}

void pmi1_barrier_rank_ended(struct pmi1 *p)
{
    char text[256];
    uint64_t round = p->barrier.joined - (p->barrier.pending ? 1 : 0);
    if (p->barrier.waiting == 0 || p->barrier.broken)
        return;
    if (!p->barrier.pending && find_ended(p, text, sizeof text)) {
        break_here(p, text);
        return;
    }
    for (uint32_t rank = 0; rank < p->r->spawn->size && !p->barrier.broken; rank++)
        if (p->r->end[rank] && !pmi1_is_here(p, rank))
            ask_once(p, rendezvous_host_of(p->r, rank), round);
}

/* Sessions hear of ranks that end with status 0 when they are linked. The root of the tree sends nothing by
 * itself when it joins, so the barrier asks for links. */
static void ask_for_links(struct pmi1 *p)
{
    uint32_t self = p->r->spawn->host_index;
    if (p->barrier.linked || p->r->spawn->n_host == 1)
        return;
    p->barrier.linked = true;
    ask_host(p, self > 0 ? tree_parent(self) : 1, p->barrier.joined);
}

int pmi1_barrier_check(struct pmi1 *p, uint64_t round, struct err *e)
{
    char text[256];
    if (p->barrier.joined > round || !find_ended(p, text, sizeof text))
        return 0;
    return err_set(e, ERR_CLOSED, "%s", text);
}

/* ---- clients ------------------------------------------------------------------------------------------- */

int pmi1_barrier_put(struct pmi1 *p, const char *key, const char *value, struct err *e)
{
    uint8_t record[PMI1_RECORD_MAX];
    struct writer w = writer_of(record, sizeof record);
    if (p->r->spawn->n_host == 1)
        return 0;
    pmi1_write_record(&w, PMI1_PUT, key, value);
    if (w.bad || buf_put(&p->barrier.puts, record, sizeof record - w.left) < 0)
        return err_set(e, ERR_MEMORY, "more than %u bytes were put since the last barrier", PMI1_STORE_MAX);
    return 0;
}

void pmi1_barrier_enter(struct pmi1_client *c)
{
    struct pmi1 *p = c->p;
    ask_for_links(p);
    if (p->barrier.broken) {
        pmi1_refuse(c, "barrier_failed", p->barrier.broken);
        return;
    }
    c->waiting = true;
    p->barrier.waiting++;
    if (p->barrier.waiting == p->r->spawn->n_worker && !p->barrier.pending) {
        struct buf puts = p->barrier.puts; /* joining may end at once, and clients put again */
        buf_init(&p->barrier.puts, PMI1_STORE_MAX);
        join_gather(p, buf_data(&puts), puts.len);
        buf_free(&puts);
    }
    if (p->any_ended)
        pmi1_barrier_rank_ended(p);
}

void pmi1_barrier_leave(struct pmi1_client *c)
{
    if (c->waiting)
        c->p->barrier.waiting--;
    c->waiting = false;
}
