/* PBS Pro, OpenPBS and Torque: the file of PBS_NODEFILE names a host once for each slot that was asked for
 * there (mpiprocs of a chunk, or ppn). Names come short or full, and a host may come back further down. */
#include "launcher/allocation/allocation.h"

static bool is_inside_pbs(char *const envp[])
{
    return allocation_variable(envp, "PBS_NODEFILE");
}

static int read_hosts(struct host_list *hosts, char *const envp[], uint32_t np, struct err *e)
{
    (void)np;
    return allocation_read_lines(hosts, "PBS_NODEFILE", allocation_variable(envp, "PBS_NODEFILE"), e);
}

const struct scheduler allocation_pbs = {"PBS", "PBS_JOBID", is_inside_pbs, read_hosts, NULL};
