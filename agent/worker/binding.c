#include "agent/worker/binding.h"

#include <stdlib.h>

struct state {
    const struct topology *t;
    const Hvd__Binding *want;
    uint32_t *on_core, *on_numa, *on_socket; /* how many ranks are bound there */
    uint32_t *numa_cores, *socket_cores;     /* how many cores they have */
};

/* The core belongs to where the i-th rank is placed. */
static bool is_place(const struct state *s, size_t i, uint32_t core)
{
    const struct topology_core *c = &s->t->core[core];
    if (s->want->per_part)
        i /= s->want->per_part;
    switch (s->want->map_by) {
    case HVD__BINDING__MAP__BY_SOCKET:
        return c->socket == i % s->t->sockets;
    case HVD__BINDING__MAP__BY_NUMA:
        return c->numa == i % s->t->numas;
    case HVD__BINDING__MAP__BY_CORE: /* to which of them is the least loaded's business, but around it for
                                        larger things */
        return (s->want->bind_to == HVD__BINDING__BIND__TO_CORE && !s->want->per_part) ||
               core == i % s->t->cores;
    default:
        return true;
    }
}

static int does_not_fit(uint32_t rank, const char *what, uint32_t cores, uint32_t each, struct err *e)
{
    return err_set(
        e, ERR_HOST,
        "rank %u finds no free core to be bound to: %s has %u, and each rank takes %u (--oversubscribe lets "
        "them share)",
        rank, what, cores, each);
}

/* The `pe` cores with the fewest ranks where the rank is placed. */
static int bind_to_cores(struct state *s, size_t i, uint32_t rank, struct cpus *cpus, struct err *e)
{
    uint32_t pe = s->want->pe ? s->want->pe : 1, place = 0;
    uint32_t most =
        s->want->per_part && s->want->map_by == HVD__BINDING__MAP__BY_CORE ? s->want->per_part : 1;
    for (uint32_t c = 0; c < s->t->cores; c++)
        place += is_place(s, i, c);
    if (pe > place)
        return does_not_fit(rank, "its place", place, pe, e);
    for (uint32_t k = 0; k < pe; k++) {
        uint32_t best = UINT32_MAX;
        for (uint32_t c = 0; c < s->t->cores; c++)
            if (is_place(s, i, c) && !cpus_meet(cpus, &s->t->core[c].cpus) &&
                (best == UINT32_MAX || s->on_core[c] < s->on_core[best]))
                best = c;
        if (s->on_core[best] >= most && !s->want->overload)
            return does_not_fit(rank, place < s->t->cores ? "its place" : "this host", place, pe, e);
        s->on_core[best]++;
        cpus_join(cpus, &s->t->core[best].cpus);
    }
    return 0;
}

/* The same of sockets, or NUMA nodes: number[c] is the one of core c. */
static int bind_to_group(struct state *s, size_t i, uint32_t rank, bool sockets, struct cpus *cpus,
                         struct err *e)
{
    uint32_t *load = sockets ? s->on_socket : s->on_numa, best = UINT32_MAX;
    const uint32_t *cores = sockets ? s->socket_cores : s->numa_cores;
    for (uint32_t c = 0; c < s->t->cores; c++) {
        uint32_t group = sockets ? s->t->core[c].socket : s->t->core[c].numa;
        if (is_place(s, i, c) && (best == UINT32_MAX || load[group] < load[best]))
            best = group;
    }
    if (load[best] >= cores[best] && !s->want->overload)
        return does_not_fit(rank, sockets ? "its socket" : "its NUMA node", cores[best], 1, e);
    load[best]++;
    for (uint32_t c = 0; c < s->t->cores; c++)
        if ((sockets ? s->t->core[c].socket : s->t->core[c].numa) == best)
            cpus_join(cpus, &s->t->core[c].cpus);
    return 0;
}

/* The rankfile's: cores first to last, of the socket or of the host. */
static int bind_to_list(const struct state *s, const Hvd__Worker *w, struct cpus *cpus, struct err *e)
{
    for (size_t i = 0; i < w->n_cores; i++) {
        const Hvd__CoreRange *r = w->cores[i];
        uint32_t index = 0, found = 0;
        for (uint32_t c = 0; c < s->t->cores; c++) {
            if (r->in_socket && s->t->core[c].socket != r->socket)
                continue;
            if (index >= r->first && index <= r->last) {
                cpus_join(cpus, &s->t->core[c].cpus);
                found++;
            }
            index++;
        }
        uint32_t wanted = r->last == UINT32_MAX ? 1 : r->last - r->first + 1;
        if (found < wanted && r->in_socket)
            return err_set(e, ERR_HOST,
                           "rank %u: line %u of the rankfile wants core %u of socket %u, which has %u",
                           w->rank, w->rankfile_line, r->first + found, r->socket, index);
        if (found < wanted)
            return err_set(e, ERR_HOST,
                           "rank %u: line %u of the rankfile wants core %u, and this host has %u", w->rank,
                           w->rankfile_line, r->first + found, index);
    }
    return 0;
}

static int bind_one(struct state *s, size_t i, const Hvd__Worker *w, struct cpus *cpus, struct err *e)
{
    if (w->n_cores > 0)
        return bind_to_list(s, w, cpus, e);
    switch (s->want->bind_to) {
    case HVD__BINDING__BIND__TO_CORE:
        return bind_to_cores(s, i, w->rank, cpus, e);
    case HVD__BINDING__BIND__TO_NUMA:
        return bind_to_group(s, i, w->rank, false, cpus, e);
    case HVD__BINDING__BIND__TO_SOCKET:
        return bind_to_group(s, i, w->rank, true, cpus, e);
    default:
        return 0;
    }
}

int binding_make(const struct topology *t, const Hvd__Binding *want, Hvd__Worker *const *worker, size_t n,
                 struct cpus *cpus, struct err *e)
{
    uint32_t *counts = calloc(t->cores + 2 * ((size_t)t->numas + t->sockets), sizeof *counts);
    if (!counts)
        return err_set(e, ERR_MEMORY, "no memory for the places of %u cores", t->cores);
    struct state s = {t, want, counts, counts + t->cores, NULL, NULL, NULL};
    s.on_socket = s.on_numa + t->numas;
    s.numa_cores = s.on_socket + t->sockets;
    s.socket_cores = s.numa_cores + t->numas;
    for (uint32_t c = 0; c < t->cores; c++) {
        s.numa_cores[t->core[c].numa]++;
        s.socket_cores[t->core[c].socket]++;
    }
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++) {
        cpus[i] = (struct cpus){0};
        rc = bind_one(&s, i, worker[i], &cpus[i], e);
    }
    free(counts);
    return rc;
}
