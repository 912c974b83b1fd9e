#include "agent/daemon/admission/queue.h"

#include <stdio.h>
#include <string.h>

static size_t waiting_of(const struct queue *q, uid_t uid)
{
    size_t count = 0;
    for (size_t i = 0; i < q->count; i++)
        count += q->entry[i]->want.uid == uid;
    return count;
}

void queue_add(struct queue *q, struct queue_entry *x)
{
    size_t at = q->count++;
    for (; at > 0 && q->entry[at - 1]->priority < x->priority; at--)
        q->entry[at] = q->entry[at - 1];
    q->entry[at] = x;
}

int queue_may_wait(const struct queue *q, const struct queue_entry *x, size_t most, struct err *e)
{
    if (q->count > most || q->count > QUEUE_MAX)
        return err_set(e, ERR_HOST, "%zu jobs wait there, and more may not (max_waiting)", q->count - 1);
    if (x->want.uid != 0 && 2 * waiting_of(q, x->want.uid) > most)
        return err_set(e, ERR_HOST, "%zu jobs of %s wait there, and more may not (half of max_waiting)",
                       waiting_of(q, x->want.uid) - 1, x->want.user);
    return 0;
}

size_t queue_place(const struct queue *q, const struct queue_entry *x)
{
    for (size_t i = 0; i < q->count; i++)
        if (q->entry[i] == x)
            return i + 1;
    return 0;
}

void queue_remove(struct queue *q, const struct queue_entry *x)
{
    size_t place = queue_place(q, x);
    if (!place)
        return;
    memmove(&q->entry[place - 1], &q->entry[place], (q->count - place) * sizeof(struct queue_entry *));
    q->count--;
}

struct queue_entry *queue_next(const struct queue *q, const struct leases *l, const struct lease_rules *rules,
                               struct lease *lease, enum lease_verdict *verdict, struct err *e)
{
    for (size_t i = 0; i < q->count; i++) {
        err_clear(e);
        *verdict = leases_admit(l, rules, &q->entry[i]->want, lease, e);
        if (*verdict == LEASE_GIVEN || *verdict == LEASE_NEVER)
            return q->entry[i];
        if (*verdict == LEASE_BUSY)
            return NULL;
    }
    return NULL;
}

static void describe_place(const struct queue *q, const struct queue_entry *x, const struct leases *l,
                           const struct lease_rules *rules, char text[QUEUE_TEXT])
{
    struct err e = ERR_INIT;
    struct lease lease;
    char free[LEASES_FREE_TEXT], wanted[48] = "slots";
    if (x->want.slots && !x->want.fewer)
        snprintf(wanted, sizeof wanted, "%u slot%s", x->want.slots, x->want.slots == 1 ? "" : "s");
    bool own = leases_admit(l, rules, &x->want, &lease, &e) == LEASE_OWN_LIMIT;
    snprintf(text, QUEUE_TEXT, "waiting for %s: place %zu of %zu; %.400s", wanted, queue_place(q, x),
             q->count, own ? e.text : leases_free(l, rules, free));
}

const char *queue_news(const struct queue *q, struct queue_entry *x, const struct leases *l,
                       const struct lease_rules *rules, uint64_t now_ms, uint64_t *again)
{
    char text[QUEUE_TEXT];
    describe_place(q, x, l, rules, text);
    if (!x->patient || strcmp(text, x->told) == 0)
        return NULL;
    if (x->told[0] && now_ms < x->told_at + QUEUE_TELL_MS) {
        uint64_t left = x->told_at + QUEUE_TELL_MS - now_ms;
        *again = left < *again ? left : *again;
        return NULL;
    }
    memcpy(x->told, text, sizeof text);
    x->told_at = now_ms;
    return x->told;
}
