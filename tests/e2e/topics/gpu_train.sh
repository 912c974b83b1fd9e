# shellcheck shell=bash disable=SC2034,SC2154
# The example trains on GPUs: the processor's losses, whatever the number of ranks and the placement. On the double its kernels run
# on the host (tests/gpu/emulate), elsewhere it is what nvcc made.
limit=60
# shellcheck source=tests/e2e/losses.sh
. "$top/tests/e2e/losses.sh"

if [ -n "${REAL_GPU:-}" ]; then
    program=$BUILD/examples/train_cuda
    apart=3e-3 # sums are made in another order
else
    program=$BUILD/tests/train_cuda
    apart=1e-5
fi
# No two sides of a matrix are equal, two ranks have more samples than a block has threads, and not the same number.
shape=(--seed 5 --hidden 24 --global-batch 601)

on_gpu() { # RANKS GPUS ARGUMENTS of hvdrun, `--`, those of the trainer
    local ranks=$1 gpus=$2 options=()
    shift 2
    while [ "$1" != -- ]; do
        options+=("$1")
        shift
    done
    [ -x "$program" ] || skip "there is no $(basename "$program"): it needs a C++ compiler, for real GPUs nvcc"
    gpus "$gpus"
    hvd -np "$ranks" "${options[@]}" "${on_gpus[@]}" "$program" "${shape[@]}" "${@:2}"
}

learned_as_the_processor() { # STEPS: what $T/out says of the first ones
    expect_status 0
    no_gpu_misuse
    losses "$T/out" > "$T/device"
    [ -s "$T/host" ] || "$TRAIN" "${shape[@]}" --steps "$1" > "$T/host.out"
    losses "$T/host.out" > "$T/host"
    same_losses "$T/host" "$T/device" $apart
}

case_the_losses_of_the_processor() {
    on_gpu 2 2 -- --steps 20
    learned_as_the_processor 20
    [ -n "${REAL_GPU:-}" ] || expect_same 0 "$(gpu_calls left)" 'things left'
}

slow_the_losses_of_1_2_3_and_4_ranks_by_both_placements() {
    local placement ranks
    for placement in worker engine; do
        for ranks in 1 2 3 4; do
            on_gpu $ranks 4 --gpu-placement $placement -- --steps 25
            learned_as_the_processor 25
        done
    done
}

# After step 100 it waits for every 50th loss alone: batches are filled while those before are still on their way.
slow_the_host_is_ahead() {
    [ -n "${REAL_GPU:-}" ] || export HVD_DOUBLE_DELAY_US=1000
    on_gpu 2 2 -- --steps 125
    expect_status 0
    tail -n 1 "$T/out" > "$T/device.out"
    "$TRAIN" "${shape[@]}" --steps 125 | tail -n 1 > "$T/host.out"
    # step, 125, loss, its value, chars/s, theirs, and again
    paste -d= "$T/host.out" "$T/device.out" | tr ' ' = | awk -F= '{d = $4 / $10; exit !($2 == 125 && $8 == 125 && d < 1.003 && d > 0.997)}' ||
        fail "the last losses differ: $(cat "$T/host.out" "$T/device.out")"
}

slow_ranks_that_share_a_gpu() {
    on_gpu 3 1 -- --steps 25
    learned_as_the_processor 25
}

slow_ranks_without_samples() {
    shape=(--seed 5 --hidden 24 --global-batch 3)
    on_gpu 4 4 -- --steps 25
    learned_as_the_processor 25
}

# Half of the launches on the double take a kernel's threads in the other direction; the seed says which.
slow_the_order_of_threads_decides_nothing() {
    local seed
    for seed in 1 2; do
        [ -n "${REAL_GPU:-}" ] || export HVD_DOUBLE_SEED=$seed
        on_gpu 2 2 -- --steps 25
        expect_status 0
        losses "$T/out" > "$T/losses.$seed"
    done
    cmp "$T/losses.1" "$T/losses.2" || fail "two runs differ"
}

slow_a_checkpoint_resumes() {
    on_gpu 2 2 -- --steps 10 --checkpoint "$T/state"
    expect_status 0
    losses "$T/out" > "$T/before_it"
    on_gpu 3 3 -- --steps 25 --checkpoint "$T/state"
    learned=$(losses "$T/out")
    { cat "$T/before_it"; echo "$learned"; } | sed 's/\([0-9]*\) \(.*\)/step \1 loss=\2/' > "$T/whole"
    mv "$T/whole" "$T/out"
    learned_as_the_processor 25
    # The processor goes on with it, too.
    run "$TRAIN" "${shape[@]}" --steps 26 --checkpoint "$T/state"
    expect_status 0
    expect_out 'going on after step 25 '
}

# RANKS ARGUMENTS of the trainer: all ranks say `pid RANK PID` first
start_on_gpu() {
    local ranks=$1
    shift
    [ -x "$program" ] || skip "there is no $(basename "$program")"
    gpus "$ranks"
    # shellcheck disable=SC2016 # of the rank
    start -np "$ranks" --gpu-placement "${placement:-worker}" "${on_gpus[@]}" sh -c 'echo pid $HVD_RANK $$; exec "$@"' sh "$program" "${shape[@]}" --steps 1000000 "$@"
}

rank_pid() { # RANK
    sed -n "s/^pid $1 //p" "$T/out"
}

case_a_dead_rank_ends_the_others_calls() {
    start_on_gpu 2
    until_out 20 'loss='
    mark_time
    kill -KILL "$(rank_pid 1)"
    until_true $(($(free_s) + 4)) grep -q '^train: rank 0: a step: rank 1 on localhost .* killed by signal 9' "$T/err" || fail 'rank 0 has not heard of it'
    expect_within "$(free_s)"
    stop_status
    expect_status 137
}

slow_a_dead_rank_when_the_engine_has_the_gpus() {
    placement=engine
    case_a_dead_rank_ends_the_others_calls
}

# What a dead rank's peers have in their memory is nobody's parameters: no checkpoint is made of it.
slow_deaths_leave_a_checkpoint_that_is_right() {
    local i saved placement
    for i in $(seq 10); do
        placement=worker
        [ $((i % 2)) = 0 ] || placement=engine
        rm -f "$T/state"
        start_on_gpu 2 --checkpoint "$T/state" --checkpoint-every 1
        until_out 20 "^step $((i / 2 + 2)) loss="
        kill -KILL "$(rank_pid 1)"
        stop_status
        expect_status 137
        run "$TRAIN" "${shape[@]}" --steps 100 --checkpoint "$T/state"
        expect_status 0
        saved=$(sed -nE 's/.*going on after step ([0-9]+) .*/\1/p' "$T/out")
        [ -n "$saved" ] || fail 'it does not go on'
        losses "$T/out" > "$T/resumed"
        [ -s "$T/straight.out" ] || "$TRAIN" "${shape[@]}" --steps 100 > "$T/straight.out"
        losses "$T/straight.out" | awk -v saved="$saved" '$1 > saved' > "$T/straight"
        same_losses "$T/straight" "$T/resumed" 1e-3
    done
}

# Each call of CUDA and cuBLAS that the trainer makes fails once, the first time and later: one rank says so, and the job ends.
slow_each_call_that_fails() {
    local call time
    [ -z "${REAL_GPU:-}" ] || skip "real GPUs do not fail to order"
    for call in cudaGetDeviceCount cudaSetDevice cudaGetDeviceProperties cudaStreamCreateWithFlags cublasCreate cublasSetStream \
        cudaMalloc:{1,2,7} cuMemAlloc_v2:8 cudaMallocHost cudaEventCreateWithFlags cudaMemsetAsync:{1,7} cudaMemcpyAsync:{1,4,5} \
        cudaStreamSynchronize:{1,3,4} cudaEventSynchronize:{1,2} cudaEventRecord:{1,2} cudaLaunchKernel:{1,2,19} cublasSgemm:{1,7}; do
        time=${call#*:}
        [ "$time" != "$call" ] || time=1
        # hvd_alloc_device asks the driver when NCCL has nothing: after the seven for a batch.
        export HVD_DOUBLE_FAIL="ncclMemAlloc@0:1:1,${call%%:*}@0:$time:1"
        rm -f "$T/gpu_calls"
        on_gpu 2 2 -- --steps 3 --checkpoint "$T/state.$call"
        expect_same 1 "$(gpu_calls "failed ${call%%:*}")" "how often $call failed"
        [ "$status" != 0 ] || fail "exit status 0, though $call failed"
        grep -qE '^train: .*(GPU 0|looking for a GPU and its driver).*(invalid argument|internal operation)' "$T/err" ||
            fail "$call failed, and nobody says so: $(head -n 3 "$T/err")"
    done
}
