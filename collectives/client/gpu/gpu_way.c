/* Which way a team's operations go, what is in the way of NCCL, and who hears of it.
 *
 * Each reason belongs to one rank, the same for all: that one says it, so that the line has its host. A user
 * who asked for nothing else expects NCCL, so host memory is a warning, or the end of the job:
 * --gpu-require-nccl. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "collectives/client/gpu/gpu.h"

void device_way_blame(struct device_team *team, uint32_t index, const char *remedy, const char *fmt, ...)
{
    size_t used;
    va_list args;

    team->blamed = index;
    team->remedy = remedy;
    snprintf(team->why.text, sizeof team->why.text, "rank %u ", team->team->rank[index]);
    used = strlen(team->why.text);
    va_start(args, fmt);
    vsnprintf(team->why.text + used, sizeof team->why.text - used, fmt, args);
    va_end(args);
}

/* Two ranks with one GPU, which NCCL refuses; -1: there are none. */
static int find_double(const struct device_team *team, uint32_t *other)
{
    for (uint32_t i = 0; i < team->team->size; i++)
        for (*other = i + 1; *other < team->team->size; ++*other)
            if (memcmp(team->cards[i].gpu, team->cards[*other].gpu, sizeof team->cards[i].gpu) == 0 &&
                team->cards[i].host == team->cards[*other].host)
                return (int)i;
    return -1;
}

/* The engines do it if all can; then it is their abilities that count. The id that they meet by is made here,
 * by the first rank, and means something to NCCL of the same version only. */
static void choose_placement(struct device_team *team)
{
    uint32_t n = team->team->size, engines = 0;

    for (uint32_t i = 0; i < n; i++)
        engines +=
            team->cards[i].by_engine == 1 && team->cards[i].engine.nccl == team->cards[0].abilities.nccl;
    team->by_engine = engines == n;
    for (uint32_t i = 0; team->by_engine && i < n; i++) {
        team->cards[i].abilities = team->cards[i].engine;
        team->cards[i].host = team->cards[i].engine_host;
    }
}

/* false: the rank is in the way. */
static bool suits(struct device_team *team, uint32_t i)
{
    const struct device_card *first = &team->cards[0];
    struct device_card *card = &team->cards[i];

    card->remedy[sizeof card->remedy - 1] = '\0'; /* it came from another process */
    if (card->abilities.nccl == 0)
        device_way_blame(team, i, card->remedy, "cannot use NCCL: %.*s", (int)sizeof card->why, card->why);
    else if (card->abilities.nccl != first->abilities.nccl)
        device_way_blame(team, i, DEVICE_INSTALL, "has NCCL %s, rank %u has %s",
                         nccl_version_text(card->abilities.nccl).text, team->team->rank[0],
                         nccl_version_text(first->abilities.nccl).text);
    else if (card->own_context && !team->by_engine)
        device_way_blame(
            team, i, DEVICE_USE_PRIMARY,
            "has its memory in a CUDA context of its own, NCCL works in the primary one of a GPU");
    else
        return true;
    return false;
}

bool device_way_is_free(struct device_team *team)
{
    uint32_t n = team->team->size, other;
    int one;

    choose_placement(team);
    team->all = team->cards[0].abilities;
    for (uint32_t i = 1; i < n; i++)
        team->all = device_abilities_meet(team->all, team->cards[i].abilities);
    for (uint32_t i = 0; i < n; i++)
        if (!suits(team, i))
            return false;
    if ((one = find_double(team, &other)) < 0)
        return true;
    device_way_blame(team, (uint32_t)one, DEVICE_SHARE, "has the same GPU as rank %u%s",
                     team->team->rank[other], nccl_why_not_shared(team->all.nccl).text);
    return false;
}

static void name_team(const struct team *team, char *name, size_t size)
{
    if (team->id >= 0)
        snprintf(name, size, "process set %d", team->id);
    else
        snprintf(name, size, "ranks %u and %u", team->rank[0], team->rank[1]);
}

void device_way_say(const struct device_team *team)
{
    bool nccl = team->fsm.state == TEAM_NCCL;
    uint32_t me = own_index(team->team);
    char name[48];

    name_team(team->team, name, sizeof name);
    if (nccl && me == 0)
        rpc_note(LOG_INFO, "%s: GPU tensors go by NCCL %s%s", name, nccl_version_text(team->all.nccl).text,
                 team->by_engine ? " in the engine" : "");
    if (nccl || me != team->blamed)
        return;
    if (!client.region.requires_nccl) {
        bool repeats = team->team->id < 0 && device.warned; /* of two ranks, of which there may be many */
        device.warned = true;
        rpc_note(repeats ? LOG_INFO : LOG_WARNING, "%s: GPU tensors go through host memory: %s; %s", name,
                 team->why.text, team->remedy);
        return;
    }
    rpc_note(LOG_ERROR, "%s cannot use NCCL (--gpu-require-nccl): %s; %s", name, team->why.text,
             team->remedy);
    device_break("in %s, which cannot use NCCL (--gpu-require-nccl): %s; %s", name, team->why.text,
                 team->remedy);
}
