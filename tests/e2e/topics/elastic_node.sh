# shellcheck shell=bash disable=SC2034,SC2154
# Elastic jobs under a managed agent, with a real systemd: leases come and go with the ranks.
needs_root=1
limit=90
# shellcheck source=tests/e2e/systemd_host.sh
. "$top/tests/e2e/systemd_host.sh"

# That host sees $T, and not the build.
bring_trainee() {
    mkdir -p "$T/build/tests"
    cp "$BUILD/tests/trainee" "$T/build/tests/"
    cp -L "$BUILD"/libhvd.so* "$T/build/"
    chmod -R a+rX "$T/build"
    trainee=$T/build/tests/trainee
}

slots_are() { # TAKEN of TOTAL
    there /usr/local/bin/hvdctl node | grep -q "^managed agent [0-9.]*: $1 of $2 slots taken$"
}

resize_to() { # RANKS
    local job
    job=$("$machine" as alice /usr/local/bin/hvdctl ps | awk 'NR == 2 {print $1}')
    "$machine" as alice /usr/local/bin/hvdctl resize "$job" "$1" || fail "hvdctl resize $1"
}

slow_leases_grow_and_shrink() {
    boot
    conf 'slots: 4'
    bring_trainee
    start_as alice -np 1 --min-np 1 --max-np 3 -H localhost:3 "$trainee" 1500
    until_job '^enter . [0-9]+ . 3 1 0$' 3
    slots_are 3 4 || fail "not 3 slots: $(there /usr/local/bin/hvdctl node)"
    resize_to 1
    until_job '^left [12]$' 2
    until_true 10 slots_are 1 4 || fail "slots were kept: $(there /usr/local/bin/hvdctl node)"
    resize_to 2
    until_job '^enter 3 [0-9]+ 1 2 [0-9]+ 0$'
    slots_are 2 4 || fail "not 2 slots: $(there /usr/local/bin/hvdctl node)"
    stop_job
    expect_status 0
    expect_count 2 '^done [03] 1500$' "$T/out"
    all_over
    shut
}

# Another job has the slots: they are asked for again.
slow_slots_that_are_busy_come_later() {
    boot
    bring_trainee
    mkdir -m 777 "$T/bob"
    "$machine" as bob /usr/local/bin/hvdrun -np 1 sh -c "echo ready > $T/bob/ready; until [ -e $T/go ]; do sleep 0.05; done" < /dev/null > "$T/bob.out" 2>&1 &
    until_true 20 test -s "$T/bob/ready" || fail "bob has no job: $(cat "$T/bob.out")"
    echo 'localhost slots=1' > "$T/hosts"
    chmod a+r "$T/hosts"
    start_as alice -np 1 --min-np 1 --hostfile "$T/hosts" "$trainee" 1200
    until_job '^enter 0'
    sleep 1.2
    echo 'localhost slots=2' > "$T/hosts"
    sleep 1.5
    touch "$T/go"
    until_job '^enter 1 [0-9]+ 1 2 2 0$'
    stop_job
    expect_status 0
    expect_count 2 '^done . 1200$' "$T/out"
    all_over
    shut
}

# Nothing is left of a lease when root drains the node.
case_a_drained_node_is_left() {
    boot
    bring_trainee
    start_as alice -np 2 --min-np 1 --max-np 2 "$trainee" 600
    until_job '^enter' 2
    there /usr/local/bin/hvdctl drain --reason 'a new kernel' > "$T/shown" || fail 'hvdctl drain'
    expect_count 1 '^job [0-9a-f-]+: its ranks here leave at their next commit$' "$T/shown"
    stop_job # no other host takes over: the ranks stay to the end
    expect_status 0
    expect_err '^hvdrun: the ranks on localhost leave at their next commit: root asked for that with hvdctl: a new kernel$'
    expect_err 'the ranks go on until others come$'
    all_over
    shut
}
