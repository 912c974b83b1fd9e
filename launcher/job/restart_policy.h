/* --max-restarts: whether another epoch follows the end of one, after how long, and on which hosts. Pure: no
 * I/O. restart.c acts on it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "launcher/job/job.h"
#include "launcher/plan/hosts.h"

/* Whether another epoch follows this one, the `epoch`-th from 0. A job that has never run is not started
 * again: what is wrong with its command, hosts or options will not change by itself. Once it has run,
 * everything is worth a restart but what ends hvdrun itself. */
bool restart_is_worth(const struct job_end *end, uint32_t epoch, uint32_t max_restarts);

/* Seconds to wait when the wait before was of `before` seconds (0: there was none). Begins anew after an
 * epoch whose ranks ran for a minute. */
uint32_t restart_delay(uint32_t before, uint64_t ran_for);

/* Chooses the hosts that the next epoch leaves out. lost[i] is 0 for a host that may be used, else a
 * number that is higher the later the host was lost. While the usable hosts have too little room for the
 * ranks, the hosts that were lost longest ago become usable again: they may have been booted. Returns how
 * many hosts stay lost. */
size_t restart_choose(const struct host_list *hosts, uint32_t *lost, const struct plan_want *want);
