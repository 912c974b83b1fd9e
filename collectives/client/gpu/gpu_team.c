/* How a team comes to a communicator of NCCL, or to none.
 *
 * When its first operation's turn has come, which is the same one at all ranks, each rank tells all what it
 * is able to and which GPU it has: one allgather of host memory, under a name of the library's own. If all
 * can, NCCL connects; meanwhile all tell again and again how far they are, as soon as NCCL has an end with it
 * and else after a moment. Only when it is there everywhere NCCL is used; when it has failed somewhere, which
 * NCCL itself tells nobody else, all give it up. Then the team's operations go through host memory for as
 * long as it lives. Nobody waits for any of it: operations lie in the queue meanwhile, and other teams go on.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/client/gpu/gpu.h"

#define TELL_NS  (50 * NSEC_PER_MSEC) /* between two rounds of telling, while nothing has changed */
#define LEAVE_NS (10 * NSEC_PER_SEC)  /* for what is under way at the end */

enum { EV_WANTED, EV_ABLE, EV_UNABLE, EV_TOLD, EV_GOOD, EV_BAD, EV_AGAIN };
enum { VERDICT_OPEN = INT32_MAX - 1, VERDICT_GOOD }; /* or the index of a rank that cannot; the least holds */

static const char *const state_names[] = {"new", "exchanging", "connecting", "judging", "nccl", "stages"};
static const char *const event_names[] = {"wanted", "able", "unable", "told", "good", "bad", "again"};

/* ---- agreements ---------------------------------------------------------------------------------------- */

static void ask(struct device_team *team, const struct request *r)
{
    team->asking = device_host_begin(team->head, r) == HVD_SUCCESS;
    if (!team->asking)
        device_break("%s", hvd_last_error());
}

/* true: the answer is there. What fails fails the job. */
static bool answered(struct device_team *team)
{
    int status;

    if (!team->asking || !device_host_ended(team->head, &status))
        return false;
    team->asking = false;
    if (status != HVD_SUCCESS && !region_poisoned(&client.region))
        device_break("%s", team->head->text);
    return status == HVD_SUCCESS;
}

static void cannot(struct device_card *card, const char *remedy, const char *why)
{
    card->abilities.nccl = 0;
    snprintf(card->why, sizeof card->why, "%.*s", (int)sizeof card->why - 1, why);
    snprintf(card->remedy, sizeof card->remedy, "%s", remedy);
}

static void describe(const struct device_team *team, struct device_card *mine)
{
    struct err e = ERR_INIT;

    if (!device.nccl)
        device.nccl = nccl_open(&device.no_nccl);
    mine->abilities =
        device_abilities(device.nccl, &team->context->what, team->context->pack, client.region.fuse);
    if (!device.nccl)
        cannot(mine, DEVICE_INSTALL, device.no_nccl.text);
    else if (own_index(team->team) == 0 && communicator_id(device.nccl, &mine->id, &e) != 0)
        cannot(mine, DEVICE_DEBUG, e.text);
    mine->own_context = !team->context->primary;
    mine->by_engine = mine->abilities.nccl > 0 && device_engine_has(team->context);
    mine->engine = device_engine_abilities(team->context);
    mine->engine_host = team->context->engine.host;
    memcpy(mine->gpu, team->context->what.uuid, sizeof mine->gpu);
    mine->host = nccl_host_of(mine->abilities.nccl, client.region.rank[0], (uint32_t)client.rank);
}

static void exchange(void *owner)
{
    struct device_team *team = owner;
    struct device_card *mine = &team->mine;
    struct err e = ERR_INIT;

    memset(mine, 0, sizeof *mine);
    if (device_team_settles_down(team, &e) == 0)
        describe(team, mine);
    else
        cannot(mine, "every rank with tensors on GPUs needs one", e.text);
    ask(team, &(struct request){.team = team->team,
                                .op = {.kind = SHM_ALLGATHER,
                                       .dtype = HVD_UINT8,
                                       .set = team->team->id,
                                       .row = sizeof *mine,
                                       .count = sizeof *mine,
                                       .prescale = 1,
                                       .postscale = 1},
                                .in = mine,
                                .out = team->cards,
                                .room = team->team->size * sizeof *mine});
}

/* ---- the communicator ---------------------------------------------------------------------------------- */

static int connect_here(struct device_team *team, struct err *e)
{
    team->communicator = communicator_new(&(struct communicator_member){.d = device.driver,
                                                                        .n = device.nccl,
                                                                        .pack = team->context->pack,
                                                                        .context = team->context->context,
                                                                        .ordinal = team->context->gpu,
                                                                        .rank = (int)own_index(team->team),
                                                                        .size = (int)team->team->size,
                                                                        .fuse = (size_t)team->all.fuse},
                                          team->label, e);
    return team->communicator ? communicator_connect(team->communicator, &team->cards[0].id, e) : -1;
}

static void connect_all(void *owner)
{
    struct device_team *team = owner;
    struct err e = ERR_INIT;

    team->connects = team->round = clock_now();
    team->verdict = (int32_t)own_index(team->team);
    team->joined = team->by_engine && device_engine_join(team, &e) == 0;
    if (team->joined || (!team->by_engine && connect_here(team, &e) == 0))
        return;
    device_way_blame(team, own_index(team->team), DEVICE_DEBUG, "cannot use NCCL: %s", e.text);
    fsm_post(&team->fsm, EV_TOLD);
}

/* Is it time to tell? Has NCCL come to an end with it, good or not? */
static bool has_verdict(struct device_team *team)
{
    struct err e = ERR_INIT;
    uint64_t now = clock_now();
    enum communicator_state state =
        team->by_engine ? device_engine_state(team) : communicator_poll(team->communicator, &e);
    bool open = state == COMMUNICATOR_CONNECTING || state == COMMUNICATOR_NONE;

    if (team->by_engine)
        err_set(&e, ERR_SYSTEM, "NCCL does not connect in the engine");
    if (open && now - team->connects < client.region.connect_ms * NSEC_PER_MSEC) {
        team->verdict = VERDICT_OPEN;
        return now - team->round >= TELL_NS;
    }
    team->verdict = state == COMMUNICATOR_READY ? VERDICT_GOOD : (int32_t)own_index(team->team);
    if (open)
        device_way_blame(team, own_index(team->team), DEVICE_WAIT, "is not connected by NCCL after %u s",
                         client.region.connect_ms / 1000);
    else if (team->verdict != VERDICT_GOOD)
        device_way_blame(team, own_index(team->team), DEVICE_DEBUG, "cannot use NCCL: %s", e.text);
    return true;
}

static void begin_round(void *owner)
{
    struct device_team *team = owner;

    team->round = clock_now();
}

static void judge(void *owner)
{
    struct device_team *team = owner;

    ask(team, &(struct request){.team = team->team,
                                .op = {.kind = SHM_ALLREDUCE,
                                       .dtype = HVD_INT32,
                                       .op = HVD_MIN,
                                       .set = team->team->id,
                                       .count = 1,
                                       .prescale = 1,
                                       .postscale = 1},
                                .in = &team->verdict,
                                .out = &team->verdict_of_all,
                                .room = sizeof team->verdict_of_all});
}

static void say_way(void *owner)
{
    device_way_say(owner);
}

static void drop_communicator(void *owner)
{
    struct device_team *team = owner;

    if (team->verdict_of_all != (int32_t)own_index(team->team))
        device_way_blame(team, (uint32_t)team->verdict_of_all % team->team->size, DEVICE_DEBUG,
                         "is not connected by NCCL");
    communicator_free(team->communicator); /* aborts it */
    team->communicator = NULL;
    if (team->joined)
        device_engine_leave(team);
    team->joined = false;
    say_way(team);
}

static const struct fsm_row rows[] = {
    {TEAM_NEW, EV_WANTED, TEAM_EXCHANGING, exchange},
    {TEAM_EXCHANGING, EV_ABLE, TEAM_CONNECTING, connect_all},
    {TEAM_EXCHANGING, EV_UNABLE, TEAM_STAGES, say_way},
    {TEAM_CONNECTING, EV_TOLD, TEAM_JUDGING, judge},
    {TEAM_JUDGING, EV_AGAIN, TEAM_CONNECTING, begin_round},
    {TEAM_JUDGING, EV_GOOD, TEAM_NCCL, say_way},
    {TEAM_JUDGING, EV_BAD, TEAM_STAGES, drop_communicator},
};
static const struct fsm_table table = {"team", state_names, event_names, rows, sizeof rows / sizeof *rows};

static uint8_t verdict_event(int32_t least)
{
    return least == VERDICT_GOOD ? EV_GOOD : least == VERDICT_OPEN ? EV_AGAIN : EV_BAD;
}

bool device_team_ready(struct device_team *team)
{
    uint8_t before;

    do {
        before = team->fsm.state;
        switch ((enum device_team_state)before) {
        case TEAM_NEW:
            fsm_post(&team->fsm, EV_WANTED);
            break;
        case TEAM_EXCHANGING:
            if (answered(team))
                fsm_post(&team->fsm, device_way_is_free(team) ? EV_ABLE : EV_UNABLE);
            break;
        case TEAM_CONNECTING:
            if (has_verdict(team))
                fsm_post(&team->fsm, EV_TOLD);
            break;
        case TEAM_JUDGING:
            if (answered(team))
                fsm_post(&team->fsm, verdict_event(team->verdict_of_all));
            break;
        case TEAM_NCCL:
            return true;
        case TEAM_STAGES: /* else the job is about to end: one rank has said so */
            return !client.region.requires_nccl;
        }
    } while (team->fsm.state != before);
    return false;
}

enum device_need device_team_need(const struct device_team *team)
{
    if (team->fsm.state == TEAM_CONNECTING)
        return DEVICE_POLL;
    if (team->asking)
        return DEVICE_BELL;
    return team->first && team->first->phase == DEVICE_LAUNCHING && !team->by_engine ? DEVICE_POLL
                                                                                     : DEVICE_ALARM;
}

/* ---- made and freed ------------------------------------------------------------------------------------ */

int device_team_equip(struct device_team *team, struct device_context *context, struct err *e)
{
    int rc = device_enter(context, e);

    if (rc == 0) {
        rc = driver_stream(device.driver, &team->stream, e);
        device_leave();
    }
    if (rc == 0)
        team->context = context;
    return rc;
}

static struct device_team *make(const struct team *team, struct device_context *context, struct err *e)
{
    struct device_team *t = calloc(1, sizeof *t);

    if (!t || !(t->cards = calloc(team->size, sizeof *t->cards))) {
        free(t);
        err_set(e, ERR_MEMORY, "no memory for devices of process set %d", team->id);
        return NULL;
    }
    t->team = team;
    snprintf(t->label, sizeof t->label, "set %d", team->id);
    fsm_init(&t->fsm, &table, t, t->label, TEAM_NEW);
    if (context && device_team_equip(t, context, e) != 0) {
        device_team_free(t);
        return NULL;
    }
    return t;
}

struct device_team *device_team_find(const struct team *team, struct device_context *context)
{
    struct err e = ERR_INIT;
    struct device_team *t;
    struct tensor *head;

    for (t = device.teams; t && t->team != team; t = t->next)
        ;
    if (t && context && !t->context && device_team_equip(t, context, &e) != 0) {
        fail(HVD_ERR_SYSTEM, "%s", e.text);
        return NULL;
    }
    if (t)
        return t;
    if (tensor_find(team, SHM_DEVICE_NAME, &head) != HVD_SUCCESS)
        return NULL;
    if (device_thread_start() != HVD_SUCCESS)
        return NULL;
    if (!(t = make(team, context, &e))) {
        fail(HVD_ERR_SYSTEM, "%s", e.text);
        return NULL;
    }
    t->head = head;
    t->order = order_start(head->slot);
    t->next = device.teams;
    return device.teams = t;
}

static bool is_busy(const struct device_team *team)
{
    bool is = false;

    if (device_enter(team->context, NULL) == 0) {
        is = device.driver->cuStreamQuery(team->stream) == CU_NOT_READY;
        device_leave();
    }
    return is;
}

/* Likewise; the engine's communicator ends, and what the team's stream waits for. */
static void leave_engine(struct device_team *team)
{
    uint64_t until = clock_now() + LEAVE_NS;
    enum communicator_state state;

    device_engine_leave(team);
    do
        state = device_engine_state(team);
    while (!device.failed && !region_poisoned(&client.region) && state != COMMUNICATOR_FINISHED &&
           state != COMMUNICATOR_ABORTED && clock_now() < until && poll(NULL, 0, 1) == 0);
    while (is_busy(team) && clock_now() < until && poll(NULL, 0, 1) == 0)
        device_has_failed();
    if (is_busy(team))
        device_engine_release(team);
}

/* What is in the stream may wait for other streams, and those for a rank that is lost: so while it is waited
 * for, failures are seen, and end all that hangs. */
void device_team_settle(struct device_team *team, bool goes_on)
{
    const struct driver *d = device.driver;
    uint64_t until = clock_now() + LEAVE_NS;
    struct err e = ERR_INIT;

    if (!team->stream || device_enter(team->context, &e) != 0)
        return;
    while (!device_has_failed() && d->cuStreamQuery(team->stream) == CU_NOT_READY) {
        if (goes_on)
            device_progress();
        else if (clock_now() > until)
            device_abort(); /* a rank that has left already was lost: nobody says so any more */
        poll(NULL, 0, 1);
    }
    device_leave();
}

/* All ranks come here together, but for those that never will. Without the context it can only be aborted. */
static void leave(struct device_team *team, bool entered)
{
    uint64_t until = clock_now() + LEAVE_NS;
    enum communicator_state state = communicator_state(team->communicator);
    struct err e = ERR_INIT;

    if (entered && !device.failed && communicator_finish(team->communicator, &e) == 0) {
        do
            state = communicator_poll(team->communicator, &e);
        while ((state == COMMUNICATOR_FINISHING || state == COMMUNICATOR_DESTROYING) && clock_now() < until &&
               poll(NULL, 0, 1) == 0);
    }
    if (state != COMMUNICATOR_FINISHED)
        communicator_abort(team->communicator, 2000);
    communicator_free(team->communicator);
}

void device_team_free(struct device_team *team)
{
    bool entered = team->stream && device_enter(team->context, NULL) == 0, settled = false;

    if (team->communicator)
        leave(team, entered);
    if (team->joined)
        leave_engine(team);
    if (entered)
        settled = device.driver->cuStreamSynchronize(team->stream) == CU_OK;
    device_engine_part(team);
    device_lanes_free(team, settled);
    if (entered) {
        device.driver->cuStreamDestroy(team->stream);
        device_leave();
    }
    free(team->known);
    free(team->cards);
    free(team);
}
