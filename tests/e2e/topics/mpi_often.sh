# shellcheck shell=bash disable=SC2034,SC2154
# OpenMPI's programs a hundred times in a row: none hangs, and nothing is left.
hosts=2
limit=550
# shellcheck source=tests/neighbours/neighbours.sh
. "$top/tests/neighbours/neighbours.sh"

often() { # SIZE ARGUMENTS of hvdrun
    local i size=$1
    shift
    mpi_program mpi_ring
    mark_time
    for i in $(seq 100); do
        hvd "$@" "$program"
        expect_all_good "$size"
    done
    echo "# 100 runs: $(((${EPOCHREALTIME/./} - since) / 100000)) ms each"
}

slow_eight_ranks_here() { often 8 -np 8; }
slow_two_by_two() { often 4 -H $H1:2,$H2:2; }
