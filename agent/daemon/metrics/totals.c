#include "agent/daemon/metrics/totals.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOTAL_MOST (UINT64_C(1) << 62)

/* ---- sums ---------------------------------------------------------------------------------------------- */

/* Adds what it may: `more` is a sum so far, *before what was known of it. */
static void totals_add(uint64_t *total, uint64_t *before, uint64_t more, uint64_t most)
{
    more = more < most ? more : most;
    if (more <= *before)
        return;
    uint64_t grown = more - *before;
    *total = *total < TOTAL_MOST - grown ? *total + grown : TOTAL_MOST;
    *before = more;
}

static uint64_t most_in(uint64_t seconds, uint64_t rate)
{
    return seconds < TOTAL_MOST / rate ? seconds * rate : TOTAL_MOST;
}

void totals_name(char out[SUM_PEER_NAME], const char *host)
{
    size_t n = strnlen(host, SUM_PEER_NAME - 1);
    for (size_t i = 0; i < n; i++)
        out[i] = host[i];
    out[n] = '\0';
    for (char *c = out; *c; c++)
        if (*c < ' ' || *c > '~')
            *c = '?';
}

/* Of the node: the others when there is no more room. */
static struct totals_peer *node_peer(struct totals *c, const char *host, uid_t uid)
{
    size_t his = 0;
    if (!host[0] || strcmp(host, SUM_PEER_OTHER) == 0)
        return &c->peer[0];
    for (size_t i = 1; i <= c->peers; i++) {
        if (strcmp(c->peer[i].host, host) == 0)
            return &c->peer[i];
        his += c->peer[i].uid == uid;
    }
    if (c->peers == SUM_PEERS || his == SUM_PEERS_OF)
        return &c->peer[0];
    struct totals_peer *p = &c->peer[++c->peers];
    *p = (struct totals_peer){.uid = uid};
    snprintf(p->host, sizeof p->host, "%s", host);
    return p;
}

struct totals_peer *totals_peer_of(struct totals_session *s, const char *host)
{
    for (size_t i = 0; i < s->peers; i++)
        if (strcmp(s->peer[i].host, host) == 0)
            return &s->peer[i];
    struct totals_peer *more =
        s->peers <= SUM_PEERS ? reallocarray(s->peer, s->peers + 1, sizeof *more) : NULL;
    if (!more)
        return NULL;
    s->peer = more;
    more += s->peers++;
    *more = (struct totals_peer){.uid = s->uid};
    snprintf(more->host, sizeof more->host, "%s", host);
    return more;
}

/* ---- sessions ------------------------------------------------------------------------------------------ */

static struct totals_session *find_session(struct totals *c, const char *unit)
{
    for (size_t i = 0; i < c->sessions; i++)
        if (strcmp(c->session[i].unit, unit) == 0)
            return &c->session[i];
    return NULL;
}

static void forget_session(struct totals *c, struct totals_session *s)
{
    free(s->peer);
    *s = c->session[--c->sessions];
    c->dirty = true;
}

static void end_session(struct totals *c, struct totals_session *s, uint32_t cause)
{
    s->over = true;
    s->ranks = s->stalls = s->silence_ms = 0;
    c->ended[cause]++;
    c->dirty = true;
}

struct totals_session *totals_new(struct totals *c, const char *unit, uid_t uid, uint64_t since,
                                  uint64_t now_ms)
{
    struct totals_session *more =
        c->sessions < 2 * LEASES_MAX ? reallocarray(c->session, c->sessions + 1, sizeof *more) : NULL;
    if (!more)
        return NULL;
    c->session = more;
    more += c->sessions++;
    *more = (struct totals_session){.uid = uid, .since = since, .began_ms = now_ms, .heard_ms = now_ms};
    snprintf(more->unit, sizeof more->unit, "%s", unit);
    c->dirty = true;
    return more;
}

void totals_began(struct totals *c, const struct lease *lease, uint64_t now_ms)
{
    struct totals_session *s = find_session(c, lease->unit);
    if (s && s->uid == lease->uid && s->since == lease->since && s->left_ms == 0)
        return; /* its first report was faster, or it comes from the file */
    if (s && !s->over)
        end_session(c, s, HVD__CAUSE__CAUSE_SESSION_LOST);
    if (s)
        forget_session(c, s);
    (void)totals_new(c, lease->unit, lease->uid, lease->since, now_ms);
}

static void add_kinds(struct totals *c, struct totals_session *s, const Hvd__SessionReport *r,
                      uint64_t seconds)
{
    for (size_t i = 0; i < r->n_collective; i++) {
        const Hvd__Collective *from = r->collective[i];
        size_t k = 0;
        while (k < SUM_KINDS && strcmp(sum_kinds[k], from->kind) != 0)
            k++;
        if (k == SUM_KINDS)
            continue;
        uint64_t *total = &c->sum[SUM_KIND + k * SUM_OF_KIND], *of = &s->sum[SUM_KIND + k * SUM_OF_KIND];
        for (size_t f = 0; f < SUM_OF_KIND; f++)
            totals_add(&total[f], &of[f], kind_sum_of(from, &kind_sums[f]),
                       most_in(seconds, kind_sums[f].most));
    }
}

static void add_peers(struct totals *c, struct totals_session *s, const Hvd__SessionReport *r,
                      uint64_t seconds)
{
    char name[SUM_PEER_NAME];
    for (size_t i = 0; i < r->n_peer; i++) {
        totals_name(name, r->peer[i]->host);
        struct totals_peer *of = totals_peer_of(s, name);
        if (!of)
            return;
        struct totals_peer *total = node_peer(c, name, s->uid);
        totals_add(&total->sent, &of->sent, r->peer[i]->sent, most_in(seconds, BYTES_A_SECOND));
        totals_add(&total->received, &of->received, r->peer[i]->received, most_in(seconds, BYTES_A_SECOND));
    }
}

static uint32_t at_most(uint32_t value, uint32_t most)
{
    return value < most ? value : most;
}

int totals_report(struct totals *c, uid_t uid, const Hvd__SessionReport *r, uint64_t now_ms, struct err *e)
{
    struct totals_session *s = find_session(c, r->unit);
    if (!s || s->uid != uid)
        return err_set(e, ERR_PROTOCOL, "reports what it has no lease for");
    if (s->over)
        return 0;
    uint64_t seconds = 1 + (now_ms > s->began_ms ? now_ms - s->began_ms : 0) / 1000;
    s->heard_ms = now_ms;
    s->ranks = at_most(r->ranks, RANKS_MOST);
    s->stalls = at_most(r->stalls, RANKS_MOST);
    s->silence_ms = at_most(r->silence_ms, 24 * 3600 * 1000);
    totals_add(&c->sum[SUM_STARTED], &s->sum[SUM_STARTED], r->started, RANKS_MOST);
    totals_add(&c->sum[SUM_RESTARTS], &s->sum[SUM_RESTARTS], r->epoch > 0, 1);
    totals_add(&c->sum[SUM_MISSED], &s->sum[SUM_MISSED], r->heartbeats_missed, seconds);
    add_kinds(c, s, r, seconds);
    add_peers(c, s, r, seconds);
    c->dirty = true;
    if (r->over)
        end_session(c, s, r->cause < HVD__CAUSE__CAUSE_SESSION_LOST ? r->cause : HVD__CAUSE__CAUSE_FAULT);
    return 0;
}

void totals_left(struct totals *c, const char *unit, uint64_t now_ms)
{
    struct totals_session *s = find_session(c, unit);
    if (s)
        s->left_ms = now_ms ? now_ms : 1;
}

uint64_t totals_settle(struct totals *c, uint64_t now_ms)
{
    uint64_t next = 0;
    for (size_t i = c->sessions; i > 0; i--) {
        struct totals_session *s = &c->session[i - 1];
        uint64_t due = s->left_ms + TOTALS_LAST_MS;
        if (!s->left_ms)
            continue;
        if (!s->over && now_ms < due) {
            next = next && next < due - now_ms ? next : due - now_ms;
            continue;
        }
        if (!s->over)
            end_session(c, s, HVD__CAUSE__CAUSE_SESSION_LOST);
        forget_session(c, s);
    }
    return next;
}

/* ---- telling ------------------------------------------------------------------------------------------- */

static void tell_now(const struct totals *c, uint64_t now_ms, Hvd__NodeNow *now)
{
    for (size_t i = 0; i < c->sessions; i++) {
        const struct totals_session *s = &c->session[i];
        uint64_t age = now_ms > s->heard_ms ? now_ms - s->heard_ms : 0;
        if (s->over || s->left_ms)
            continue;
        now->running++;
        now->ranks += s->ranks;
        now->stalls += s->stalls;
        now->silence_ms = s->silence_ms > now->silence_ms ? s->silence_ms : now->silence_ms;
        now->report_ms =
            age > now->report_ms ? (uint32_t)(age < UINT32_MAX ? age : UINT32_MAX) : now->report_ms;
    }
}

void totals_tell(struct totals *c, uint32_t waiting, uint64_t now_ms, struct totals_message *told)
{
    hvd__node_sums__init(&told->sums);
    hvd__node_now__init(&told->now);
    told->sums.sum = c->sum;
    told->sums.n_sum = SUMS;
    told->sums.ended = c->ended;
    told->sums.n_ended = SUM_CAUSES;
    told->sums.peer = told->list;
    for (size_t i = 0; i <= c->peers; i++) {
        Hvd__PeerTraffic *p = told->list[i] = &told->peer[i];
        hvd__peer_traffic__init(p);
        p->host = c->peer[i].host;
        p->sent = c->peer[i].sent;
        p->received = c->peer[i].received;
    }
    told->sums.n_peer = 1 + c->peers;
    told->now.waiting = waiting;
    tell_now(c, now_ms, &told->now);
}
