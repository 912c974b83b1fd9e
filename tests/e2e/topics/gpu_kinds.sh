# shellcheck shell=bash disable=SC2034,SC2154
# Tensors on GPUs: every kind of operation, each result compared by the worker.
limit=40

gpu_kinds() { # RANKS GPUS ARGUMENTS...
    work_on_gpus "$1" "$2" gpu_kinds "${@:3}"
    expect_status 0
    expect_count "$1" '^rank [0-9]+: all right$' "$T/out"
}

# The worker's own stream is all that is not given back.
streams_left() { # RANKS
    [ -z "${REAL_GPU:-}" ] || return 0 # the double counts
    expect_same "$1" "$(gpu_calls left)" 'things left'
    expect_same "$1" "$(gpu_calls 'left stream 1')" 'streams left'
}

case_two_gpus() {
    gpu_kinds 2 2 4 2000
    streams_left 2
    nccl_was_called ncclAllReduce
}

case_four_gpus_and_sets() {
    gpu_kinds 4 4 4 500
    streams_left 4
    nccl_was_called ncclAllReduce
}

# Each round: the small tensors of two groups, and a large one of the second. --fusion-threshold-mb 0: each alone.
case_a_group_is_packed() {
    gpu_kinds 2 2 3 2000 grouped
    [ -n "${REAL_GPU:-}" ] || expect_same 18 "$(gpu_calls ncclAllReduce)" 'calls of ncclAllReduce'
    streams_left 2
    gpu_options=(--fusion-threshold-mb 0)
    gpu_kinds 2 2 3 2000 grouped
    [ -n "${REAL_GPU:-}" ] || expect_same $((18 + 50)) "$(gpu_calls ncclAllReduce)" 'calls of ncclAllReduce, then'
}

# A rank that has no memory to pack in: nobody uses NCCL. (Its sixth allocation is that; five are its tensors.)
case_no_memory_to_pack_in() {
    [ -z "${REAL_GPU:-}" ] || skip "faults are the double's"
    export HVD_DOUBLE_FAIL=cuMemAlloc@1:6
    gpu_options=(--log-level info)
    gpu_kinds 2 2 2 2000 grouped
    expect_same 0 "$(gpu_calls ncclAllReduce)" 'calls of ncclAllReduce'
    expect_err 'rank 1 on localhost: process set 0: GPU tensors go through host memory: rank 1 cannot use NCCL: .* allocating [0-9]+ bytes: '
}

# NCCL refuses two ranks on one GPU: what they do goes through host memory. (A rank alone in its set has one.)
case_one_gpu_for_three_ranks() {
    [ -z "${REAL_GPU:-}" ] || skip "ranks on a real GPU are given host ids"
    gpu_kinds 3 1 4 2000
    expect_same 1 "$(gpu_calls ncclCommInitRankConfig)" communicators
}

# From 2.30 on NCCL takes them when it is told to; an older one is not asked.
case_one_gpu_and_nccl_told_to_share_it() {
    local version
    [ -z "${REAL_GPU:-}" ] || skip "there is one NCCL"
    reach+=(-x NCCL_MULTI_RANK_GPU_ENABLE=1)
    gpu_options=(--log-level info)
    for version in 22809 23003; do
        export HVD_DOUBLE_NCCL=$version
        rm -f "$T/gpu_calls"
        gpu_kinds 2 1 2 500
        case $version in
        22809)
            expect_err 'process set 0: GPU tensors go through host memory: .*\(NCCL 2\.28\.9 does not know NCCL_MULTI_RANK_GPU_ENABLE\)'
            expect_same 0 "$(gpu_calls ncclAllReduce)" 'calls of NCCL 2.28'
            expect_same 0 "$(gpu_calls ncclCommAbort)" 'communicators of NCCL 2.28 that did not connect'
            ;;
        *)
            expect_err 'process set 0: GPU tensors go by NCCL 2\.30\.3$'
            [ "$(gpu_calls ncclAllReduce)" -gt 0 ] || fail "NCCL 2.30 was not used"
            ;;
        esac
    done
}

case_a_rank_alone_without_hvdrun() {
    gpus 1
    "$BUILD/tests/gpu_kinds" 4 2000 > "$T/out" 2> "$T/err"
    expect_same 'rank 0: all right' "$(cat "$T/out" "$T/err")" 'the output'
    no_gpu_misuse
    [ -n "${REAL_GPU:-}" ] || expect_same 0 "$(gpu_calls 'nccl.*')" 'calls of NCCL'
}

# The same in memory of hvd_alloc_device: each is known to NCCL from its first operation on, but that which makes the communicator.
case_memory_that_nccl_knows() {
    export GPU_ARENA=1
    reach+=(-x GPU_ARENA)
    gpu_kinds 2 2 3 500
    streams_left 2
    [ -n "${REAL_GPU:-}" ] || [ "$(grep -c ' op .* registered$' "$HVD_DOUBLE_TRACE")" -gt 20 ] || fail "NCCL knew little of the memory"
}

# Memory over several mappings, as in segments that grow.
case_memory_of_pieces() {
    gpus 2
    hvd -np 2 "${on_gpus[@]}" "$BUILD/tests/gpu_memory" segment
    expect_status 0
    expect_count 2 '^rank [0-9]+: all right' "$T/out"
    no_gpu_misuse
    streams_left 2
}

case_kinds_in_pieces() {
    export GPU_PIECES=1
    reach+=(-x GPU_PIECES)
    gpu_kinds 2 2 2 2000
}

slow_many_ranks_and_rounds() {
    needs_a_gpu_each 8
    gpu_kinds 8 8 60 30000
    [ -n "${REAL_GPU:-}" ] || rm "$HVD_DOUBLE_TRACE"
    gpu_kinds 6 3 30 30000
}
