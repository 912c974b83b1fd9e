/* How a team gets a communicator of NCCL, or none.
 *
 * It begins when the turn of the team's first operation has come, which is the same operation on all ranks.
 * Each rank tells the others its abilities and its GPU: one allgather in host memory, under a name of
 * libhvd's own. If all ranks can use NCCL, NCCL connects. Meanwhile the ranks tell one another again and
 * again how far they are: as soon as NCCL has connected or failed, and otherwise after a moment. NCCL is
 * used only when it has connected everywhere. If it has failed on one rank, which NCCL itself tells no
 * other rank, all ranks give it up. Then the team's operations go through host memory as long as the team
 * lives. No thread waits for any of this: the operations stay in the queue meanwhile, and other teams go
 * on. */
#include "collectives/client/gpu/gpu_team.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/client/gpu/gpu_engine.h"
#include "collectives/client/names.h"
#include "collectives/client/sets.h"

#define TELL_NS  (50 * NSEC_PER_MSEC) /* between two rounds of telling, while nothing has changed */
#define LEAVE_NS (10 * NSEC_PER_SEC)  /* for what is under way at the end */

#define EVENTS(X)                                                                                            \
    X(EV_WANTED, "wanted")                                                                                   \
    X(EV_ABLE, "able")                                                                                       \
    X(EV_UNABLE, "unable") X(EV_TOLD, "told") X(EV_GOOD, "good") X(EV_BAD, "bad") X(EV_AGAIN, "again")
enum { EVENTS(AS_CONSTANT) };
enum {
    VERDICT_OPEN = INT32_MAX - 1,
    VERDICT_GOOD
}; /* or the index of a rank that refuse_nccl; the least holds */

static const char *const state_names[] = {TEAM_STATES(AS_NAME)};
static const char *const event_names[] = {EVENTS(AS_NAME)};

/* ---- agreements ---------------------------------------------------------------------------------------- */

static void begin_agreement(struct gpu_team *team, const struct request *r)
{
    team->asking = gpu_host_begin(team->head, r) == HVD_SUCCESS;
    if (!team->asking)
        gpu_fail_job("%s", hvd_last_error());
}

/* true: the agreement has ended well. An agreement that fails ends the job. */
static bool has_agreed(struct gpu_team *team)
{
    int status;
    if (!team->asking || !gpu_host_ended(team->head, &status))
        return false;
    team->asking = false;
    if (status != HVD_SUCCESS && !region_poisoned(&client.region))
        gpu_fail_job("%s", team->head->text);
    return status == HVD_SUCCESS;
}

static void refuse_nccl(struct gpu_capabilities *card, const char *remedy, const char *why)
{
    card->abilities.nccl = 0;
    snprintf(card->why, sizeof card->why, "%.*s", (int)sizeof card->why - 1, why);
    snprintf(card->remedy, sizeof card->remedy, "%s", remedy);
}

static void describe_rank(const struct gpu_team *team, struct gpu_capabilities *mine)
{
    struct err e = ERR_INIT;
    gpu_open_nccl();
    mine->abilities =
        gpu_abilities(gpu_state.nccl, &team->context->what, team->context->pack, client.region.fuse);
    if (!gpu_state.nccl)
        refuse_nccl(mine, GPU_INSTALL, gpu_state.no_nccl.text);
    else if (team_own_index(team->team) == 0 && communicator_id(gpu_state.nccl, &mine->id, &e) != 0)
        refuse_nccl(mine, GPU_DEBUG, e.text);
    mine->own_context = !team->context->primary;
    mine->by_engine = mine->abilities.nccl > 0 && gpu_engine_has(team->context);
    mine->engine = gpu_engine_abilities(team->context);
    mine->engine_host = team->context->exports.engine.host;
    memcpy(mine->gpu, team->context->what.uuid, sizeof mine->gpu);
    mine->host = nccl_host_of(mine->abilities.nccl, client.region.rank[0], (uint32_t)client.rank);
}

static void exchange_capabilities(void *owner)
{
    struct gpu_team *team = owner;
    struct gpu_capabilities *mine = &team->own;
    struct err e = ERR_INIT;
    memset(mine, 0, sizeof *mine);
    if (gpu_team_choose_gpu(team, &e) == 0)
        describe_rank(team, mine);
    else
        refuse_nccl(mine, "every rank with tensors on GPUs needs one", e.text);
    begin_agreement(team, &(struct request){.team = team->team,
                                            .op = {.kind = SHM_ALLGATHER,
                                                   .dtype = HVD_UINT8,
                                                   .set = team->team->id,
                                                   .row = sizeof *mine,
                                                   .count = sizeof *mine,
                                                   .prescale = 1,
                                                   .postscale = 1},
                                            .in = mine,
                                            .out = team->capabilities,
                                            .capacity = team->team->size * sizeof *mine});
}

/* ---- the communicator ---------------------------------------------------------------------------------- */

static int connect_here(struct gpu_team *team, struct err *e)
{
    team->communicator =
        communicator_new(&(struct communicator_member){.d = gpu_state.driver,
                                                       .n = gpu_state.nccl,
                                                       .pack = team->context->pack,
                                                       .context = team->context->context,
                                                       .ordinal = team->context->gpu,
                                                       .rank = (int)team_own_index(team->team),
                                                       .size = (int)team->team->size,
                                                       .fuse = (size_t)team->all.fuse},
                         team->label, e);
    return team->communicator ? communicator_connect(team->communicator, &team->capabilities[0].id, e) : -1;
}

static void connect_all(void *owner)
{
    struct gpu_team *team = owner;
    struct err e = ERR_INIT;
    team->verdict.connects = team->verdict.round = clock_now();
    team->verdict.own = (int32_t)team_own_index(team->team);
    team->bridge.joined = team->by_engine && gpu_engine_join(team, &e) == 0;
    if (team->bridge.joined || (!team->by_engine && connect_here(team, &e) == 0))
        return;
    gpu_way_blame(team, team_own_index(team->team), GPU_DEBUG, "cannot use NCCL: %s", e.text);
    fsm_post(&team->fsm, EV_TOLD);
}

/* NCCL connects in threads of its own, which a capture in the global mode disturbs and is spoilt by. */
static const char *remedy_for(const struct err *e)
{
    return strstr(e->text, "stream is capturing") ? GPU_CAPTURED : GPU_DEBUG;
}

/* Whether NCCL has connected or failed, or the ranks should tell one another that it has not. */
static bool has_verdict(struct gpu_team *team)
{
    struct err e = ERR_INIT;
    uint64_t now = clock_now();
    enum communicator_state state =
        team->by_engine ? gpu_engine_state(team) : communicator_poll(team->communicator, &e);
    bool open = state == COMMUNICATOR_CONNECTING || state == COMMUNICATOR_NONE;
    if (team->by_engine)
        err_set(&e, ERR_SYSTEM, "NCCL does not connect in the engine");
    if (open && now - team->verdict.connects < client.region.connect_ms * NSEC_PER_MSEC) {
        team->verdict.own = VERDICT_OPEN;
        return now - team->verdict.round >= TELL_NS;
    }
    team->verdict.own = state == COMMUNICATOR_READY ? VERDICT_GOOD : (int32_t)team_own_index(team->team);
    if (open)
        gpu_way_blame(team, team_own_index(team->team), GPU_WAIT, "is not connected by NCCL after %u s",
                      client.region.connect_ms / 1000);
    else if (team->verdict.own != VERDICT_GOOD)
        gpu_way_blame(team, team_own_index(team->team), remedy_for(&e), "cannot use NCCL: %s", e.text);
    return true;
}

static void begin_round(void *owner)
{
    struct gpu_team *team = owner;
    team->verdict.round = clock_now();
}

static void exchange_verdicts(void *owner)
{
    struct gpu_team *team = owner;
    begin_agreement(team, &(struct request){.team = team->team,
                                            .op = {.kind = SHM_ALLREDUCE,
                                                   .dtype = HVD_INT32,
                                                   .op = HVD_MIN,
                                                   .set = team->team->id,
                                                   .count = 1,
                                                   .prescale = 1,
                                                   .postscale = 1},
                                            .in = &team->verdict.own,
                                            .out = &team->verdict.least,
                                            .capacity = sizeof team->verdict.least});
}

static void say_way(void *owner)
{
    gpu_way_report(owner);
}

static void drop_communicator(void *owner)
{
    struct gpu_team *team = owner;
    if (team->verdict.least != (int32_t)team_own_index(team->team))
        gpu_way_blame(team, (uint32_t)team->verdict.least % team->team->size, GPU_DEBUG,
                      "is not connected by NCCL");
    communicator_free(team->communicator); /* aborts it */
    team->communicator = NULL;
    if (team->bridge.joined)
        gpu_engine_leave(team);
    team->bridge.joined = false;
    say_way(team);
}

static const struct fsm_row rows[] = {
    {TEAM_NEW, EV_WANTED, TEAM_EXCHANGING, exchange_capabilities},
    {TEAM_EXCHANGING, EV_ABLE, TEAM_CONNECTING, connect_all},
    {TEAM_EXCHANGING, EV_UNABLE, TEAM_STAGES, say_way},
    {TEAM_CONNECTING, EV_TOLD, TEAM_JUDGING, exchange_verdicts},
    {TEAM_JUDGING, EV_AGAIN, TEAM_CONNECTING, begin_round},
    {TEAM_JUDGING, EV_GOOD, TEAM_NCCL, say_way},
    {TEAM_JUDGING, EV_BAD, TEAM_STAGES, drop_communicator},
};
static const struct fsm_table table = {"team", state_names, event_names, rows, sizeof rows / sizeof *rows};

static uint8_t verdict_event(int32_t least)
{
    return least == VERDICT_GOOD ? EV_GOOD : least == VERDICT_OPEN ? EV_AGAIN : EV_BAD;
}

bool gpu_team_ready(struct gpu_team *team)
{
    uint8_t before;
    do {
        before = team->fsm.state;
        switch ((enum gpu_team_state)before) {
        case TEAM_NEW:
            fsm_post(&team->fsm, EV_WANTED);
            break;
        case TEAM_EXCHANGING:
            if (has_agreed(team))
                fsm_post(&team->fsm, gpu_way_check(team) ? EV_ABLE : EV_UNABLE);
            break;
        case TEAM_CONNECTING:
            if (has_verdict(team))
                fsm_post(&team->fsm, EV_TOLD);
            break;
        case TEAM_JUDGING:
            if (has_agreed(team))
                fsm_post(&team->fsm, verdict_event(team->verdict.least));
            break;
        case TEAM_NCCL:
            return true;
        case TEAM_STAGES: /* else the job is about to end: one rank has said so */
            return !client.region.requires_nccl;
        }
    } while (team->fsm.state != before);
    return false;
}

enum gpu_need gpu_team_need(const struct gpu_team *team)
{
    if (team->fsm.state == TEAM_CONNECTING)
        return GPU_POLL;
    if (team->asking)
        return GPU_BELL;
    return team->first && team->first->phase == GPU_LAUNCHING && !team->by_engine ? GPU_POLL : GPU_ALARM;
}

/* ---- made and freed ------------------------------------------------------------------------------------ */

static struct gpu_team *make_team(const struct team *team, struct gpu_context *context, struct err *e)
{
    struct gpu_team *t = calloc(1, sizeof *t);
    if (t)
        t->capabilities = calloc(team->size, sizeof *t->capabilities);
    if (!t || !t->capabilities) {
        free(t);
        err_set(e, ERR_MEMORY, "no memory for devices of process set %d", team->id);
        return NULL;
    }
    t->team = team;
    snprintf(t->label, sizeof t->label, "set %d", team->id);
    fsm_init(&t->fsm, &table, t, t->label, TEAM_NEW);
    if (context && gpu_team_set_context(t, context, e) != 0) {
        gpu_team_free(t);
        return NULL;
    }
    return t;
}

struct gpu_team *gpu_team_find(const struct team *team, struct gpu_context *context)
{
    struct err e = ERR_INIT;
    struct gpu_team *t;
    for (t = gpu_state.teams; t && t->team != team; t = t->next)
        ;
    if (t && context && !t->context && gpu_team_set_context(t, context, &e) != 0) {
        fail(HVD_ERR_SYSTEM, "%s", e.text);
        return NULL;
    }
    if (t)
        return t;
    struct tensor *head;
    if (tensor_keep(team, SHM_DEVICE_NAME, &head) != HVD_SUCCESS)
        return NULL;
    t = make_team(team, context, &e);
    if (!t) {
        fail(HVD_ERR_SYSTEM, "%s", e.text);
        return NULL;
    }
    t->head = head;
    t->order = order_start(head->slot);
    t->next = gpu_state.teams;
    return gpu_state.teams = t;
}

static bool is_busy(const struct gpu_team *team)
{
    bool is = false;
    if (gpu_enter(team->context, NULL) == 0) {
        is = gpu_state.driver->cuStreamQuery(team->stream) == CU_NOT_READY;
        gpu_leave();
    }
    return is;
}

/* Likewise; the engine's communicator ends, and what the team's stream waits for. */
static void leave_engine(struct gpu_team *team)
{
    uint64_t until = clock_now() + LEAVE_NS;
    gpu_engine_leave(team);
    enum communicator_state state;
    do
        state = gpu_engine_state(team);
    while (!gpu_state.failed && !region_poisoned(&client.region) && state != COMMUNICATOR_FINISHED &&
           state != COMMUNICATOR_ABORTED && clock_now() < until && poll(NULL, 0, 1) == 0);
    while (is_busy(team) && clock_now() < until && poll(NULL, 0, 1) == 0)
        gpu_has_failed();
    if (is_busy(team))
        gpu_bridge_release(team);
}

/* All ranks come here together, but for those that never will. Without the context it can only be aborted. */
static void end_communicator(struct gpu_team *team, bool entered)
{
    uint64_t until = clock_now() + LEAVE_NS;
    enum communicator_state state = communicator_state(team->communicator);
    struct err e = ERR_INIT;
    if (entered && !gpu_state.failed && communicator_finish(team->communicator, &e) == 0) {
        do
            state = communicator_poll(team->communicator, &e);
        while ((state == COMMUNICATOR_FINISHING || state == COMMUNICATOR_DESTROYING) && clock_now() < until &&
               poll(NULL, 0, 1) == 0);
    }
    if (state != COMMUNICATOR_FINISHED)
        communicator_abort(team->communicator, 2000);
    communicator_free(team->communicator);
}

void gpu_team_free(struct gpu_team *team)
{
    bool entered = team->stream && gpu_enter(team->context, NULL) == 0, settled = false;
    if (team->communicator)
        end_communicator(team, entered);
    if (team->bridge.joined)
        leave_engine(team);
    if (entered)
        settled = gpu_state.driver->cuStreamSynchronize(team->stream) == CU_OK;
    gpu_bridge_close(team);
    gpu_staging_free(team, settled);
    if (entered) {
        gpu_state.driver->cuStreamDestroy(team->stream);
        gpu_leave();
    }
    free(team->registrations.item);
    free(team->capabilities);
    free(team);
}
