/* The launcher of an elastic job, as launcher/elastic/elastic.c decides: it hears of workers that wait, enter
 * and end, and names memberships. The roster is the production source. Every message to a session takes a
 * time of its own, and arrives in order. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/protocol/frame.h"
#include "common/protocol/message.h"
#include "launcher/elastic/roster.h"
#include "tests/sim/sim.h"

#define NO_HOST UINT32_MAX

struct letter {
    struct letter *next;
    uint64_t due;
    uint32_t host;
    Hvd__Membership *membership;
};

static struct {
    struct roster roster;
    struct letter *letters; /* by time */
    uint64_t last_due[SIM_HOSTS];
    uint64_t consider_at;        /* 0: not */
    uint64_t lost_at[SIM_HOSTS]; /* it will be known then that the host is lost */
    bool gone[SIM_HOSTS];
    bool finishing, gave_up;
    uint32_t reports[SIM_HOSTS];
    uint64_t judge_at, named_at;
} self;

static void consider_soon(void)
{
    uint64_t at =
        sim_now + 1 + chance_below(&sim_timing, chance_one_in(&sim_timing, 3) ? 20 * MSEC : 100 * USEC);

    if (self.consider_at == 0 || at < self.consider_at)
        self.consider_at = at;
}

/* ---- letters ------------------------------------------------------------------------------------------- */

static void post_message(uint32_t host, const Hvd__Membership *m)
{
    struct letter *letter = calloc(1, sizeof *letter), **at = &self.letters;
    size_t room = 1u << 20;

    letter->due = sim_now + 1 + chance_below(&sim_timing, chance_one_in(&sim_timing, 4) ? 30 * MSEC : MSEC);
    if (sim_steady)
        letter->due = sim_now + STEADY_NS;
    if (letter->due <= self.last_due[host])
        letter->due = self.last_due[host] + 1;
    self.last_due[host] = letter->due;
    letter->host = host;
    letter->membership = message_copy(&m->base, &room);
    while (*at && (*at)->due <= letter->due)
        at = &(*at)->next;
    letter->next = *at;
    *at = letter;
}

static void deliver_messages(struct letter *letter)
{
    Hvd__Engine message = HVD__ENGINE__INIT;

    message.body_case = HVD__ENGINE__BODY_MEMBERSHIP;
    message.membership = letter->membership;
    if (job.host[letter->host].engine)
        job_say(&job.host[letter->host], &message, -1);
    message_free(letter->membership);
    free(letter);
}

static void send_membership(bool at_once)
{
    static uint32_t rank[SIM_HOSTS][SIM_MEMBERS], worker[SIM_HOSTS][SIM_MEMBERS];
    static char name[SIM_HOSTS][2];
    Hvd__HostRanks host[SIM_HOSTS], *hosts[SIM_HOSTS];
    Hvd__Link link[SIM_HOSTS], *links[SIM_HOSTS];
    uint32_t index[SIM_HOSTS];
    Hvd__Membership m = HVD__MEMBERSHIP__INIT;
    const struct roster *r = &self.roster;

    memset(index, 0xff, sizeof index);
    for (uint32_t i = 0; i < r->size; i++) {
        uint32_t id = r->worker[r->rank[i]].host;
        if (index[id] == NO_HOST) {
            uint32_t k = index[id] = (uint32_t)m.n_host++;
            hvd__host_ranks__init(hosts[k] = &host[k]);
            hvd__link__init(links[k] = &link[k]);
            name[id][0] = (char)('a' + id);
            host[k].name = name[id];
            host[k].id = id;
            host[k].first_rank = i;
            host[k].rank = rank[k];
            host[k].worker = worker[k];
            link[k].host = k;
            link[k].port = 1 + id;
        }
        Hvd__HostRanks *h = hosts[index[id]];
        h->rank[h->ranks] = i;
        h->worker[h->ranks] = r->rank[i];
        h->n_rank = h->n_worker = ++h->ranks;
    }
    m.number = r->number;
    m.size = r->size;
    m.host = hosts;
    m.link = links;
    m.n_link = m.n_host;
    m.at_once = at_once;
    m.reason = (char *)"a rank has gone";
    self.named_at = sim_now;
    sim_say("-- membership %u: %u ranks on %zu hosts%s", m.number, m.size, m.n_host,
            at_once ? ", at once" : "");
    for (uint32_t i = 0; i < job.hosts; i++) {
        m.host_index = index[i];
        if (!self.gone[i])
            post_message(i, &m);
    }
}

/* ---- decisions ----------------------------------------------------------------------------------------- */

static void end_everybody(bool all)
{
    for (uint32_t i = 0; i < job.size; i++)
        if (all || roster_is_needless(&self.roster, i))
            job_kill(&job.member[i]);
}

static void give_up(void)
{
    sim_say("-- the launcher gives up");
    self.gave_up = true;
    end_everybody(true);
}

static void consider_change(void)
{
    struct roster *r = &self.roster;
    bool broken = roster_is_broken(r);
    bool change =
        roster_all_wait(r) || (roster_is_settled(r) && (roster_has_leavers(r) || roster_ready(r) > 0));

    self.consider_at = 0;
    if (self.finishing)
        end_everybody(false);
    if (self.finishing || self.gave_up)
        return;
    if (roster_staying(r) == 0) {
        give_up();
    } else if (broken || change) {
        if (roster_advance(r, UINT32_MAX) != 0)
            abort();
        send_membership(broken);
    }
}

void launcher_rank_gone(uint32_t worker, bool well)
{
    struct roster *r = &self.roster;
    bool member = roster_rank_of(r, worker) != UINT32_MAX && !r->worker[worker].leaves;

    if (r->worker[worker].phase == ROSTER_GONE)
        return;
    r->worker[worker].phase = ROSTER_GONE;
    if (member && well && !self.finishing) {
        self.finishing = true;
    } else if (member && !well && self.finishing && r->worker[worker].trained && !r->worker[worker].waits) {
        give_up(); /* a rank has failed behind the end of the training */
    }
    consider_soon();
}

static void drop_host(uint32_t host)
{
    if (self.gone[host])
        return;
    sim_say("-- host %u is dropped", host);
    self.gone[host] = true;
    if (job.host[host].engine)
        job_engine_dies(&job.host[host]);
    for (uint32_t i = 0; i < job.size; i++)
        if (job.member[i].fiber.host == host) {
            job_kill(&job.member[i]);
            launcher_rank_gone(i, false);
        }
}

void launcher_host_lost(uint32_t host)
{
    if (!self.gone[host] && self.lost_at[host] == 0)
        self.lost_at[host] = sim_now + 1 + chance_below(&sim_timing, 100 * MSEC);
}

void launcher_let_go(uint32_t host)
{
    for (uint32_t i = 0; i < job.size; i++)
        if (job.member[i].fiber.host == host && self.roster.worker[i].phase != ROSTER_GONE) {
            self.roster.worker[i].leaves = true;
            if (self.roster.worker[i].phase != ROSTER_MEMBER)
                job_kill(&job.member[i]);
        }
    consider_soon();
}

void launcher_worker_added(uint32_t worker, uint32_t host)
{
    if (roster_add(&self.roster, host, 0) != worker)
        abort();
}

static void judge_reports(void)
{
    uint32_t worst = NO_HOST;

    self.judge_at = 0;
    for (uint32_t i = 0; i < job.hosts; i++)
        if (self.reports[i] && !self.gone[i] && (worst == NO_HOST || self.reports[i] >= self.reports[worst]))
            worst = i;
    memset(self.reports, 0, sizeof self.reports);
    if (worst != NO_HOST)
        drop_host(worst);
}

/* ---- words of engines ---------------------------------------------------------------------------------- */

static bool is_in_membership(uint32_t host)
{
    const struct roster *r = &self.roster;

    for (uint32_t i = 0; i < r->size; i++)
        if (r->worker[r->rank[i]].host == host && r->worker[r->rank[i]].phase == ROSTER_MEMBER)
            return true;
    return false;
}

static void hear_message(uint32_t host, const Hvd__Engine *m)
{
    struct roster *r = &self.roster;

    switch (m->body_case) {
    case HVD__ENGINE__BODY_WAITS:
        roster_wait(r, m->waits->rank, m->waits->membership);
        consider_soon();
        break;
    case HVD__ENGINE__BODY_INITIALIZED:
        roster_enter(r, m->initialized->rank, m->initialized->membership);
        if (roster_is_settled(r))
            consider_soon();
        break;
    case HVD__ENGINE__BODY_UNREACHABLE:
        if (!is_in_membership(host) || !is_in_membership(m->unreachable->id) || self.finishing)
            break;
        self.reports[m->unreachable->id]++;
        if (self.judge_at == 0)
            self.judge_at = sim_now + 50 * MSEC;
        break;
    default:
        break;
    }
}

static void listen_to(uint32_t host)
{
    struct sim_host *h = &job.host[host];
    char bytes[4096];
    ssize_t n;
    struct frame f;
    struct err e = ERR_INIT;

    while ((n = recv(h->session, bytes, sizeof bytes, MSG_DONTWAIT)) > 0)
        if (buf_put(&h->heard, bytes, (size_t)n) != 0)
            abort();
    while (frame_decode(&h->heard, &f, &e) > 0) {
        Hvd__Engine *m = message_unpack_engine(f.payload, f.length, &e);
        if (!m)
            abort();
        if (!self.gone[host])
            hear_message(host, m);
        message_free(m);
        buf_consume(&h->heard, FRAME_HEADER_SIZE + f.length);
    }
}

static uint64_t find_sooner(uint64_t a, uint64_t b)
{
    return a == 0 || (b != 0 && b < a) ? b : a;
}

uint64_t launcher_events(void)
{
    for (uint32_t i = 0; i < job.hosts; i++)
        listen_to(i);
    for (uint32_t i = 0; i < job.hosts; i++)
        if (self.lost_at[i] && self.lost_at[i] <= sim_now) {
            self.lost_at[i] = 0;
            drop_host(i);
        }
    while (self.letters && self.letters->due <= sim_now) {
        struct letter *letter = self.letters;
        self.letters = letter->next;
        deliver_messages(letter);
    }
    if (self.judge_at && self.judge_at <= sim_now)
        judge_reports();
    if (self.consider_at && self.consider_at <= sim_now)
        consider_change();
    uint64_t next =
        find_sooner(self.consider_at, find_sooner(self.judge_at, self.letters ? self.letters->due : 0));
    for (uint32_t i = 0; i < job.hosts; i++)
        next = find_sooner(next, self.lost_at[i]);
    return next;
}

/* ---- the job ------------------------------------------------------------------------------------------- */

void launcher_begin(void)
{
    memset(&self, 0, sizeof self);
    if (roster_init(&self.roster, SIM_MEMBERS) != 0)
        abort();
    for (uint32_t i = 0; i < job.hosts; i++)
        for (uint32_t k = 0; k < job.host[i].ranks; k++)
            roster_add(&self.roster, i, k);
    if (roster_begin(&self.roster) != 0)
        abort();
}

void launcher_end(void)
{
    while (self.letters) {
        struct letter *letter = self.letters;
        self.letters = letter->next;
        message_free(letter->membership);
        free(letter);
    }
    roster_free(&self.roster);
}

uint64_t launcher_named_at(void)
{
    return self.named_at;
}

bool launcher_gave_up(void)
{
    return self.gave_up;
}
