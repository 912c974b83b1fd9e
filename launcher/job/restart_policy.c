#include "launcher/job/restart_policy.h"

#include <string.h>

#define DELAY_FIRST 1 /* seconds */
#define DELAY_MAX   30
#define RAN_WELL    UINT64_C(60000000000) /* ns */

bool restart_is_worth(const struct job_end *end, uint32_t epoch, uint32_t max_restarts)
{
    return end->failed && !end->final && epoch < max_restarts && (end->ran || epoch > 0);
}

uint32_t restart_delay(uint32_t before, uint64_t ran_for)
{
    if (before == 0 || ran_for >= RAN_WELL)
        return DELAY_FIRST;
    return before < DELAY_MAX / 2 ? 2 * before : DELAY_MAX;
}

/* The room that is surely there, and the lowest number of a lost host; UINT32_MAX: none is lost. */
static uint64_t usable_room(const struct host_list *hosts, const uint32_t *lost, const struct plan_want *want,
                            uint32_t *lowest)
{
    uint64_t room = 0;
    *lowest = UINT32_MAX;
    for (size_t i = 0; i < hosts->count; i++) {
        if (!lost[i])
            room += plan_room(&hosts->host[i], want);
        else if (lost[i] < *lowest)
            *lowest = lost[i];
    }
    return room;
}

size_t restart_choose(const struct host_list *hosts, uint32_t *lost, const struct plan_want *want)
{
    uint32_t lowest;
    size_t left_out = 0;
    if (want->rankfile || want->parts) /* they may name each of them */
        memset(lost, 0, hosts->count * sizeof *lost);
    while (usable_room(hosts, lost, want, &lowest) < want->np && lowest != UINT32_MAX)
        for (size_t i = 0; i < hosts->count; i++)
            if (lost[i] == lowest)
                lost[i] = 0;
    for (size_t i = 0; i < hosts->count; i++)
        left_out += lost[i] != 0;
    return left_out;
}
