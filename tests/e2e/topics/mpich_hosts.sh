# shellcheck shell=bash disable=SC2034,SC2154
# MPICH's programs and PMI-1 across hosts.
hosts=2
limit=90
# shellcheck source=tests/neighbours/neighbours.sh
. "$top/tests/neighbours/neighbours.sh"

# MPICH 4.0 over UCX may hang in MPI_Finalize across hosts, under any launcher: a rank waits in PMI's barrier while another
# still needs it to be connected (its pull request 6596), and says so when the job is ended. Everything before that must be as it must be.
expect_good_up_to_finalize() { # SIZE
    expect_count "$1" "^[0-9]+/$1 good$" "$T/out"
    [ "$status" != 0 ] || return 0
    expect_status 124
    expect_err 'PMPI_Finalize < main'
    expect_count 0 'MPI_Init|Fatal error in internal_([^F]|F[^i])' "$T/err"
}

case_two_hosts() {
    mpich_program mpi_ring
    hvd --timeout 6 -H $H1:2,$H2:2 "$program"
    expect_good_up_to_finalize 4
}

case_by_node() {
    mpich_program mpi_ring
    hvd --timeout 6 --map-by node -H $H1:2,$H2:2 "$program"
    expect_good_up_to_finalize 4
}

slow_uneven_hosts_in_a_row() {
    mpich_program mpi_ring
    local i
    for i in $(seq 8); do
        hvd --timeout 6 -H $H1:1,$H2:2 "$program"
        expect_good_up_to_finalize 3
    done
}

case_abort_on_the_other_host() {
    mpich_program mpi_abort
    hvd -H $H1:2,$H2:2 "$program" 3 7
    expect_status 7
    expect_err "^hvdrun: rank 3 on $H2 .*exit status 7"
}

case_a_rank_of_the_other_host_never_comes() {
    mpich_program mpi_ring
    mark_time
    # shellcheck disable=SC2016
    hvd -H $H1:1,$H2:1 sh -c '[ $PMI_RANK = 1 ] || exec "$0"' "$program"
    expect_within 10
    [ "$status" != 0 ] || fail 'exit status 0'
    expect_err 'rank 1 has ended \(exit status 0\) while others wait for it'
}

case_many_keys() {
    pmi1_program
    hvd -H $H1:2,$H2:2 "$program" join put:2500 fence get:2500 put:1 fence get:1 bye
    expect_status 0
    expect_no_err
    expect_count 4 '^[0-3] good$' "$T/out"
}

case_names() {
    pmi1_program
    hvd -H $H1:1,$H2:1 "$program" join '>cmd=publish_name service=a@ port=p@' '<cmd=publish_result rc=0' \
        '>cmd=publish_name service=b@ port=q@' '<cmd=publish_result rc=0' fence \
        '>cmd=lookup_name service=a0' '<cmd=lookup_result rc=0 info=ok port=p0' \
        '>cmd=lookup_name service=a1' '<cmd=lookup_result rc=0 info=ok port=p1' \
        '>cmd=lookup_name service=b0' '<cmd=lookup_result rc=0 info=ok port=q0' \
        '>cmd=lookup_name service=c' '<cmd=lookup_result rc=-1' bye
    expect_status 0
    expect_count 2 '^[01] good$' "$T/out"
}
