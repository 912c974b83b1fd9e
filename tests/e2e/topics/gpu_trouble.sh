# shellcheck shell=bash disable=SC2034,SC2154
# Tensors on GPUs when something fails on one rank: the driver, NCCL, the program. tests/e2e/gpu_trouble.c says more.
limit=40

trouble() { # RANKS GPUS ARGUMENTS...
    work_on_gpus "$1" "$2" gpu_trouble "${@:3}"
}

# Nothing begins on the rank any more, and handles of all ranks end with its sentence.
breaks() { # GPUS WORD LIST SENTENCE [RANK, whose operation "one" alone is in the way]
    [ -z "${REAL_GPU:-}" ] || skip "a real driver fails when it likes"
    trouble 2 "$1" "$2" 1 "$3"
    expect_status 1
    local ranks=${5:-01}
    expect_count ${#ranks} "^one/[$ranks] HVD_ERR_[A-Z]+ .*rank 1.* tensor \"one\": $4" "$T/out"
    [ -n "${5:-}" ] || expect_count 2 "^other/[01] HVD_ERR_[A-Z]+ .*rank 1.* tensor \"one\": $4" "$T/out"
    expect_same 0 "$(awk '$2 == "failed" { failed[$1] = 1; next }
        failed[$1] && $2 ~ /^ncclAllReduce|Async/ { n++ } END { print n + 0 }' "$HVD_DOUBLE_TRACE")" 'begun after the failure'
}

case_a_stream_that_does_not_wait() {
    breaks 2 breaks cuStreamWaitEvent:1 'letting a stream wait for an event: '
}

case_a_result_that_is_not_recorded() {
    breaks 2 breaks cuEventRecord:2 'recording an event: '
}

case_a_copy_that_does_not_begin() {
    breaks 1 breaks16 cuMemcpyDtoHAsync:1 'copying from GPU 0: '
}

case_a_result_that_is_not_copied() {
    breaks 1 breaks16 cuMemcpyHtoDAsync:1 'copying to GPU 0: ' 1
}

# NCCL is aborted all the same.
case_a_context_that_has_gone_when_all_is_given_back() {
    [ -z "${REAL_GPU:-}" ] || skip "a real context stays"
    trouble 2 2 closes cuCtxPushCurrent:1+
    expect_status 0
    expect_count 2 '^closed/[01] HVD_SUCCESS' "$T/out"
    expect_same 0 "$(gpu_calls 'left communicator')" 'communicators left'
}

# What the driver calls when its stream goes on finds nothing that was freed.
case_a_context_that_has_gone_during_a_copy() {
    [ -z "${REAL_GPU:-}" ] || skip "a real context stays"
    trouble 2 1 closes cuCtxPushCurrent:1+
    expect_status 0
    expect_count 2 '^closed/[01] HVD_SUCCESS' "$T/out"
}

case_a_result_that_a_join_has_put_aside() {
    trouble 3 3 aside
    expect_status 0
    expect_count 3 '^rank [012]: all right$' "$T/out"
}

case_a_set_that_is_removed_meanwhile() {
    trouble 3 3 set
    expect_status 0
    expect_count 1 '^late/0 HVD_ERR_SET_UNKNOWN tensor "late": process set 1 was removed meanwhile$' "$T/out"
    expect_count 3 '^after/[012] HVD_SUCCESS' "$T/out"
}

# NCCL tells the other ranks nothing.
case_nccl_does_not_begin_on_one_rank() {
    [ -z "${REAL_GPU:-}" ] || skip "a real NCCL begins"
    limit=10
    export HVD_DOUBLE_FAIL=ncclCommInitRankConfig@1:1
    gpus 3
    hvd -np 3 --log-level info "$BUILD/tests/gpu_flow" order 1
    expect_status 0
    expect_count 1 'rank 1 on localhost: process set 0: GPU tensors go through host memory: rank 1 cannot use NCCL: .* connecting: NCCL: ' "$T/err"
}

# The context that such memory is used in is given back.
case_memory_of_no_context() {
    gpus 2
    hvd -np 2 "${on_gpus[@]}" "$BUILD/tests/gpu_memory" nowhere
    expect_status 0
    expect_count 2 '^rank [01]: all right' "$T/out"
    no_gpu_misuse
    [ -n "${REAL_GPU:-}" ] || expect_same "$(gpu_calls cuDevicePrimaryCtxRetain)" \
        $((2 + $(gpu_calls cuDevicePrimaryCtxRelease_v2))) 'contexts retained, but for those of the ranks'
}

captures() { # of so many ranks
    expect_status 0
    expect_count "$1" '^rank [0-9]+: all right$' "$T/out"
    [ -n "${REAL_GPU:-}" ] || expect_count "$1" '^rank [0-9]+: the capture beside hvd_shutdown is whole$' "$T/out"
    expect_count "$1" '^captured/[0-9]+ HVD_ERR_INVALID tensor "x": its stream is being captured into a graph$' "$T/out"
    no_gpu_misuse
}

case_streams_that_are_captured() {
    trouble 2 2 capture
    captures 2
}

case_the_first_operation_beside_a_capture() {
    trouble 2 2 capture-first
    expect_status 0
    expect_count 2 '^rank [01]: all right$' "$T/out"
    expect_out '^rank 1: the capture is spoilt$'
    expect_err 'host memory: rank 1 cannot use NCCL: .*; do an operation of the process set before a stream is captured$'
}

case_a_stream_that_is_captured_by_a_rank_alone() {
    gpus 1
    "$BUILD/tests/gpu_trouble" capture > "$T/out" 2> "$T/err"
    status=$?
    captures 1
}

slow_streams_that_are_captured_and_engines() {
    gpus 2
    hvd -np 2 --gpu-placement engine "${on_gpus[@]}" "$BUILD/tests/gpu_trouble" capture
    captures 2
}
