# shellcheck shell=bash disable=SC2034,SC2154
# --gpu-placement engine: what the workers of gpu_kinds and gpu_flow do, with NCCL in the engine; memory that it has to reach.
limit=40

by_engine() { # RANKS GPUS PROGRAM ARGUMENTS...
    [ "${REAL_GPU:-$2}" -ge "$2" ] || skip "needs $2 GPUs: NCCL refuses two ranks of one process the same"
    gpu_options=(--gpu-placement engine)
    work_on_gpus "$@"
}

# Processes that have begun operations of NCCL.
nccl_runs_in() { # HOW MANY
    [ -n "${REAL_GPU:-}" ] ||
        expect_same "$1" "$(awk '$2 == "ncclAllReduce" { print $1 }' "$HVD_DOUBLE_TRACE" | sort -u | wc -l)" 'processes with NCCL'
}

all_right() { # RANKS
    expect_status 0
    expect_count "$1" '^rank [0-9]+: all right' "$T/out"
}

case_kinds() {
    by_engine 2 2 gpu_kinds 4 2000
    all_right 2
    nccl_runs_in 1
    # The workers' own streams are all that is not given back.
    [ -n "${REAL_GPU:-}" ] ||
        expect_same 'stream 1, stream 1, ' "$(awk '$2 == "left" { printf "%s %s, ", $3, $4 }' "$HVD_DOUBLE_TRACE")" 'what is left'
}

# Ranks of one GPU in one engine are one host to NCCL, whatever NCCL_HOSTID each of them has.
case_host_ids_of_ranks_do_not_divide_the_engine() {
    [ -z "${REAL_GPU:-}" ] || skip "the double counts calls"
    gpus 1
    # shellcheck disable=SC2016 # of the rank
    hvd -np 2 --log-level info --gpu-placement engine "${reach[@]}" sh -c 'NCCL_HOSTID=rank$HVD_RANK exec "$@"' sh "$BUILD/tests/gpu_kinds" 2 500
    all_right 2
    expect_err 'GPU tensors go through host memory: .*rank 0 has the same GPU as rank 1'
    expect_same 0 "$(gpu_calls ncclCommInitRankConfig)" 'communicators that NCCL would refuse'
}

case_an_engine_told_to_share_its_gpu() {
    local version
    [ -z "${REAL_GPU:-}" ] || skip "there is one NCCL"
    gpus 1
    reach+=(-x NCCL_MULTI_RANK_GPU_ENABLE=1)
    for version in 22809 23003; do
        export HVD_DOUBLE_NCCL=$version
        reach+=(-x HVD_DOUBLE_NCCL)
        rm -f "$T/gpu_calls"
        hvd -np 2 --log-level info --gpu-placement engine "$BUILD/tests/gpu_kinds" 2 500
        all_right 2
        case $version in
        22809) expect_same 0 "$(gpu_calls ncclCommInitRankConfig)" 'communicators of NCCL 2.28' ;;
        *) expect_err 'process set 0: GPU tensors go by NCCL 2\.30\.3 in the engine$' ;;
        esac
    done
}

# What NCCL is told where it runs in the ranks, it is told in the engine too: by hvdrun, by the user, and what he takes away.
case_what_nccl_is_told() {
    [ -z "${REAL_GPU:-}" ] || skip "the double says what it was told"
    gpus 2
    export NCCL_PROTO=LL NCCL_ALGO=Ring
    hvd -np 2 --gpu-placement engine --network-interfaces lo -x NCCL_DEBUG=WARN --unset NCCL_ALGO \
        "$BUILD/tests/gpu_kinds" 1 100
    unset NCCL_PROTO NCCL_ALGO
    all_right 2
    nccl_runs_in 1
    expect_same 'NCCL_DEBUG=WARN NCCL_PROTO=LL NCCL_SOCKET_IFNAME=lo ' "$(awk '$2 == "set" { print $3 }' "$HVD_DOUBLE_TRACE" | sort -u | tr '\n' ' ')" told
}

# Before 2.25 NCCL's kernels use the buffers of other ranks of their process where these lie. Not in the engine: it has opened
# the buffers for their own GPU.
case_nccl_that_uses_buffers_of_other_ranks() {
    [ -z "${REAL_GPU:-}" ] || skip "there is one NCCL"
    export HVD_DOUBLE_NCCL=22304
    by_engine 2 2 gpu_memory again
    all_right 2
    by_engine 2 2 gpu_memory mapped
    all_right 2
    nccl_runs_in 2 # one in each job
    expect_same 'NCCL_P2P_DIRECT_DISABLE=1' "$(awk '$2 == "set" { print $3 }' "$HVD_DOUBLE_TRACE" | sort -u)" 'what NCCL is told'
}

case_kinds_and_sets_of_four() {
    by_engine 4 4 gpu_kinds 3 500
    all_right 4
    nccl_runs_in 1
}

case_a_group_is_packed() {
    by_engine 2 2 gpu_kinds 3 2000 grouped
    all_right 2
    nccl_runs_in 1
    [ -n "${REAL_GPU:-}" ] || expect_same '18 2' "$(gpu_calls ncclAllReduce) $(gpu_calls left)" 'calls of ncclAllReduce, and things left'
    [ -n "${REAL_GPU:-}" ] || expect_same "$(gpu_calls cuMemAlloc_v2)" "$(gpu_calls cuMemFree_v2)" 'memory allocated and freed'
}

# The engine has none for one of its ranks: nobody uses NCCL.
case_no_memory_to_pack_in() {
    [ -z "${REAL_GPU:-}" ] || skip "faults are the double's"
    export HVD_DOUBLE_FAIL=cuMemAlloc@none:2
    by_engine 2 2 gpu_kinds 2 2000 grouped
    all_right 2
    nccl_runs_in 0
}

case_one_gpu_for_three_ranks() {
    [ -z "${REAL_GPU:-}" ] || skip "ranks on a real GPU are given host ids"
    by_engine 3 1 gpu_kinds 2 500
    all_right 3
}

# Nothing of the library waits for a device, but hvd_shutdown once a rank.
case_the_order_differs_between_ranks() {
    by_engine 3 3 gpu_flow order 6
    expect_status 0
    nccl_runs_in 1
    [ -n "${REAL_GPU:-}" ] ||
        expect_same "$(awk '/waited/ { n += $4 } END { print n + 3 }' "$T/out")" "$(gpu_calls host-sync)" 'waits of the host'
}

case_what_is_refused() {
    by_engine 2 2 gpu_flow refused
    expect_status 0
    expect_count 2 '^room/. HVD_ERR_MISMATCH tensor "d": rank 0 has room for 3 rows, the result has 4$' "$T/out"
    expect_count 2 '^after/. HVD_SUCCESS' "$T/out"
}

case_a_death_frees_the_streams() {
    needs_a_gpu_each 3
    by_engine 3 3 gpu_flow death
    expect_status 137
    expect_count 2 '^rank [01]: free in time, HVD_ERR_PEER: rank 2 on localhost .* killed by signal 9' "$T/out"
}

case_a_death_while_others_wait() {
    by_engine 3 3 gpu_flow gone
    expect_status 137
    expect_count 2 '^rank [01]: HVD_ERR_PEER: rank 2 on localhost .* killed by signal 9' "$T/out"
}

case_the_end_of_the_engine_frees_the_streams() {
    by_engine 3 3 gpu_flow engine
    expect_status 125
    expect_count 2 '^rank [01]: free in time, HVD_ERR_ENGINE: this host.s engine has gone' "$T/out"
}

# Each allocation is opened, once, and let go when it has gone.
case_memory_at_the_address_of_other_memory() {
    by_engine 2 2 gpu_memory again
    all_right 2
    [ -n "${REAL_GPU:-}" ] && return # whose driver gives what addresses it likes
    expect_count 2 'addresses used again: [1-9]' "$T/out"
        expect_same '24 24' "$(gpu_calls cuIpcOpenMemHandle_v2) $(gpu_calls cuIpcCloseMemHandle)" 'memory opened and closed'
}

# What was opened there is closed before: the driver opens nothing over it.
case_memory_where_two_allocations_were() {
    by_engine 2 2 gpu_memory spanning
    all_right 2
    nccl_runs_in 1
    [ -n "${REAL_GPU:-}" ] && return
    expect_count 2 'addresses used again: [1-9]' "$T/out"
    expect_same '18 18 0' "$(gpu_calls cuIpcOpenMemHandle_v2) $(gpu_calls cuIpcCloseMemHandle) $(gpu_calls cuMemcpyDtoDAsync_v2)" \
        'memory opened and closed, copies'
}

# The addresses stay, and so does their number.
case_memory_that_is_replaced() {
    by_engine 2 2 gpu_memory replaced
    all_right 2
    nccl_runs_in 1
    [ -n "${REAL_GPU:-}" ] || expect_same 6 "$(gpu_calls cuMemImportFromShareableHandle)" 'descriptors'
}

# Nobody would notice that it is: it is copied.
case_memory_that_an_old_driver_does_not_number() {
    [ -z "${REAL_GPU:-}" ] || skip "real drivers number it"
    export HVD_DOUBLE_BLOCKS=0
    by_engine 2 2 gpu_memory replaced
    all_right 2
    nccl_runs_in 1
    expect_same '0 12' "$(gpu_calls cuMemImportFromShareableHandle) $(gpu_calls cuMemcpyDtoDAsync_v2)" 'descriptors and copies'
}

# The engine lets memory go while the ranks' GPUs wait for one another, and it is what lets them go on: the driver would make it
# wait for the GPU. What replaces that memory is copied until then, where the driver does not open it yet.
case_memory_that_goes_while_its_gpu_waits() {
    needs_a_gpu_each 2
    by_engine 2 2 gpu_memory held
    all_right 2
    [ -n "${REAL_GPU:-}" ] && return
    expect_same 6 "$(gpu_calls cuIpcCloseMemHandle)" 'memory closed'
    (($(gpu_calls cuMemcpyDtoDAsync_v2) <= 8)) || fail "memory is copied that the engine can have"
}

case_stand_ins_where_memory_goes_while_its_gpu_waits() {
    by_engine 2 2 gpu_memory stands
    all_right 2
}

case_mappings_that_go_while_their_gpu_waits() {
    needs_a_gpu_each 2
    by_engine 2 2 gpu_memory remapped
    all_right 2
    [ -n "${REAL_GPU:-}" ] || expect_same '4 0' "$(gpu_calls cuMemImportFromShareableHandle) $(gpu_calls cuMemcpyDtoDAsync_v2)" 'descriptors and copies'
}

case_memory_by_descriptors() {
    by_engine 2 2 gpu_memory mapped
    all_right 2
    nccl_runs_in 1
    [ -n "${REAL_GPU:-}" ] ||
        expect_same '6 0' "$(gpu_calls cuMemImportFromShareableHandle) $(gpu_calls cuIpcOpenMemHandle_v2)" 'descriptors and handles'
}

# The pieces under a buffer are opened once each, and lie in the engine as they do in the rank.
case_memory_of_pieces() {
    by_engine 2 2 gpu_memory pieces
    all_right 2
    nccl_runs_in 1
    [ -n "${REAL_GPU:-}" ] ||
        expect_same '12 0' "$(gpu_calls cuMemImportFromShareableHandle) $(gpu_calls cuMemcpyDtoDAsync_v2)" 'descriptors and copies'
}

# Once, for one of the ranks: its buffer has a stand-in until its pieces have gone.
case_an_engine_without_addresses_for_pieces() {
    [ -z "${REAL_GPU:-}" ] || skip "faults are the double's"
    export HVD_DOUBLE_FAIL=cuMemAddressReserve@none:3
    by_engine 2 2 gpu_memory pieces
    all_right 2
    expect_same '4 2' "$(gpu_calls cuMemcpyDtoDAsync_v2) $(gpu_calls left)" 'copies, and things left'
}

# Five pieces and two in place of others; while one is there that has no descriptor, the buffer over it is copied, and no other.
case_a_segment_that_grows() {
    by_engine 2 2 gpu_memory segment
    all_right 2
    nccl_runs_in 1
    [ -n "${REAL_GPU:-}" ] ||
        expect_same '14 4 2 2' "$(gpu_calls cuMemImportFromShareableHandle) $(gpu_calls cuMemcpyDtoDAsync_v2) $(gpu_calls left) $(gpu_calls 'left stream 1')" \
            'descriptors, copies, things left, streams left'
}

case_kinds_in_pieces() {
    export GPU_PIECES=1
    reach+=(-x GPU_PIECES)
    by_engine 2 2 gpu_kinds 2 2000
    all_right 2
    nccl_runs_in 1
    [ -z "${REAL_GPU:-}" ] || return 0
    expect_same 2 "$(gpu_calls left)" 'the things left'
    [ -s "$BUILD/gen/collectives/gpu/pack_image.fatbin" ] || return 0 # built without nvcc, there are no kernels but copies
    expect_same 0 "$(gpu_calls cuMemcpyDtoDAsync_v2)" 'the copies'
}

# One copy within the GPU before, and one after.
case_memory_that_nobody_else_can_have() {
    by_engine 2 2 gpu_memory private
    all_right 2
    nccl_runs_in 1
    [ -n "${REAL_GPU:-}" ] || expect_same 24 "$(gpu_calls cuMemcpyDtoDAsync_v2)" copies
}

# What operations use instead of it has gone from the engine before it is freed.
case_private_memory_that_grows() {
    by_engine 2 2 gpu_memory growing
    all_right 2
    nccl_runs_in 1
    [ -n "${REAL_GPU:-}" ] && return
    expect_same '4 4 0' "$(gpu_calls cuIpcOpenMemHandle_v2) $(gpu_calls cuIpcCloseMemHandle) $(gpu_calls freed-while-open)" \
        'memory opened, closed, and freed while it was open'
}

# The driver has few events for several processes: a rank and the engine need two for a team, whatever it has to do.
case_many_names() {
    by_engine 2 2 gpu_memory names
    all_right 2
    nccl_runs_in 1
    [ -n "${REAL_GPU:-}" ] || expect_same '4 4 4' "$(awk '$2 == "cuIpcGetEventHandle" { given++ }
        $2 == "cuIpcOpenEventHandle" { engine = $1; opened++ }
        $1 == engine && $2 == "cuEventDestroy_v2" { closed++ }
        END { print given + 0, opened + 0, closed + 0 }' "$HVD_DOUBLE_TRACE")" 'events given, opened and closed'
}

# It has none left for a rank, or for the engine: the team goes through host memory.
case_no_events_for_several_processes() {
    local fault
    [ -z "${REAL_GPU:-}" ] || skip "faults are the double's"
    for fault in '' cuIpcOpenEventHandle@none:2:205; do
        export HVD_DOUBLE_FAIL=$fault HVD_DOUBLE_IPC_EVENTS=64
        [ "$fault" ] || HVD_DOUBLE_IPC_EVENTS=1
        gpus 2
        hvd -np 2 --log-level info --gpu-placement engine "$BUILD/tests/gpu_memory" names
        no_gpu_misuse
        all_right 2
        nccl_runs_in 0
        expect_err 'process set 0: GPU tensors go through host memory: '
        [ "$fault" ] || expect_err 'making an event for the engine: CUDA_ERROR_OUT_OF_MEMORY'
    done
}

# An engine that has no such GPU says so, and the workers run NCCL themselves.
case_an_engine_that_cannot() {
    [ -z "${REAL_GPU:-}" ] || skip "faults are the double's"
    export HVD_DOUBLE_FAIL=cuDevicePrimaryCtxRetain@none:1
    by_engine 2 2 gpu_kinds 1 100
    all_right 2
    nccl_runs_in 2
    expect_err 'rank [01] is to run NCCL itself: using GPU [01]: '
}

# A driver that has to begin takes seconds; the engine is not silent meanwhile, so nobody takes it for dead.
slow_a_driver_that_takes_its_time() {
    [ -z "${REAL_GPU:-}" ] || skip "real drivers take what they take"
    export HVD_DOUBLE_SLOW=cuInit@none:5000
    gpus 2
    hvd -np 2 --heartbeat-timeout 5 --gpu-placement engine "$BUILD/tests/gpu_kinds" 1 100
    no_gpu_misuse
    all_right 2
    nccl_runs_in 1
}

# The first rank's process makes the id that the engines' NCCL is to understand.
case_another_nccl_in_the_engine() {
    [ -z "${REAL_GPU:-}" ] || skip "there is one NCCL"
    gpus 2
    hvd -np 2 --gpu-placement engine env HVD_DOUBLE_NCCL=22700 "$BUILD/tests/gpu_kinds" 1 100
    all_right 2
    no_gpu_misuse
    nccl_runs_in 2
}

slow_many_ranks_and_rounds() {
    by_engine 8 8 gpu_kinds 40 30000
    all_right 8
}

case_again() {
    by_engine 2 2 gpu_flow again
    expect_status 0
    nccl_runs_in 1
}

# The engine waits for what the worker has put into its stream, and the worker for the engine.
case_slow_streams() {
    export HVD_DOUBLE_DELAY_US=10000
    by_engine 2 2 gpu_memory mapped
    all_right 2
    nccl_runs_in 1
}
