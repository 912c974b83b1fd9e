# shellcheck shell=bash disable=SC2034,SC2154
# What CUDA does not forgive on a GPU, and what is said where NCCL cannot be used. tests/e2e/gpu_wrong.c says more.
limit=40

wrong() { # RANKS GPUS ARGUMENTS...
    work_on_gpus "$1" "$2" gpu_wrong "${@:3}"
}

refuses_askew() { # RANKS: nothing was begun
    local ranks=$1
    expect_status 0
    for call in 'in 4 a int32' 'out 4 a float32' 'begun 8 a float64' 'kept 2 a float16' 'group 4 g int32' 'scatters 4 s int32' 'scatter 4 r int32'; do
        # shellcheck disable=SC2086 # words
        set -- $call
        expect_count "$ranks" "^$1/. HVD_ERR_INVALID tensor \"$3\": 0x[0-9a-f]+ in memory of GPU [01] is not aligned: an address of $4 that a GPU combines is a multiple of $2\$" "$T/out"
    done
    for call in small moved none after; do
        expect_count "$ranks" "^$call/. HVD_SUCCESS" "$T/out"
    done
    no_gpu_misuse
}

case_elements_across_their_size() {
    wrong 2 2 askew
    refuses_askew 2
}

case_elements_across_their_size_through_host_memory() {
    wrong 2 1 askew
    refuses_askew 2
}

case_elements_across_their_size_of_a_rank_alone() {
    gpus 1
    "$BUILD/tests/gpu_wrong" askew > "$T/out" 2> "$T/err"
    status=$?
    refuses_askew 1
}

# The driver calls nobody back after a fault: its stream is asked.
faults() { # BITS SENTENCE
    [ -z "${REAL_GPU:-}" ] || skip "a real GPU stays usable"
    wrong 2 2 fault "$1"
    expect_status 1
    expect_count 2 "^fault/[01] after less than 2 s: HVD_ERR_[A-Z]+: rank 1 on localhost .*$2" "$T/out"
}

case_a_fault_before_host_memory() {
    faults 16 'using GPU 1: CUDA_ERROR_ILLEGAL_ADDRESS \(an illegal memory access was encountered\)'
}

case_a_fault_before_nccl() {
    faults 32 'using GPU 1: CUDA_ERROR_ILLEGAL_ADDRESS'
}

# Of a kernel of NCCL: the other rank's waits for it.
case_a_fault_in_the_engine() {
    [ -z "${REAL_GPU:-}" ] || skip "a real GPU stays usable"
    export HVD_DOUBLE_FAIL=ncclKernel@none:3:700
    gpu_options=(--gpu-placement engine)
    wrong 2 2 fault 0
    expect_status 1
    expect_count 2 '^fault/[01] after less than 2 s: HVD_ERR_[A-Z]+: rank [01] on localhost: using a GPU in the engine: CUDA_ERROR_ILLEGAL_ADDRESS \(an illegal memory access was encountered\)' "$T/out"
}

# NCCL's kernels are in the primary context.
case_memory_and_stream_of_another_context() {
    wrong 2 2 foreign 1 1
    expect_status 0
    expect_count 2 '^rank [01]: all right$' "$T/out"
    expect_count 1 'rank 1 on localhost: process set 0: GPU tensors go through host memory: rank 1 has its memory in a CUDA context of its own, .*; allocate it as cudaMalloc does' "$T/err"
}

case_memory_of_another_context() {
    wrong 2 2 foreign 1 0
    expect_status 0
    expect_count 2 '^rank [01]: all right$' "$T/out"
    expect_count 1 'rank 1 has its memory in a CUDA context of its own' "$T/err"
}

case_a_stream_of_another_context() {
    wrong 2 2 foreign 0 1
    expect_status 0
    expect_count 2 '^rank [01]: all right$' "$T/out"
    expect_count 0 'host memory' "$T/err"
}

# The engine has its own.
case_another_context_beside_the_engine() {
    needs_a_gpu_each 2
    gpu_options=(--gpu-placement engine)
    wrong 2 2 foreign 1 1
    expect_status 0
    expect_count 2 '^rank [01]: all right$' "$T/out"
    expect_count 0 'host memory' "$T/err"
}

# The legacy default stream waits for it, and it for that one; more than needed, so the header has a name for it.
case_the_default_stream_of_a_thread() {
    for named in 0 1; do
        wrong 2 2 thread $named
        expect_status 0
        expect_count 2 '^rank [01]: all right$' "$T/out"
    done
}

# ---- why NCCL is not used ----

says_once() { # SENTENCE: at the level that everybody sees
    expect_status 0
    expect_count 2 '^rank [01]: all right$' "$T/out"
    expect_count 1 'GPU tensors go through host memory' "$T/err"
    expect_count 1 "^.*warning.* rank [01] on localhost: process set 0: GPU tensors go through host memory: $1" "$T/err"
}

case_no_nccl_is_said() {
    [ -z "${REAL_GPU:-}" ] || skip "a real NCCL has a version of its own"
    gpus 2
    # shellcheck disable=SC2016 # of the rank
    hvd -np 2 sh -c 'test "$HVD_RANK" = 0 || export HVD_DOUBLE_NCCL=21700; exec "$@"' sh "$BUILD/tests/gpu_wrong" staged 2
    says_once 'rank 1 cannot use NCCL: NCCL 2\.17\.0 is too old: .*; install one version of NCCL, 2\.18 or newer, on all hosts$'
}

case_another_nccl_is_said() {
    [ -z "${REAL_GPU:-}" ] || skip "a real NCCL has a version of its own"
    gpus 2
    # shellcheck disable=SC2016 # of the rank
    hvd -np 2 sh -c 'test "$HVD_RANK" = 0 || export HVD_DOUBLE_NCCL=22700; exec "$@"' sh "$BUILD/tests/gpu_wrong" staged 2
    says_once 'rank 1 has NCCL 2\.27\.0, rank 0 has 2\.28\.9; install one version of NCCL'
}

case_one_gpu_is_said() {
    [ -z "${REAL_GPU:-}" ] || skip "ranks on a real GPU are given host ids"
    wrong 2 1 staged 2
    says_once 'rank 0 has the same GPU as rank 1; give each rank a GPU of its own'
}

case_a_rank_that_nccl_does_not_connect() {
    [ -z "${REAL_GPU:-}" ] || skip "a real NCCL begins"
    export HVD_DOUBLE_FAIL=ncclCommInitRankConfig@1:1
    wrong 2 2 staged 2
    says_once 'rank 1 cannot use NCCL: .*; with NCCL_DEBUG=WARN it says more$'
}

# Rank 1 never comes to the others.
never_connects() {
    [ -z "${REAL_GPU:-}" ] || skip "a real NCCL begins"
    export HVD_DOUBLE_FAIL=ncclCommGetAsyncError@1:1+:7
    gpu_options=("$@")
    wrong 2 2 staged 2
}

case_nccl_that_takes_longer_than_it_may() {
    never_connects --gpu-connect-timeout 1
    says_once 'rank 1 is not connected by NCCL after 1 s; --gpu-connect-timeout gives it more time$'
}

case_nccl_is_required() {
    never_connects --gpu-connect-timeout 1 --gpu-require-nccl
    expect_status 1
    expect_count 2 '^refused/[01] HVD_ERR_PEER rank 1 on localhost .* in process set 0, which cannot use NCCL \(--gpu-require-nccl\): rank 1 is not connected by NCCL after 1 s; --gpu-connect-timeout gives it more time' "$T/out"
    expect_count 1 'error.* rank 1 on localhost: process set 0 cannot use NCCL \(--gpu-require-nccl\): rank 1 is not connected by NCCL after 1 s; --gpu-connect-timeout gives it more time$' "$T/err"
}

case_nccl_is_required_of_one_gpu() {
    [ -z "${REAL_GPU:-}" ] || skip "ranks on a real GPU are given host ids"
    gpu_options=(--gpu-require-nccl)
    wrong 2 1 staged 2
    expect_status 1
    expect_count 2 '^refused/[01] HVD_ERR_PEER rank 0 on localhost .* in process set 0, which cannot use NCCL \(--gpu-require-nccl\): rank 0 has the same GPU as rank 1; give each rank a GPU of its own' "$T/out"
}

case_nccl_is_required_and_there() {
    gpu_options=(--gpu-require-nccl)
    wrong 2 2 staged 2
    expect_status 0
    expect_count 0 'NCCL' "$T/err"
}

# After a communicator that rank 0 ends, which takes NCCL so many milliseconds.
with_slow_abort() { # MILLISECONDS
    [ -z "${REAL_GPU:-}" ] || skip "faults are the double's"
    export HVD_DOUBLE_FAIL=ncclCommInitRankConfig@1:1 HVD_DOUBLE_SLOW=ncclCommAbort@0:$1
    wrong 2 2 staged 1
    expect_status 0
    expect_count 2 '^rank [01]: all right$' "$T/out"
}

# NCCL's threads are waited for at the end, but not for ever.
case_an_abort_that_takes_too_long() {
    with_slow_abort 30000
    [ "$SECONDS" -lt 20 ] || fail "the end took $SECONDS s"
}

# What is given up is ended before the process is.
case_an_abort_that_takes_its_time() {
    with_slow_abort 1200
    expect_same 0 "$(gpu_calls 'left communicator')" 'communicators that the process left behind'
}
