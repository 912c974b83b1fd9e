# shellcheck shell=bash disable=SC2034,SC2154
# --gpu-placement engine over hosts: NCCL among engines.
hosts=2
limit=60

on_two_hosts() { # PROGRAM ARGUMENTS...
    needs_kind ns # engines of loopback hosts are processes of one host for NCCL
    gpus 2
    hvd -np 4 -H $H1:2,$H2:2 --gpu-placement engine "${on_gpus[@]}" "$BUILD/tests/$1" "${@:2}"
    no_gpu_misuse
}

case_kinds() {
    on_two_hosts gpu_kinds 3 500
    expect_status 0
    expect_count 4 '^rank [0-9]+: all right$' "$T/out"
    [ -n "${REAL_GPU:-}" ] || # processes of two hosts may have one number
        [ "$(awk '$2 == "ncclAllReduce" { print $1 }' "$HVD_DOUBLE_TRACE" | sort -u | wc -l)" -le 2 ] || fail 'NCCL in workers'
}

case_the_order() {
    on_two_hosts gpu_flow order 4
    expect_status 0
    expect_count 4 '^rank [0-9]+: waited' "$T/out"
}

case_a_death_frees_the_streams() {
    needs_a_gpu_each 4
    on_two_hosts gpu_flow death 1
    expect_count 3 '^rank [023]: free in time, HVD_ERR_PEER: rank 1 on ' "$T/out"
}

# The second host's ranks, or others, have no elements in any operation.
nothing() { # FROM TO HOW
    on_two_hosts gpu_empty "$@"
    expect_status 0
    expect_count 4 '^rank [0-9]+: all right$' "$T/out"
}

case_a_host_that_has_nothing() {
    nothing 2 3 null
    nccl_was_called ncclGroupStart
}

slow_a_host_that_has_nothing_there() {
    nothing 0 1 pointer
    nothing 1 2 null
    nothing 2 3 bare
    nothing 1 2 bare
    nothing 2 3 without
}
