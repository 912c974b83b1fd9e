# shellcheck shell=bash disable=SC2034,SC2154
# Tensors on GPUs: the order of operations, what the host waits for, what is refused, deaths. tests/e2e/gpu_flow.c says more.
limit=40

gpu_flow() { # RANKS GPUS ARGUMENTS...
    work_on_gpus "$1" "$2" gpu_flow "${@:3}"
}

# By NCCL nothing of the library waits for a device, but hvd_shutdown once a rank.
case_the_order_differs_between_ranks() {
    gpu_flow 2 2 order 6
    expect_status 0
    [ -n "${REAL_GPU:-}" ] ||
        expect_same "$(awk '/waited/ { n += $4 } END { print n + 2 }' "$T/out")" "$(gpu_calls host-sync)" 'waits of the host'
}

case_the_order_of_four() {
    gpu_flow 4 4 order 6
    expect_status 0
    [ -n "${REAL_GPU:-}" ] ||
        expect_same "$(awk '/waited/ { n += $4 } END { print n + 4 }' "$T/out")" "$(gpu_calls host-sync)" 'waits of the host'
}

case_the_order_through_host_memory() {
    gpu_flow 3 1 order 4
    expect_status 0
}

case_what_is_refused() {
    gpu_flow 2 2 refused
    expect_status 0
    expect_count 2 '^mixed/. HVD_ERR_INVALID tensor "a": one buffer is memory of GPU [01], another one of the host$' "$T/out"
    expect_count 2 '^shared/. HVD_ERR_INVALID tensor "b": a result in shared memory cannot be made of memory of a GPU$' "$T/out"
    expect_count 2 '^bits/. HVD_ERR_INVALID .*: bitwise operations need integers or bool$' "$T/out"
    expect_count 2 '^hosted/. HVD_ERR_INVALID .*: only devices combine such elements$' "$T/out"
    expect_count 2 '^memory/. HVD_ERR_MISMATCH tensor "c": rank 0 asks for .*, in memory of a GPU, rank 1 for .*, in memory of the host$' "$T/out"
    expect_count 2 '^count/. HVD_ERR_MISMATCH tensor "c": rank 0 asks for allreduce sum of 4 int32, rank 1 for .* 5 int32$' "$T/out"
    expect_count 2 '^room/. HVD_ERR_MISMATCH tensor "d": rank 0 has room for 3 rows, the result has 4$' "$T/out"
    expect_count 2 '^after/. HVD_SUCCESS' "$T/out"
}

slow_shutdown_waits_for_what_is_in_the_streams() {
    for placement in worker engine; do
        gpus 2
        hvd -np 2 --gpu-placement "$placement" "${on_gpus[@]}" "$BUILD/tests/gpu_flow" leaves 12000
        expect_status 0
        expect_count 2 '^rank [01]: all right$' "$T/out"
        no_gpu_misuse
    done
}

case_a_rank_that_has_joined() {
    gpu_flow 2 2 joined
    expect_status 0
    expect_count 1 '^nothing/0 HVD_SUCCESS' "$T/out"
    expect_count 1 '^joined/0 HVD_ERR_MISMATCH tensor "x": .*, but rank 1 has joined$' "$T/out"
    expect_count 2 '^after/. HVD_SUCCESS' "$T/out"
}

# It takes no part in the library's own operations that its tensors need, but with the tensors.
case_a_rank_that_joins_while_its_own_are_on_their_way() {
    gpu_flow 3 3 late
    expect_status 0
    expect_count 3 '^rank [012]: all right$' "$T/out"
}

case_host_memory_between_two_on_a_gpu() {
    gpu_flow 2 2 between 20
    expect_status 0
    expect_count 2 '^rank [01]: all right$' "$T/out"
}

# Both events are made, or none: the ranks try again.
case_an_event_that_is_not_made() {
    [ -z "${REAL_GPU:-}" ] || skip "real GPUs make all events"
    export HVD_DOUBLE_FAIL=cuEventCreate:2
    gpu_flow 2 2 tries
    expect_status 0
    expect_count 2 '^first/. HVD_ERR_SYSTEM tensor "x": making an event: ' "$T/out"
    expect_count 2 '^again/. HVD_SUCCESS' "$T/out"
}

case_again_and_what_a_timeline_shows() {
    /usr/bin/python3 -c '' 2> /dev/null || skip "no python3 here"
    gpus 2
    hvd -np 2 --timeline-filename "$T/t.%r.json" "${on_gpus[@]}" "$BUILD/tests/gpu_flow" again
    expect_status 0
    expect_count 2 '^rank [01]: all right$' "$T/out"
    no_gpu_misuse
    # A communicator for each rank's own set; those of all ranks, once more after the new beginning.
    [ -n "${REAL_GPU:-}" ] || expect_same '6 6' "$(gpu_calls ncclCommInitRankConfig) $(gpu_calls ncclCommDestroy)" 'communicators'
    # The set's goes when it is removed, before all ranks do something else.
    [ -n "${REAL_GPU:-}" ] || expect_same 2 "$(awk '$2 == "ncclCommInitRankConfig" { inits[$1]++ } $2 == "ncclCommDestroy" { ends[$1]++ }
        $2 == "ncclAllReduce" && inits[$1] == 2 && ends[$1] == 1 { n++ } END { print n + 0 }' "$HVD_DOUBLE_TRACE")" 'operations after a removal'
    /usr/bin/python3 -c 'import json, sys; print(sorted({e["name"] for e in json.load(open(sys.argv[1])) if e["ph"] in "BX"}))' \
        "$T/t.0.json" > "$T/names"
    expect_count 1 "'ALLREDUCE', .*'NCCL', .*'NEGOTIATE_ALLREDUCE'" "$T/names"
}

case_a_death_frees_the_streams() {
    gpu_flow 3 3 death
    expect_status 137
    expect_count 2 '^rank [01]: free in time, HVD_ERR_PEER: rank 2 on localhost .* killed by signal 9' "$T/out"
}

# The process of a rank ends later than its connections, since it has a GPU. So NCCL's error comes before the session's word.
case_a_death_that_nccl_hears_of_first() {
    export HVD_DOUBLE_HEARS=20
    case_a_death_frees_the_streams
}

case_a_death_frees_who_removes_a_set() {
    gpu_flow 3 3 removed
    expect_status 137
    expect_count 2 '^rank [01]: free in time$' "$T/out"
}

case_the_end_of_the_engine_frees_the_streams() {
    gpu_flow 3 3 engine
    expect_status 125
    expect_count 2 '^rank [01]: free in time, HVD_ERR_ENGINE: this host.s engine has gone' "$T/out"
}

case_a_death_while_others_wait() {
    gpu_flow 3 3 gone
    expect_status 137
    expect_count 2 '^rank [01]: HVD_ERR_PEER: rank 2 on localhost .* killed by signal 9' "$T/out"
}

case_a_death_on_the_way_through_host_memory() {
    [ -z "${REAL_GPU:-}" ] || skip "ranks on a real GPU are given host ids"
    gpu_flow 3 1 gone
    expect_status 137
    expect_count 2 '^rank [01]: HVD_ERR_PEER: rank 2 on localhost .* killed by signal 9' "$T/out"
}

# Said once a set, at the level info.
case_which_way_they_go() {
    [ -z "${REAL_GPU:-}" ] || skip "a real NCCL has a version of its own"
    gpus 2
    hvd -np 2 --log-level info "$BUILD/tests/gpu_flow" again
    expect_status 0
    expect_count 2 'process set 0: GPU tensors go by NCCL 2\.[0-9.]+$' "$T/err"
    expect_count 2 'process set [12]: GPU tensors go by NCCL 2\.[0-9.]+$' "$T/err"
    # shellcheck disable=SC2016 # of the rank
    hvd -np 2 --log-level info sh -c 'test "$HVD_RANK" = 0 || export HVD_DOUBLE_NCCL=21700; exec "$@"' sh "$BUILD/tests/gpu_flow" order 1
    expect_status 0
    expect_count 1 'process set 0: GPU tensors go through host memory: rank 1 cannot use NCCL: NCCL 2\.17\.0 is too old' "$T/err"
}

case_who_has_nothing_goes_with_the_others() {
    gpu_flow 3 3 empty
    expect_status 0
    expect_count 3 '^rank [0-2]: all right$' "$T/out"
    gpu_flow 3 1 empty # through host memory
    expect_status 0
}

# What a GPU is given (tests/gpu/limits.h) is enough on doubles as slow as one, and what doubles are given is not.
slow_the_limits_of_a_gpu() {
    [ -z "${REAL_GPU:-}" ] || skip "the doubles are made slow"
    gpus 3
    export HVD_DOUBLE_REAL=1 REAL_GPU=3
    gpu_flow 3 3 removed
    expect_status 137
    expect_count 2 '^rank [01]: free in time$' "$T/out"
}

slow_the_limits_of_doubles_are_too_short_for_a_gpu() {
    [ -z "${REAL_GPU:-}" ] || skip "the doubles are made slow"
    export HVD_DOUBLE_REAL=1
    gpu_flow 3 3 removed
    expect_count 2 '^rank [01]: free late$' "$T/out"
}
