# shellcheck shell=bash disable=SC2034,SC2154
# OpenMPI's programs across hosts.
hosts=2
limit=60
# shellcheck source=tests/neighbours/neighbours.sh
. "$top/tests/neighbours/neighbours.sh"

# Its version 5 finds no way between two addresses of one machine.
needs_a_network() {
    [ "$(openmpi_version)" -lt 5 ] || needs_kind ns
}

case_two_hosts() {
    needs_a_network
    mpi_program mpi_ring
    hvd -H $H1:2,$H2:2 "$program"
    expect_all_good 4
}

case_by_node() {
    needs_a_network
    mpi_program mpi_ring
    hvd --map-by node -H $H1:2,$H2:2 "$program"
    expect_all_good 4
}

case_abort_on_the_other_host() {
    needs_a_network
    mpi_program mpi_abort
    hvd -H $H1:2,$H2:2 "$program" 3 7
    expect_status 7
    expect_err "^hvdrun: rank 3 on $H2 .*MPI_Abort with 7, exit status 7"
    expect_err 'the last words of rank 3'
    expect_err '^(with errorcode| *Errorcode:) 7' # of Open MPI 4, of 5
}

case_errors_of_the_library_on_both_hosts() {
    needs_a_network
    mpi_program mpi_abort
    hvd --tag host -H $H1:2,$H2:2 -x OMPI_MCA_pml=nosuch "$program"
    expect_status "$(status_of_failed_init)"
    expect_err "@($H1|$H2)\\]<stderr>:$(words_of_failed_init)"
    hvd --tag host -H $H1:2,$H2:2 "$program" 3 0
    expect_status 6
    expect_err "^\\[3@$H2\\]<stderr>:.*MPI_ERR_RANK: invalid rank"
    expect_err "^hvdrun: rank 3 on $H2 .*failed first: MPI_Abort with 6"
}
