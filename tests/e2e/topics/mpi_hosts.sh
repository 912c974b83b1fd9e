# shellcheck shell=bash disable=SC2034,SC2154
# OpenMPI's programs across hosts.
hosts=2
limit=60
# shellcheck source=tests/neighbours/neighbours.sh
. "$top/tests/neighbours/neighbours.sh"

case_two_hosts() {
    mpi_program mpi_ring
    hvd -H $H1:2,$H2:2 "$program"
    expect_all_good 4
}

case_by_node() {
    mpi_program mpi_ring
    hvd --map-by node -H $H1:2,$H2:2 "$program"
    expect_all_good 4
}

case_abort_on_the_other_host() {
    mpi_program mpi_abort
    hvd -H $H1:2,$H2:2 "$program" 3 7
    expect_status 7
    expect_err "^hvdrun: rank 3 on $H2 .*exit status 7"
    expect_err 'the last words of rank 3'
}
