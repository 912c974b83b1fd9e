# shellcheck shell=bash disable=SC2034,SC2154
# Tensors on GPUs, with the doubles of CUDA and NCCL: every kind of operation, each result compared by the worker.
limit=40
export LD_LIBRARY_PATH=$BUILD/tests/gpu

# The variables are the doubles', and hvdrun passes none of that name on.
gpu_kinds() { # RANKS GPUS ARGUMENTS...
    local ranks=$1 gpus=$2
    shift 2
    hvd -np "$ranks" env HVD_DOUBLE_GPUS="$gpus" HVD_DOUBLE_TRACE="$T/trace" HVD_DOUBLE_LOG="$T/misuse" "$BUILD/tests/gpu_kinds" "$@"
    expect_status 0
    expect_count "$ranks" '^rank [0-9]+: all right$' "$T/out"
    [ ! -s "$T/misuse" ] || fail "misuse: $(head -n 3 "$T/misuse")"
    # The worker's own stream is all that is not given back.
    expect_count "$ranks" ' left ' "$T/trace"
    expect_count "$ranks" ' left stream 1$' "$T/trace"
}

case_two_gpus() {
    gpu_kinds 2 2 4 2000
    grep -q ' ncclAllReduce ' "$T/trace" || fail "NCCL did nothing"
}

case_four_gpus_and_sets() {
    gpu_kinds 4 4 4 500
    grep -q ' ncclAllReduce ' "$T/trace" || fail "NCCL did nothing"
}

# NCCL refuses two ranks on one GPU: what they do goes through host memory. (A rank alone in its set has one.)
case_one_gpu_for_three_ranks() {
    gpu_kinds 3 1 4 2000
    expect_count 1 ' ncclCommInitRankConfig' "$T/trace"
}

case_a_rank_alone_without_hvdrun() {
    HVD_DOUBLE_TRACE=$T/trace HVD_DOUBLE_LOG=$T/misuse "$BUILD/tests/gpu_kinds" 4 2000 > "$T/out" 2> "$T/err"
    expect_same 'rank 0: all right' "$(cat "$T/out" "$T/err")" 'the output'
    [ ! -s "$T/misuse" ] || fail "misuse: $(head -n 3 "$T/misuse")"
    grep -q ' nccl' "$T/trace" && fail "NCCL was asked"
    return 0
}

slow_many_ranks_and_rounds() {
    gpu_kinds 8 8 60 30000
    rm "$T/trace"
    gpu_kinds 6 3 30 30000
}
