# shellcheck shell=bash disable=SC2034,SC2154
# Tensors on GPUs over hosts: the engines say which operation comes next.
hosts=2
limit=60

on_two_hosts() { # GPUS PROGRAM ARGUMENTS...
    gpu_options=(-H "$H1:2,$H2:2")
    work_on_gpus 4 "$@"
}

case_kinds() {
    on_two_hosts 2 gpu_kinds 3 500
    expect_status 0
    expect_count 4 '^rank [0-9]+: all right$' "$T/out"
    nccl_was_called ncclAllReduce
}

case_the_order() {
    on_two_hosts 2 gpu_flow order 4
    expect_status 0
    expect_count 4 '^rank [0-9]+: waited' "$T/out"
}

case_through_host_memory() {
    [ -z "${REAL_GPU:-}" ] || skip "ranks on a real GPU are given host ids"
    on_two_hosts 1 gpu_kinds 3 500
    expect_status 0
    expect_count 4 '^rank [0-9]+: all right$' "$T/out"
}

case_what_is_refused() {
    on_two_hosts 2 gpu_flow refused
    expect_count 2 '^memory/[01] HVD_ERR_MISMATCH .* in memory of a GPU, ' "$T/out"
    expect_count 4 '^room/. HVD_ERR_MISMATCH tensor "d": rank 0 has room for 3 rows, the result has 8$' "$T/out"
    expect_count 4 '^after/. HVD_SUCCESS' "$T/out"
}

case_a_death_frees_the_streams() {
    on_two_hosts 2 gpu_flow death 1
    expect_count 3 '^rank [023]: free in time, HVD_ERR_PEER: rank 1 on ' "$T/out"
}

# Memory of hvd_alloc_device: what is said of it goes between the hosts. The double says when not all of a set give such memory
# to one operation.
arena() { # HOW KNOWN OPTIONS...
    gpus 2
    hvd -np 2 "${@:3}" -H $H1:1,$H2:1 "${on_gpus[@]}" "$BUILD/tests/gpu_arena" "$1"
    no_gpu_misuse
    expect_status 0
    expect_count 2 '^rank [0-9]+: all right' "$T/out"
    [ -n "${REAL_GPU:-}" ] || expect_same "$2" "$(grep -c ' op ncclAllReduce .* registered$' "$HVD_DOUBLE_TRACE")" 'operations in memory that NCCL knows'
}

# All but the first of the set; under one name, each time at another place.
case_memory_that_nccl_knows() {
    arena alike 10
}

case_memory_that_not_all_know_alike() {
    arena mixed 0
}

case_memory_that_nccl_knows_in_the_engine() {
    needs_kind ns # engines of loopback hosts are processes of one host for NCCL
    arena alike 10 --gpu-placement engine
}

slow_memory_that_not_all_know_alike_in_the_engine() {
    needs_kind ns
    arena mixed 0 --gpu-placement engine
}

slow_everything_in_memory_that_nccl_knows() {
    export GPU_ARENA=1
    on_two_hosts 2 gpu_kinds 3 500
    expect_status 0
    expect_count 4 '^rank [0-9]+: all right$' "$T/out"
    nothing 2 2 3 null
    nothing 2 1 2 pointer
}

# The second host's ranks, or others, have no elements in any operation.
nothing() { # GPUS FROM TO HOW
    on_two_hosts "$1" gpu_empty "$2" "$3" "$4"
    expect_status 0
    expect_count 4 '^rank [0-9]+: all right$' "$T/out"
}

case_a_host_that_has_nothing() {
    nothing 2 2 3 null
    nccl_was_called ncclGroupStart
}

case_a_host_that_uses_no_gpu_yet() {
    nothing 2 2 3 bare
    nccl_was_called ncclGroupStart
}

slow_a_host_that_has_nothing_there() {
    nothing 2 2 3 pointer
    nothing 2 0 1 null # the first one
    nothing 2 1 2 pointer # one rank of each
    nothing 2 0 1 bare
    nothing 2 1 2 bare
}

slow_a_host_that_has_nothing_through_host_memory() {
    [ -z "${REAL_GPU:-}" ] || skip "ranks on a real GPU are given host ids"
    nothing 1 2 3 null
    nothing 1 0 1 pointer
    nothing 1 2 3 bare
}

slow_a_host_without_gpus_that_has_nothing() {
    nothing 2 2 3 without
    nothing 2 0 1 without
    nothing 2 1 2 without
}
