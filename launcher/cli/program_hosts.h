/* -H of each program, as mpirun has it:
 *
 *   hvdrun -np 1 -H a ./x : -np 2 -H b:2 ./y
 *
 * The hosts of the job are those of all programs; a program without -H may run on any of them. Each program
 * takes the slots that its own -H gives it, and all together no more of a host than the largest number that
 * was said of it. If a hostfile or a batch system names the hosts of the job, -H chooses among them. */
#ifndef HVD_LAUNCHER_CLI_PROGRAM_HOSTS_H
#define HVD_LAUNCHER_CLI_PROGRAM_HOSTS_H

#include <stdbool.h>

#include "common/base/err.h"
#include "launcher/cli/config.h"
#include "launcher/plan/hosts.h"

/* A program behind the first ':' has hosts of its own. */
bool program_hosts_any(const struct programs *p);
/* Adds the programs' hosts to those that are known already, or finds them there when these are `all`, and
 * notes in config->programs which program may run where. ERR_USAGE. */
int program_hosts_join(struct config *config, struct host_list *hosts, bool all, struct err *e);

#endif
