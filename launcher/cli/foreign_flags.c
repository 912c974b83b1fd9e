/* Flags of other launchers: the hint says what takes their place. */
#include <stddef.h>

#include "launcher/cli/config.h"

#define TORCHRUN  "this is a flag of torchrun"
#define MPIRUN    "this is a flag of mpirun"
#define HYDRA     "this is a flag of MPICH's mpiexec"
#define MPI_TUNES "hvdrun starts no mpirun; Open MPI's own library reads -x OMPI_MCA_NAME=VALUE"

const struct option_refused foreign_flags[] = {
    {"--nproc-per-node, --nproc_per_node", TORCHRUN,
     "torchrun's --nproc-per-node is -np here, the number of all ranks: -np 8 -H node1:4,node2:4"},
    {"--nnodes, --node-rank, --node_rank", TORCHRUN,
     "-H names the hosts, and hvdrun runs once: -H node1:4,node2:4"},
    {"--standalone", TORCHRUN, "without -H all ranks are on this host"},
    {"--rdzv-backend, --rdzv_backend, --rdzv-endpoint, --rdzv_endpoint, --rdzv-id, --rdzv_id, --rdzv-conf, "
     "--rdzv_conf, --master-addr, --master_addr, --master-port, --master_port",
     TORCHRUN, "leave it out: hvdrun chooses address and port"},
    {"-m, --module", TORCHRUN, "python3 -m MODULE is the command: hvdrun -np 2 python3 -m MODULE"},
    {"-machinefile, --machinefile", MPIRUN, "--hostfile FILE takes the same file"},
    {"-mca, --mca, -gmca, --gmca, -pmixmca, --pmixmca, --prtemca", MPIRUN, MPI_TUNES},
    {"-npernode, --npernode, -N, --map-by-node", MPIRUN,
     "--ppr N starts N ranks on each host; -H node1:N,node2:N gives each host its slots"},
    {"--allow-run-as-root, -allow-run-as-root", MPIRUN, "leave it out: hvdrun runs for root as for others"},
    {"-f", HYDRA, "--hostfile FILE takes the same file"},
    {"-ppn, --ppn, -perhost, --perhost", HYDRA, "--ppr N starts N ranks on each host"},
    {"-genv, -env, --genv", HYDRA, "-x NAME=VALUE gives ranks a variable"},
    {"-genvall, -envall, -genvlist, -envlist", HYDRA,
     "leave it out: all ranks get the environment of hvdrun"},
    {NULL, NULL, NULL}};
