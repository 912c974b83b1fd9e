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

# Each rank starts a daemon of OpenMPI's own. On a busy machine two that start at once fail at times, in MPI_Init.
case_without_pmix_each_is_alone() {
    local times
    mpi_program mpi_ring
    for times in 1 2 3; do
        hvd --rendezvous env -np 2 "$program"
        rm -rf "$T/tmp"/ompi.* # what OpenMPI leaves when it is alone
        grep -q 'An error occurred in MPI_Init' "$T/err" || break
    done
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

# OpenMPI says its errors by PMIx, and nothing on its stderr.
case_errors_of_the_library_are_told() {
    local word
    mpi_program mpi_abort
    hvd --tag rank --report "$T/report.json" -np 2 "$program" 1 0
    expect_status 6
    expect_err '^\[1\]<stderr>:.*An error occurred in MPI_Send'
    expect_err '^\[1\]<stderr>:.*MPI_ERR_RANK: invalid rank'
    expect_err '^hvdrun: rank 1 on localhost .*failed first: MPI_Abort with 6, exit status 6'
    expect_err '^hvdrun:   .*MPI_ERR_RANK: invalid rank'
    for word in '"how": *"MPI_Abort with 6, exit status 6"' 'MPI_ERR_RANK: invalid rank'; do
        grep -q "$word" "$T/report.json" || fail "the report lacks \"$word\": $(head -c 600 "$T/report.json")"
    done
}

case_an_abort_is_named_with_its_code() {
    mpi_program mpi_abort
    hvd -np 2 "$program" 1 300
    expect_status 44
    expect_err '^(with errorcode| *Errorcode:) 300' # of Open MPI 4, of 5
    expect_err '^hvdrun: rank 1 on localhost .*failed first: MPI_Abort with 300, exit status 44'
}

case_a_failed_init_is_told() {
    mpi_program mpi_abort
    hvd --output-filename "$T/words" -np 2 -x OMPI_MCA_pml=nosuch "$program"
    expect_status "$(status_of_failed_init)"
    expect_err "^$(words_of_failed_init)"
    # The other rank may be ended before its library says anything.
    grep -qE "^$(words_of_failed_init)" "$T"/words/rank.[01]/stderr || fail 'no rank has the text in its file'
}

case_killed_ranks_leave_nothing() {
    mpi_program mpi_abort
    # shellcheck disable=SC2016
    start -np 3 sh -c 'echo "pid $$"; exec "$0" -1' "$program"
    until_out 20 '^[0-2] waits$' 3
    [ -n "$(find /dev/shm/hvd-"$(id -u)" -name 'vader_segment*' -o -name 'sm_segment*')" ] || fail "they have no shared memory"
    # shellcheck disable=SC2046 # words
    kill -9 $(sed -n 's/^pid //p' "$T/out") || : # hvdrun may be faster with the others
    stop_status
    expect_status 137
    no_segments
}

no_segments() { # OpenMPI's own place for them is /dev/shm itself
    local left
    left=$(find /dev/shm -maxdepth 1 \( -name 'vader_segment*' -o -name 'sm_segment*' \) -newer "$T/before" -user "$(id -u)")
    [ -z "$left" ] || fail "shared memory of OpenMPI was left: $left"
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
    /usr/bin/python3 -c 'import mpi4py; mpi4py.rc.initialize = False; from mpi4py import MPI; assert "Open MPI" in MPI.Get_library_version()' 2> "$T/python" ||
        skip "no mpi4py with OpenMPI (apt-get install python3-mpi4py)"
}

# ---- more ranks than processors: those who wait must let the others run ----------------------------------------------

one_processor() { # COMMAND...
    taskset -c "$(taskset -cp $$ | sed 's/.*: //; s/[-,].*//')" "$@"
}

case_ranks_that_share_a_processor_take_turns() {
    mpi_program mpi_turns
    run one_processor "$HVDRUN" -np 3 "$program" 1000
    expect_all_good 3
}

# Else the kernel's autogroups keep them apart, and giving a processor away helps nobody.
case_ranks_that_share_a_processor_share_a_session() {
    # shellcheck disable=SC2016
    local say='echo "$(ps -o sid= -p $$) $(ps -o pgid= -p $$) $$"'
    run one_processor "$HVDRUN" -np 2 sh -c "$say"
    [ "$(awk '{ print $1 }' "$T/out" | sort -u | wc -l)" = 1 ] || fail "they have several sessions: $(cat "$T/out")"
    [ "$(awk '$2 == $3 && $1 != $3' "$T/out" | wc -l)" = 2 ] || fail "they do not lead groups: $(cat "$T/out")"
    run one_processor "$HVDRUN" -np 1 sh -c "$say"
    [ "$(awk '$1 == $3' "$T/out" | wc -l)" = 1 ] || fail "it leads no session: $(cat "$T/out")"
    run one_processor "$HVDRUN" -np 2 --pty sh -c "$say"
    [ "$(tr -d '\r' < "$T/out" | awk '$1 == $3' | wc -l)" = 1 ] || fail "the one with the terminal leads no session: $(cat "$T/out")"
}

told() { # WANTED NAME ARGUMENTS of hvdrun, on one processor
    run one_processor "$HVDRUN" "${@:3}" sh -c 'eval "echo \"is ${'"$2"'-unset}\""'
    expect_status 0
    expect_count "$(grep -c . "$T/out")" "^is $1$" "$T/out"
}

case_libraries_are_told_of_too_few_processors() {
    local name
    for name in OMPI_MCA_mpi_oversubscribe MPIR_CVAR_CH4_PROGRESS_THROTTLE; do
        told unset $name -np 1
        told 1 $name -np 2
        told 0 $name -np 2 -x $name=0
    done
    told unset OMPI_MCA_mpi_oversubscribe -np 2 --rendezvous env
    hvd -np "$(nproc)" printenv OMPI_MCA_mpi_oversubscribe
    expect_no "$T/out" . # each has one
}

case_pmix_is_told_of_too_few_processors() {
    [ -e "$BUILD/modules/hvd-pmix" ] || skip "this build has no PMIx (apt-get install libpmix-dev)"
    compiled pmix_job_key pmix_compiler
    run one_processor "$HVDRUN" -np 2 "$program" pmix.ndosub
    expect_sorted true true
    run one_processor "$HVDRUN" -np 2 -x OMPI_MCA_mpi_yield_when_idle=0 "$program" pmix.ndosub
    expect_count 2 '^nothing: ' "$T/out" # OpenMPI 5 would not ask the user
    hvd -np 1 "$program" pmix.ndosub
    expect_count 1 '^nothing: ' "$T/out"
}

case_bound_ranks_count_on_their_processors() {
    "$HVDRUN" --check-build | grep -q '\[X\] topology' || skip 'this build has no hwloc'
    [ "$(nproc)" -ge 2 ] || skip 'needs two processors'
    hvd -np 2 --bind-to core printenv OMPI_MCA_mpi_oversubscribe
    expect_no "$T/out" .
    printf 'rank 0=localhost slot=0\nrank 1=localhost slot=0\n' > "$T/rankfile"
    hvd -np 2 --rankfile "$T/rankfile" printenv OMPI_MCA_mpi_oversubscribe
    expect_sorted 1 1
}

# Bound ranks know which sockets, caches and cores they share; the sets are those of mpirun's ranks, and so is MPI_INFO_ENV.
case_what_bound_ranks_share() {
    "$HVDRUN" --check-build | grep -q '\[X\] topology' || skip 'this build has no hwloc'
    [ "$(nproc)" -ge 2 ] || skip 'needs two processors'
    local bind
    mpi_program mpi_split
    for bind in core socket none; do
        hvd -np 2 --bind-to $bind "$program"
        expect_status 0
        sort "$T/out" > "$T/ours"
        OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun.openmpi --bind-to $bind -np 2 "$program" 2> "$T/mpirun" | sort > "$T/theirs"
        [ -s "$T/theirs" ] || skip "mpirun does not run here: $(tail -n 1 "$T/mpirun")"
        expect_same "$(cat "$T/theirs")" "$(cat "$T/ours")" "the sets of ranks with --bind-to $bind"
    done
}

case_the_keys_of_mpiruns_server() {
    [ -e "$BUILD/modules/hvd-pmix" ] || skip 'this build has no PMIx'
    compiled pmix_keys pmix_compiler
    hvd -np 2 --bind-to none "$program" pmix.appnum pmix.grank pmix.nodeid pmix.lrank job:pmix.node.size job:pmix.offset \
        job:pmix.rankby job:pmix.bindto job:pmix.mapby pmix.cpuset
    expect_status 0
    expect_sorted {0,1}' job:pmix.bindto=NONE' {0,1}' job:pmix.mapby=BYSLOT' {0,1}' job:pmix.node.size=2' {0,1}' job:pmix.offset=0' \
        {0,1}' job:pmix.rankby=SLOT' {0,1}' pmix.appnum=0' '0 pmix.grank=0' '1 pmix.grank=1' '0 pmix.lrank=0' '1 pmix.lrank=1' \
        {0,1}' pmix.nodeid=0' {0,1}' pmix.cpuset: NOT-FOUND'
}

# A launcher in a launcher: the ranks are those of the inner one, and nothing of the outer one is left.
case_launchers_in_launchers() {
    needs_openmpi
    local names='^(OMPI_(COMMAND|ARGV|MCA_(mpi_oversubscribe|initial_wdir|btl_.*_backing_directory))|PMIX_.*)='
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun.openmpi -np 1 "$HVDRUN" -np 1 --rendezvous none env > "$T/in_mpirun" 2> "$T/err"
    expect_no "$T/in_mpirun" "$names"
    hvd -np 1 "$HVDRUN" -np 1 --rendezvous none env
    expect_no "$T/out" "$names"
    OMPI_MCA_btl_vader_backing_directory=/dev/shm hvd -np 1 "$HVDRUN" -np 1 --rendezvous none env
    expect_out '^OMPI_MCA_btl_vader_backing_directory=/dev/shm$'
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 hvd -np 1 --rendezvous none mpirun.openmpi -np 2 echo inner
    expect_sorted inner inner
}

case_quotas_count() {
    local group=/sys/fs/cgroup/cpu/hvd-test-$$
    mkdir "$group" 2> "$T/why" && echo 150000 > "$group/cpu.cfs_quota_us" || skip "the kernel gives no quotas of our own here: $(cat "$T/why")"
    run sh -c 'echo $$ > "$0/cgroup.procs"; exec "$@"' "$group" "$HVDRUN" -np 2 printenv OMPI_MCA_mpi_oversubscribe
    expect_sorted 1 1
    echo 200000 > "$group/cpu.cfs_quota_us"
    run sh -c 'echo $$ > "$0/cgroup.procs"; exec "$@"' "$group" "$HVDRUN" -np 2 printenv OMPI_MCA_mpi_oversubscribe
    expect_no "$T/out" .
    until_true 5 rmdir "$group" 2> /dev/null
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
