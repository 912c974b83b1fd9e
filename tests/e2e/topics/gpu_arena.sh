# shellcheck shell=bash disable=SC2034,SC2154
# hvd_alloc_device: memory of a GPU that NCCL knows. The double says what is misused: memory that is registered twice, not
# alive, of another GPU, freed before it was told off, or on some ranks only.
limit=40

arena() { # RANKS GPUS WORD
    work_on_gpus "$1" "$2" gpu_arena "$3"
}

all_right() { # RANKS
    expect_status 0
    expect_count "$1" '^rank [0-9]+: all right' "$T/out"
    # The worker's own stream is all that is not given back.
    [ -n "${REAL_GPU:-}" ] || expect_same "$1 $1" "$(gpu_calls left) $(gpu_calls 'left stream 1')" 'things and streams left'
}

known_operations() { # HOW MANY
    [ -n "${REAL_GPU:-}" ] || expect_same "$1" "$(grep -c ' op ncclAllReduce .* registered$' "$HVD_DOUBLE_TRACE")" 'operations in memory that NCCL knows'
}

# All but the first of the set, for which there was no communicator yet.
case_memory_that_nccl_knows() {
    arena 2 2 alike
    all_right 2
    known_operations 10
}

case_memory_that_not_all_know_alike() {
    arena 3 3 mixed
    all_right 3
    known_operations 0
}

case_freed_between_a_call_and_its_wait() {
    arena 2 2 pending
    all_right 2
}

case_freed_before_the_stream_has_come_to_it() {
    arena 2 2 late
    all_right 2
}

case_left_for_shutdown() {
    arena 2 2 left
    all_right 2
    known_operations 2
}

# The engine has each allocation by its descriptor, registers it as a rank would, and lets go of it with hvd_free: two mappings
# of each.
case_by_the_engine() {
    gpus 2
    hvd -np 2 --gpu-placement engine "${on_gpus[@]}" "$BUILD/tests/gpu_arena" alike
    no_gpu_misuse
    all_right 2
    known_operations 10
    [ -n "${REAL_GPU:-}" ] && return
    expect_same 6 "$(gpu_calls cuMemImportFromShareableHandle)" 'descriptors'
    expect_same 12 "$(awk '$2 == "cuMemImportFromShareableHandle" { engine = $1 } $2 == "cuLaunchHostFunc" { exit }
        $1 == engine && $2 == "cuMemUnmap" { n++ } END { print n + 0 }' "$HVD_DOUBLE_TRACE")" 'mappings that the engine has let go by then'
}

case_not_all_alike_by_the_engine() {
    gpus 3
    hvd -np 3 --gpu-placement engine "${on_gpus[@]}" "$BUILD/tests/gpu_arena" mixed
    no_gpu_misuse
    all_right 3
    known_operations 0
}

case_freed_early_by_the_engine() {
    export HVD_DOUBLE_LAZY=100 # NCCL's calls go on after they have returned
    gpus 2
    hvd -np 2 --gpu-placement engine "${on_gpus[@]}" "$BUILD/tests/gpu_arena" pending
    no_gpu_misuse
    all_right 2
    gpus 2
    hvd -np 2 --gpu-placement engine "${on_gpus[@]}" "$BUILD/tests/gpu_arena" late
    no_gpu_misuse
    expect_status 0
}

# They take what they need of the GPU, and no 2 MiB each.
case_a_thousand_small_ones() {
    [ -n "${REAL_GPU:-}" ] || export HVD_DOUBLE_MEMORY=$((64 << 20))
    arena 2 2 small
    all_right 2
    known_operations 0
    [ -n "${REAL_GPU:-}" ] || expect_same 0 "$(gpu_calls ncclMemAlloc)" 'allocations by NCCL'
}

case_a_thousand_small_ones_by_the_engine() {
    [ -n "${REAL_GPU:-}" ] || export HVD_DOUBLE_MEMORY=$((64 << 20))
    gpus 2
    hvd -np 2 --gpu-placement engine "${on_gpus[@]}" "$BUILD/tests/gpu_arena" small
    no_gpu_misuse
    all_right 2
}

# One rank has no ncclMemAlloc, one more can map nothing twice: memory like any other.
case_a_rank_without() {
    [ -z "${REAL_GPU:-}" ] || skip "faults are the double's"
    export HVD_DOUBLE_FAIL=ncclMemAlloc@1:1,ncclMemAlloc@1:2,ncclMemAlloc@1:3
    arena 2 2 alike
    all_right 2
    known_operations 0
}

slow_every_call_fails_once() {
    local call
    [ -z "${REAL_GPU:-}" ] || skip "faults are the double's"
    for call in ncclMemAlloc:1 cuMemRetainAllocationHandle:1 cuMemAddressReserve:1 cuMemAddressReserve:2 cuMemMap:2 cuMemSetAccess:1 \
        cuMemSetAccess:2 ncclCommRegister:1 ncclCommRegister:2 ncclCommDeregister:1; do
        export HVD_DOUBLE_FAIL=${call%:*}@1:${call#*:}
        arena 2 2 alike
        all_right 2
        rm -f "$HVD_DOUBLE_TRACE"
    done
}

case_no_gpu_and_no_cuda() {
    [ -z "${REAL_GPU:-}" ] || skip "there is one"
    arena 1 0 none
    expect_status 0
    expect_out '^rank 0: no memory of a GPU: the CUDA driver cannot be used: CUDA_ERROR_NO_DEVICE'
    unset LD_LIBRARY_PATH
    reach=()
    hvd -np 2 "$BUILD/tests/gpu_arena" none
    expect_status 0
    expect_count 2 '^rank [01]: no memory of a GPU: there is no CUDA driver' "$T/out"
}

case_no_memory() {
    [ -z "${REAL_GPU:-}" ] || skip "the double is small"
    export HVD_DOUBLE_MEMORY=1000
    arena 1 1 none
    expect_status 0
    expect_out '^rank 0: allocating 100 bytes on GPU 0: CUDA_ERROR_OUT_OF_MEMORY'
}

case_a_rank_alone_without_hvdrun() {
    gpus 1
    "$BUILD/tests/gpu_arena" alike > "$T/out" 2> "$T/err"
    expect_same 'rank 0: all right' "$(cat "$T/out" "$T/err")" 'the output'
    no_gpu_misuse
    [ -n "${REAL_GPU:-}" ] || expect_same '1 0' "$(gpu_calls left) $(gpu_calls ncclCommRegister)" 'things left, and registrations'
}
