# shellcheck shell=bash disable=SC2034,SC2154
# Binding for real, on the processors that this machine has: what the workers see themselves.

# shellcheck disable=SC2016
mine='echo $HOROVOD_RANK: $(sed -n "s/^Cpus_allowed_list:[[:space:]]*//p" /proc/self/status)'

# The first two processors that may be used here.
two_processors() {
    local list
    list=$(taskset -cp $$ | sed 's/.*: //' | tr , '\n' | while IFS=- read -r a b; do seq "$a" "${b:-$a}"; done)
    first=$(sed -n 1p <<< "$list")
    second=$(sed -n 2p <<< "$list")
    [ -n "$second" ] || skip "one processor only"
}

case_to_cores() {
    two_processors
    HWLOC_SYNTHETIC="core:$((second + 1)) pu:1" hvd -np 1 --bind-to core --report-bindings sh -c "$mine"
    expect_status 0
    expect_sorted '0: 0'
    expect_err '^hvdrun: rank 0 on localhost is bound to processors 0$'
}

case_cores_of_their_own() {
    two_processors
    # An affinity of ours is the whole machine for the job.
    run taskset -c "$second" "$HVDRUN" -np 1 --map-by core sh -c "$mine"
    expect_status 0
    expect_sorted "0: $second"
    run taskset -c "$second" "$HVDRUN" -np 2 --bind-to core true
    expect_status 125
    expect_err 'rank 1 finds no free core to be bound to: this host has 1, and each rank takes 1'
    run taskset -c "$second" "$HVDRUN" -np 2 --oversubscribe --bind-to core sh -c "$mine"
    expect_status 0
    expect_sorted "0: $second" "1: $second"
}

case_to_numa_nodes() {
    two_processors
    export HWLOC_SYNTHETIC='node:2 core:1 pu:1'
    hvd -np 2 --map-by numa sh -c "$mine"
    unset HWLOC_SYNTHETIC
    [ "$first$second" = 01 ] || return 0
    expect_status 0
    expect_sorted '0: 0' '1: 1'
}

case_by_a_rankfile() {
    two_processors
    printf '# turned round\nrank 0=localhost slot=1\nrank 1=+n0 slot=0:0\n' > "$T/ranks"
    run taskset -c "$first,$second" "$HVDRUN" -H localhost:2 --rankfile "$T/ranks" sh -c "$mine"
    expect_status 0
    [ "$(nproc --all)" -gt 2 ] || expect_sorted "0: $second" "1: $first"
    printf 'rank 0=localhost slot=9999\n' > "$T/ranks"
    hvd -H localhost:2 --rankfile "$T/ranks" true
    expect_status 125
    expect_err 'line 1 of the rankfile wants core 9999, and this host has'
    printf 'rank 0=localhost\nrank 1=localhost slot=\n' > "$T/ranks"
    hvd -H localhost:2 --rankfile "$T/ranks" true
    expect_status 2
    expect_err 'ranks, line 2: the list of cores'
}

case_unbound_is_said_too() {
    hvd -np 1 --report-bindings true
    expect_status 0
    expect_err '^hvdrun: rank 0 on localhost is not bound, and has processors [0-9]'
}

case_ranks_on_each_socket() {
    two_processors
    export HWLOC_SYNTHETIC='pack:2 core:1 pu:1'
    hvd --ppr 1:socket sh -c "$mine"
    [ "$first$second" != 01 ] || expect_sorted '0: 0' '1: 1'
    hvd --map-by ppr:2:core --bind-to none sh -c 'echo $HOROVOD_RANK of $HOROVOD_LOCAL_SIZE'
    expect_status 0
    expect_sorted '0 of 4' '1 of 4' '2 of 4' '3 of 4'
    hvd -np 1 --ppr 2:numa --bind-to none sh -c "$mine" # fewer than fit are fine
    expect_status 0
    hvd -np 3 --ppr 1:socket true
    expect_status 2
    expect_err '^hvdrun: -np 3 asks for more ranks than --ppr 1:socket allows: 2 \(localhost 2\)$'
    hvd -H localhost:1 --ppr 1:socket true
    expect_status 2
    expect_err 'asks for 2 ranks on host localhost, more than its 1 slots'
    unset HWLOC_SYNTHETIC
    hvd --ppr 2:board true
    expect_status 2
    expect_err "^hvdrun: --ppr must be N, or N:WHAT with socket, numa, core or node, not '2:board'$"
    hvd --ppr 2 --map-by ppr:2:socket true
    expect_status 2
    expect_err '^hvdrun: --ppr 2 and --map-by ppr:2:socket exclude each other$'
    hvd --dry-run --ppr 2:socket true
    expect_status 0
    expect_out '^ranks: 2 for every socket$'
}

case_options_that_contradict() {
    hvd -np 1 --map-by slot:PE=2 --bind-to numa true
    expect_status 2
    expect_err 'goes with --bind-to core only'
    hvd -np 1 --map-by board true
    expect_status 2
    expect_err "must be slot, node, numa, socket, core or ppr:N:WHAT, .*not 'board'"
}
