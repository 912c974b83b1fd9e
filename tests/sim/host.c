/* Engines, and around each what its session does: the configuration, the other engines' places, the news of
 * ranks that have ended. The session's end of the socket is ours; what the engine says there is read and not
 * used: everything that ranks need comes by other ways. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "collectives/engine/engine.h"
#include "common/base/log.h"
#include "tests/sim/sim.h"

struct job job;

/* ---- the session --------------------------------------------------------------------------------------- */

void job_say(struct sim_host *h, Hvd__Engine *message, int passed)
{
    struct buf b;
    struct frame f = {.kind = FRAME_CONTROL, .sequence = h->session_sent++};
    uint8_t header[FRAME_HEADER_SIZE], scrap[4096];
    struct err e = ERR_INIT;
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {0};

    while (!job.elastic && recv(h->session, scrap, sizeof scrap, MSG_DONTWAIT) > 0)
        ;
    buf_init(&b, 1u << 20);
    if (message_pack(&message->base, &b, &e) < 0)
        abort();
    f.length = (uint32_t)b.len;
    frame_encode_header(&f, header);
    struct iovec iov[2] = {{header, sizeof header}, {(void *)buf_data(&b), b.len}};
    struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 2};
    if (passed >= 0) {
        msg.msg_control = control.bytes;
        msg.msg_controllen = sizeof control.bytes;
        *CMSG_FIRSTHDR(&msg) = (struct cmsghdr){CMSG_LEN(sizeof passed), SOL_SOCKET, SCM_RIGHTS};
        memcpy(CMSG_DATA(CMSG_FIRSTHDR(&msg)), &passed, sizeof passed);
    }
    if (sendmsg(h->session, &msg, MSG_NOSIGNAL) < 0)
        sim_say("-- the engine of host %u no longer listens to its session", h->fiber.index);
    buf_free(&b);
    fiber_poke(&h->fiber);
}

static void say_config(struct sim_host *h, bool newcomer)
{
    static uint32_t worker[SIM_MEMBERS];
    static uint8_t zeros[AUTH_KEY_SIZE];
    static char name[SIM_HOSTS][2];
    Hvd__HostRanks ranks[SIM_HOSTS], *rank[SIM_HOSTS];
    char *address = (char *)"127.0.0.1";
    Hvd__EngineConfig config = HVD__ENGINE_CONFIG__INIT;
    Hvd__EngineTuning tuning = HVD__ENGINE_TUNING__INIT;
    Hvd__Engine message = HVD__ENGINE__INIT;

    for (uint32_t i = 0; i < job.hosts; i++) {
        rank[i] = &ranks[i];
        hvd__host_ranks__init(rank[i]);
        name[i][0] = (char)('a' + i);
        ranks[i].name = name[i];
        ranks[i].first_rank = job.host[i].first_rank;
        ranks[i].ranks = job.host[i].ranks;
        ranks[i].id = i;
        ranks[i].worker = worker + job.host[i].first_rank;
        ranks[i].n_worker = job.elastic ? ranks[i].ranks : 0;
    }
    for (uint32_t i = 0; i < SIM_MEMBERS; i++)
        worker[i] = i;
    config.elastic = job.elastic;
    config.newcomer = newcomer;
    config.job = (char *)"sim";
    config.epoch = !newcomer;
    config.key = (ProtobufCBinaryData){sizeof zeros, zeros};
    config.token = (ProtobufCBinaryData){WORKER_TOKEN_SIZE, zeros};
    config.size = job.size;
    config.host_index = h->fiber.index;
    config.host = newcomer ? &rank[h->fiber.index] : rank;
    config.n_host = newcomer ? 1 : job.hosts;
    if (newcomer)
        config.host_index = 0;
    config.address = &address;
    config.n_address = 1;
    config.ping_ms = 1000;
    config.log_level = sim_verbose ? LOG_DEBUG : LOG_FATAL;
    tuning.flat_allreduce = job.flat;
    tuning.fusion_given = true;
    tuning.fusion_bytes = job.fusion_bytes;
    config.tuning = &tuning;
    message.body_case = HVD__ENGINE__BODY_CONFIG;
    message.config = &config;
    job_say(h, &message, h->listener);
}

static void say_links(struct sim_host *h)
{
    Hvd__Link links[SIM_HOSTS], *link[SIM_HOSTS];
    Hvd__Links all = HVD__LINKS__INIT;
    Hvd__Engine message = HVD__ENGINE__INIT;

    for (uint32_t i = 0; i < job.hosts; i++) {
        link[i] = &links[i];
        hvd__link__init(link[i]);
        links[i].host = i;
        links[i].port = 1 + i;
    }
    all.link = link;
    all.n_link = job.hosts;
    message.body_case = HVD__ENGINE__BODY_LINKS;
    message.links = &all;
    job_say(h, &message, -1);
}

static void say_ended(struct sim_host *h, const struct sim_member *m)
{
    Hvd__RankEnded ended = HVD__RANK_ENDED__INIT;
    Hvd__Engine message = HVD__ENGINE__INIT;

    ended.rank = m->rank;
    ended.failed = true;
    ended.pid = 1000 + m->rank;
    ended.cause = (char *)"killed by the simulation";
    message.body_case = HVD__ENGINE__BODY_RANK_ENDED;
    message.rank_ended = &ended;
    job_say(h, &message, -1);
}

/* ---- engines ------------------------------------------------------------------------------------------- */

static void run_engine(void *arg)
{
    struct sim_host *h = arg;
    struct err e = ERR_INIT;

    if (engine_loop(h->engine, &e) != 0) {
        h->failed = true;
        fprintf(stderr, "engine %u: %s\n", h->fiber.index, e.text);
    }
}

static void listen_for_workers(struct sim_host *h)
{
    struct sockaddr_un any = {.sun_family = AF_UNIX};

    h->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    h->name_length = sizeof h->name;
    if (h->listener < 0 || bind(h->listener, (struct sockaddr *)&any, sizeof any.sun_family) != 0 ||
        listen(h->listener, SIM_RANKS + 4) != 0 ||
        getsockname(h->listener, (struct sockaddr *)&h->name, &h->name_length) != 0)
        abort();
}

static void start_host(uint32_t i, bool newcomer)
{
    struct sim_host *h = &job.host[i];
    struct err e = ERR_INIT;
    int pair[2];

    h->fiber.role = ROLE_ENGINE;
    h->fiber.host = h->fiber.index = i;
    h->waits = h->session_sent = 0;
    h->failed = false;
    buf_init(&h->heard, 1u << 20);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        abort();
    h->session = pair[0];
    h->engine = engine_new(pair[1], &e);
    if (!h->engine)
        abort();
    h->engine->loop.stay_ns = 0;
    h->engine->options.rank_link = false;
    listen_for_workers(h);
    fiber_start(&h->fiber, run_engine, h);
    say_config(h, newcomer);
}

static bool configured(void)
{
    for (uint32_t i = 0; i < job.hosts; i++)
        if (!job.host[i].engine->configured)
            return false;
    return true;
}

void job_start(void)
{
    struct fiber *fiber[SIM_HOSTS];

    for (uint32_t i = 0; i < job.hosts; i++) {
        start_host(i, false);
        fiber[i] = &job.host[i].fiber;
    }
    if (!sim_run(fiber, job.hosts, configured, sim_now + SEC))
        abort();
    for (uint32_t i = 0; i < job.hosts; i++) {
        close(job.host[i].listener); /* the engine has one */
        say_links(&job.host[i]);
    }
}

void job_add_host(uint32_t ranks)
{
    uint32_t i = job.hosts++;

    job.host[i].first_rank = job.size;
    job.host[i].ranks = ranks;
    job.host[i].die_at_wait = 0;
    start_host(i, true);
    close(job.host[i].listener); /* the engine has one */
}

static void start_member(struct sim_member *m, uint32_t number, uint32_t host, uint32_t local,
                         void (*run)(void *member))
{
    m->fiber.role = ROLE_MEMBER;
    m->fiber.host = host;
    m->fiber.index = m->rank = number;
    m->local = local;
    m->pidfd = -1;
    m->name_length = 0;
    m->ends_at = m->told_at = 0;
    fiber_start(&m->fiber, run, m);
}

void job_add_member(uint32_t host, void (*run)(void *member))
{
    uint32_t number = job.size++;

    job.member[number].fiber.die_at = 0;
    start_member(&job.member[number], number, host, 0, run);
}

void job_kill(struct sim_member *m)
{
    if (m->fiber.state == FIBER_ENDED || m->fiber.state == FIBER_DEAD || m->fiber.state == FIBER_NONE)
        return;
    m->fiber.state = FIBER_DEAD;
    job_died(&m->fiber);
}

void job_start_members(void (*run)(void *member))
{
    for (uint32_t i = 0, rank = 0; i < job.hosts; i++)
        for (uint32_t j = 0; j < job.host[i].ranks; j++, rank++)
            start_member(&job.member[rank], rank, i, j, run);
}

/* ---- deaths -------------------------------------------------------------------------------------------- */

void job_engine_dies(struct sim_host *h)
{
    if (job.elastic)
        launcher_host_lost(h->fiber.index);
    net_host_died(h->fiber.index);
    engine_free(h->engine);
    h->engine = NULL;
    h->fiber.state = FIBER_DEAD;
}

void job_died(struct fiber *f)
{
    struct sim_member *m = &job.member[f->index];

    if (f->role == ROLE_ENGINE) {
        job_engine_dies(&job.host[f->index]);
        return;
    }
    m->ends_at = sim_now + 1 + chance_below(&sim_timing, 5 * MSEC);
    m->told_at = sim_now + 1 + chance_below(&sim_timing, 60 * MSEC);
    system_release(f);
    fiber_poke(&job.host[f->host].fiber); /* its sockets are closed */
}

static uint64_t sooner(uint64_t a, uint64_t b)
{
    return a == 0 || (b != 0 && b < a) ? b : a;
}

static bool is_due(uint64_t *at, uint64_t *next)
{
    if (*at > sim_now || *at == 0) {
        *next = sooner(*next, *at);
        return false;
    }
    *at = 0;
    return true;
}

uint64_t job_events(void)
{
    uint64_t next = 0, one = 1;

    for (uint32_t i = 0; i < job.size; i++) {
        struct sim_member *m = &job.member[i];
        if (is_due(&m->ends_at, &next) && m->pidfd >= 0) {
            if (write(m->pidfd, &one, sizeof one) < 0)
                abort();
            fiber_poke(&job.host[m->fiber.host].fiber);
        }
        if (is_due(&m->told_at, &next)) {
            for (uint32_t h = 0; h < job.hosts; h++)
                if (job.host[h].engine)
                    say_ended(&job.host[h], m);
            if (job.elastic)
                launcher_rank_gone(i, false);
        }
    }
    return job.elastic ? sooner(next, launcher_events()) : next;
}

void job_free(void)
{
    for (uint32_t i = 0; i < job.hosts; i++) {
        struct sim_host *h = &job.host[i];
        engine_free(h->engine);
        h->engine = NULL;
        close(h->session);
        buf_free(&h->heard);
        h->fiber.state = FIBER_NONE;
    }
    for (uint32_t i = 0; i < job.size; i++) {
        if (job.member[i].fiber.state != FIBER_ENDED || job.elastic) /* a worker that left keeps its memory */
            system_release(&job.member[i].fiber);
        if (job.member[i].pidfd >= 0)
            close(job.member[i].pidfd);
        job.member[i].fiber.state = FIBER_NONE;
    }
}
