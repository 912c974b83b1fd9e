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

case_without_pmix_each_is_alone() {
    mpi_program mpi_ring
    hvd --rendezvous env -np 2 "$program"
    rm -rf "$T/tmp"/ompi.* # what OpenMPI leaves when it is alone
    expect_count 2 '^0/1 good$' "$T/out"
}

case_abort_ends_with_its_code() {
    mpi_program mpi_abort
    hvd -np 3 "$program" 1 7
    expect_status 7
    expect_err '^hvdrun: rank 1 on localhost .*exit status 7'
    expect_err 'the last words of rank 1'
    no_segments
}

case_killed_ranks_leave_nothing() {
    mpi_program mpi_abort
    # shellcheck disable=SC2016
    start -np 3 sh -c 'echo "pid $$"; exec "$0" -1' "$program"
    until_out 20 '^[0-2] waits$' 3
    [ -n "$(find /dev/shm/hvd-"$(id -u)" -name 'vader_segment*')" ] || fail "they have no shared memory"
    # shellcheck disable=SC2046 # words
    kill -9 $(sed -n 's/^pid //p' "$T/out") || : # hvdrun may be faster with the others
    stop_status
    expect_status 137
    no_segments
}

no_segments() { # OpenMPI's own place for them is /dev/shm itself
    [ -z "$(find /dev/shm -maxdepth 1 -name 'vader_segment*' -newer "$T/before" -user "$(id -u)")" ] ||
        fail "shared memory of OpenMPI was left: $(find /dev/shm -maxdepth 1 -name 'vader_segment*' -newer "$T/before")"
}

case_objects_of_mpi4py() {
    needs_mpi4py
    hvd -np 4 /usr/bin/python3 "$top/tests/neighbours/mpi_objects.py"
    expect_all_good 4
}

case_spawn_is_refused_clearly() {
    needs_mpi4py
    hvd -np 2 /usr/bin/python3 "$top/tests/neighbours/mpi_objects.py" spawn
    expect_status 0
    expect_count 2 '^[01]/2 good$' "$T/out"
    expect_count 1 'MPI_Comm_spawn and PMIx_Spawn are not offered' "$T/err"
}

needs_mpi4py() {
    needs_openmpi
    /usr/bin/python3 -c 'from mpi4py import MPI; assert "Open MPI" in MPI.Get_library_version()' 2> "$T/python" ||
        skip "no mpi4py with OpenMPI (apt-get install python3-mpi4py)"
}

# Rank 1 sends what no client sends before it becomes one; nobody else notices.
case_bad_clients() {
    pmix_program
    hvd -np 3 /usr/bin/python3 "$top/tests/neighbours/pmix_garbage.py" "$program" fence
    expect_status 0
    expect_count 3 '^[0-2]/3 good$' "$T/out"
}

case_another_user_is_turned_away() {
    [ "$(id -u)" = 0 ] || skip "needs root"
    pmix_program
    # shellcheck disable=SC2016
    hvd -np 1 sh -c 'setpriv --reuid=65534 --clear-groups "$0" keys; echo $?' "$program"
    expect_out '^PMIx_Init: '
}
