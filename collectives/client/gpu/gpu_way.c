/* The way of a team's operations, the reasons against NCCL, and their report.
 *
 * Each reason belongs to one rank, and all ranks agree about that rank: it reports the reason, so the line
 * has its host. Users expect NCCL, so going through host memory is a warning, or with --gpu-require-nccl
 * the end of the job. */
#include "collectives/client/gpu/gpu_team.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "collectives/client/rpc.h"

void gpu_way_blame(struct gpu_team *team, uint32_t index, const char *remedy, const char *fmt, ...)
{
    team->refusal.blamed = index;
    team->refusal.remedy = remedy;
    snprintf(team->refusal.why.text, sizeof team->refusal.why.text, "rank %u ", team->team->rank[index]);
    size_t used = strlen(team->refusal.why.text);
    va_list args;
    va_start(args, fmt);
    vsnprintf(team->refusal.why.text + used, sizeof team->refusal.why.text - used, fmt, args);
    va_end(args);
}

/* Two ranks with one GPU, which NCCL refuses; -1: there are none. */
static int find_double(const struct gpu_team *team, uint32_t *other)
{
    for (uint32_t i = 0; i < team->team->size; i++)
        for (*other = i + 1; *other < team->team->size; ++*other)
            if (memcmp(team->capabilities[i].gpu, team->capabilities[*other].gpu,
                       sizeof team->capabilities[i].gpu) == 0 &&
                team->capabilities[i].host == team->capabilities[*other].host)
                return (int)i;
    return -1;
}

/* The engines do it if all can; then it is their abilities that count. The id that they meet by is made here,
 * by the first rank, and means something to NCCL of the same version only. */
static void choose_placement(struct gpu_team *team)
{
    uint32_t n = team->team->size, engines = 0;
    for (uint32_t i = 0; i < n; i++)
        engines += team->capabilities[i].by_engine == 1 &&
                   team->capabilities[i].engine.nccl == team->capabilities[0].abilities.nccl;
    team->by_engine = engines == n;
    for (uint32_t i = 0; team->by_engine && i < n; i++) {
        team->capabilities[i].abilities = team->capabilities[i].engine;
        team->capabilities[i].host = team->capabilities[i].engine_host;
    }
}

/* false: the rank is in the way. */
static bool can_take_part(struct gpu_team *team, uint32_t i)
{
    const struct gpu_capabilities *first = &team->capabilities[0];
    struct gpu_capabilities *card = &team->capabilities[i];
    card->remedy[sizeof card->remedy - 1] = '\0'; /* it came from another process */
    if (card->abilities.nccl == 0)
        gpu_way_blame(team, i, card->remedy, "cannot use NCCL: %.*s", (int)sizeof card->why, card->why);
    else if (card->abilities.nccl != first->abilities.nccl)
        gpu_way_blame(team, i, GPU_INSTALL, "has NCCL %s, rank %u has %s",
                      nccl_version_text(card->abilities.nccl).text, team->team->rank[0],
                      nccl_version_text(first->abilities.nccl).text);
    else if (card->own_context && !team->by_engine)
        gpu_way_blame(team, i, GPU_USE_PRIMARY,
                      "has its memory in a CUDA context of its own, NCCL works in the primary one of a GPU");
    else
        return true;
    return false;
}

bool gpu_way_check(struct gpu_team *team)
{
    uint32_t n = team->team->size;
    choose_placement(team);
    team->all = team->capabilities[0].abilities;
    for (uint32_t i = 1; i < n; i++)
        team->all = gpu_abilities_meet(team->all, team->capabilities[i].abilities);
    for (uint32_t i = 0; i < n; i++)
        if (!can_take_part(team, i))
            return false;
    uint32_t other;
    int one = find_double(team, &other);
    if (one < 0)
        return true;
    gpu_way_blame(team, (uint32_t)one, GPU_SHARE, "has the same GPU as rank %u%s", team->team->rank[other],
                  nccl_why_not_shared(team->all.nccl).text);
    return false;
}

static void name_team(const struct team *team, char *name, size_t size)
{
    if (team->id >= 0)
        snprintf(name, size, "process set %d", team->id);
    else
        snprintf(name, size, "ranks %u and %u", team->rank[0], team->rank[1]);
}

void gpu_way_report(const struct gpu_team *team)
{
    bool nccl = team->fsm.state == TEAM_NCCL;
    uint32_t me = team_own_index(team->team);
    char name[48];
    name_team(team->team, name, sizeof name);
    if (nccl && me == 0)
        rpc_note(LOG_INFO, "%s: GPU tensors go by NCCL %s%s", name, nccl_version_text(team->all.nccl).text,
                 team->by_engine ? " in the engine" : "");
    if (nccl || me != team->refusal.blamed)
        return;
    if (!client.region.requires_nccl) {
        bool repeats = team->team->id < 0 && gpu_state.warned; /* of two ranks, of which there may be many */
        gpu_state.warned = true;
        rpc_note(repeats ? LOG_INFO : LOG_WARNING, "%s: GPU tensors go through host memory: %s; %s", name,
                 team->refusal.why.text, team->refusal.remedy);
        return;
    }
    rpc_note(LOG_ERROR, "%s cannot use NCCL (--gpu-require-nccl): %s; %s", name, team->refusal.why.text,
             team->refusal.remedy);
    gpu_fail_job("in %s, which cannot use NCCL (--gpu-require-nccl): %s; %s", name, team->refusal.why.text,
                 team->refusal.remedy);
}
