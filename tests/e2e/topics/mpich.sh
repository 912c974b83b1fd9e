# shellcheck shell=bash disable=SC2034,SC2154
# MPICH's programs on one host: they find each other through PMI-1. And what a PMI-1 client may do wrong.
limit=120
# shellcheck source=tests/neighbours/neighbours.sh
. "$top/tests/neighbours/neighbours.sh"

case_four_ranks() {
    mpich_program mpi_ring
    hvd -np 4 "$program"
    expect_all_good 4
}

slow_eight_ranks() {
    mpich_program mpi_ring
    hvd -np 8 "$program"
    expect_all_good 8
}

slow_a_hundred_in_a_row() {
    mpich_program mpi_ring
    local i
    for i in $(seq 100); do
        hvd -np 2 "$program"
        [ "$status" = 0 ] || fail "run $i"
        expect_all_good 2
    done
}

case_abort_ends_with_its_code() {
    mpich_program mpi_abort
    hvd -np 3 "$program" 1 7
    expect_status 7
    expect_err '^hvdrun: rank 1 on localhost .*exit status 7'
}

# It takes its time to end; another rank ends meanwhile, as one does that sees the first one's connections close.
case_the_rank_that_asked_for_the_end_is_the_cause() {
    # shellcheck disable=SC2016 # the ranks' own
    hvd --rendezvous pmi1 -np 2 bash -c 'if [ "$PMI_RANK" = 1 ]; then
            trap "" TERM
            exec 3<> "/dev/tcp/${PMI_PORT/://}"
            printf "cmd=initack pmiid=%s\ncmd=abort exitcode=7\n" "$PMI_ID" >&3
            sleep 0.4
        else
            sleep 0.2
            exit 3
        fi'
    expect_status 7
    expect_err '^hvdrun: rank 1 on localhost .*failed first: MPI_Abort with 7'
}

case_wrapped_by_a_shell_and_by_python() {
    mpich_program mpi_ring
    hvd -np 2 bash -c "true; $program; exit"
    expect_all_good 2
    [ -x /usr/bin/python3 ] || skip 'there is no python3'
    hvd -np 2 /usr/bin/python3 -c 'import subprocess, sys; sys.exit(subprocess.run(sys.argv[1:]).returncode)' "$program"
    expect_all_good 2
}

case_programs_in_a_row() {
    mpich_program mpi_ring
    hvd -np 2 bash -c "$program && $program"
    expect_status 0
    expect_count 4 'good$' "$T/out"
}

case_by_name_and_not_at_all() {
    mpich_program mpi_ring
    hvd --rendezvous pmi1 -np 2 "$program"
    expect_all_good 2
    hvd --rendezvous env,gloo -np 2 env
    expect_status 0
    expect_no "$T/out" '^PMI_|^MPI_LOCAL'
}

case_a_rank_that_never_comes() {
    mpich_program mpi_ring
    mark_time
    # shellcheck disable=SC2016
    hvd -np 3 sh -c '[ $PMI_RANK = 1 ] || exec "$0"' "$program"
    expect_within 5
    [ "$status" != 0 ] || fail 'exit status 0'
    expect_err 'warning: localhost: rank 1 has ended \(exit status 0\) while others wait for it'
}

case_an_end_without_finalize() {
    pmi1_program
    # shellcheck disable=SC2016
    hvd -np 2 sh -c '[ $PMI_RANK = 1 ] && exec "$0" join fence; exec "$0" join fence wait:20000' "$program"
    expect_status 1
    expect_err 'rank 1: its MPI program has ended without MPI_Finalize'
    expect_err '^hvdrun: rank 1 on localhost .*failed first'
    # shellcheck disable=SC2016
    hvd -np 2 sh -c '[ $PMI_RANK = 1 ] && { "$0" join fence; sleep 20; }; exec "$0" join fence wait:20000' "$program"
    expect_status 1
    expect_err '^hvdrun: rank 1 on localhost .*failed first'
}

case_abort_statuses() {
    pmi1_program
    local pair
    for pair in 7:7 0:1 -1:255 256:1 x:1; do
        hvd -np 2 "$program" join ">cmd=abort exitcode=${pair%:*}" wait:20000
        expect_status "${pair#*:}"
    done
}

case_bad_clients() {
    pmi1_program
    # Strangers are shown out; a rank gets an error and goes on; rank 1 notices nothing of either.
    # shellcheck disable=SC2016
    hvd -np 2 sh -c '[ $PMI_RANK = 0 ] || exec "$0" join put:3 fence get:3 bye
        exec "$0" ">garbage" "<cmd=error" eof \
            new ">cmd=put kvsname=x key=a value=b" "<cmd=error" eof \
            new ">cmd=initack pmiid=2" "<cmd=error rc=-1 msg=rank_2_is_not_on_this_host" eof \
            new ">cmd=initack pmiid=-1" "<cmd=error" eof \
            new ">cmd=initack pmiid=1x" "<cmd=error" eof \
            new ">cmd=initack" "<cmd=error" eof \
            new raw:4096 "<cmd=error" eof \
            new ">cmd=initack pmi" half "<cmd=error" eof \
            new half eof \
            new join put:3 ">cmd=nonsense" "<cmd=error rc=-1 msg=unknown" ">" "<cmd=error" ">cmd=init" "<cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=-1" \
            ">cmd=get kvsname=other key=k" "<cmd=get_result rc=-1" ">cmd=put key=k value=v" "<cmd=put_result rc=-1" \
            ">cmd=spawn" "<cmd=error" ">cmd=getbyidx idx=7777" "<cmd=getbyidx_results rc=-2" fence get:3 bye ">cmd=finalize" "<cmd=error"' "$program"
    expect_status 0
    expect_sorted '0 good' '1 good'
}

case_one_rank_is_one_process() {
    pmi1_program
    hvd --on-failure continue -np 2 "$program" join put:1 new '>cmd=initack pmiid=@' '<cmd=error rc=-1 msg=another_process_is_rank_@_already' eof
    expect_status 1 # neither said cmd=finalize
    expect_count 2 good "$T/out"
}

case_a_client_that_does_not_read() {
    pmi1_program
    # shellcheck disable=SC2016
    hvd -np 2 sh -c '[ $PMI_RANK = 0 ] || exec "$0" join put:3 fence get:3 bye
        exec "$0" join put:3 fence get:3 bye new join flood:10000000 wait:100' "$program"
    expect_err 'does not read its answers'
    expect_out '^0 good$'
    expect_out '^1 good$'
}

case_ten_thousand_keys() {
    pmi1_program
    hvd -np 2 "$program" join put:10000 fence get:10000 bye
    expect_status 0
    expect_no_err
    expect_sorted '0 good' '1 good'
}

# MPICH 4.0 over UCX refuses by itself, and asks nobody.
case_spawn_is_refused_clearly() {
    mpich_program mpi_spawn
    hvd -np 2 "$program"
    [ "$status" != 0 ] || fail 'exit status 0'
    expect_count 1 '^hvdrun:.* MPI_Comm_spawn is not offered' "$T/err"
}

case_names_and_spawn() {
    pmi1_program
    hvd -np 2 "$program" join '>cmd=publish_name service=a@ port=p@' '<cmd=publish_result rc=0' \
        '>cmd=publish_name service=a@ port=q' '<cmd=publish_result rc=-1' fence \
        '>cmd=lookup_name service=a1' '<cmd=lookup_result rc=0 info=ok port=p1' fence \
        '>cmd=unpublish_name service=a@' '<cmd=unpublish_result rc=0' \
        '>cmd=lookup_name service=a@' '<cmd=lookup_result rc=-1' \
        '>mcmd=spawn' '>nprocs=1' '>execname=/bin/x y' '>totspawns=2' '>spawnssofar=1' '>endcmd' \
        '>mcmd=spawn' '>nprocs=1' '>execname=z' '>totspawns=2' '>spawnssofar=2' '>endcmd' \
        '<cmd=spawn_result rc=-1 msg=hvdrun_does_not_start_further_processes' bye
    expect_status 0
    expect_sorted '0 good' '1 good'
    expect_count 2 'rank [01] asked for new processes: MPI_Comm_spawn is not offered$' "$T/err"
}
