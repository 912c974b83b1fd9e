# shellcheck shell=bash disable=SC2034,SC2154
# OpenMPI's programs on one host: they find each other through PMIx.
limit=60
# shellcheck source=tests/neighbours/neighbours.sh
. "$top/tests/neighbours/neighbours.sh"

case_eight_ranks() {
    mpi_program mpi_ring
    hvd -np 8 "$program"
    expect_all_good 8
}

case_pmix_before_the_workers() {
    mpi_program mpi_ring
    hvd --rendezvous pmix -np 2 "$program"
    expect_all_good 2
}

case_abort_ends_with_its_code() {
    mpi_program mpi_abort
    hvd -np 3 "$program" 1 7
    expect_status 7
    expect_err '^hvdrun: rank 1 on localhost .*exit status 7'
    expect_err 'the last words of rank 1'
}
