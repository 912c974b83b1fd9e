#!/bin/bash
# hvdrun in a batch script of PBS: qsub contrib/pbs.sh
#
# mpiprocs is the number of slots, so of ranks, on each of the two nodes. The nodes are reached by SSH.
#PBS -N train
#PBS -l select=2:ncpus=8:ngpus=4:mpiprocs=4
#PBS -j oe

cd "$PBS_O_WORKDIR" || exit 1
exec hvdrun --verbose ./train --steps 100
