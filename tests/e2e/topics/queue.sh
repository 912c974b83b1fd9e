# shellcheck shell=bash disable=SC2034,SC2154
# --wait: jobs of two users that wait for the managed agent's slots, and whose GPUs are whose, under a real systemd.
needs_root=1
limit=60
# shellcheck source=tests/e2e/systemd_host.sh
. "$top/tests/e2e/systemd_host.sh"

# queue_as NAME USER ARGUMENTS of hvdrun: in the background; what it says is in $T/NAME.out and $T/NAME.err, its pid in ${queued[NAME]}
queue_as() {
    local name=$1 who=$2
    shift 2
    env --default-signal=INT "$machine" as "$who" /usr/local/bin/hvdrun "$@" < /dev/null > "$T/$name.out" 2> "$T/$name.err" &
    queued[$name]=$!
}

said() { # NAME REGEX
    until_true 15 grep -qE -- "$2" "$T/$1.err" || fail "$1 did not say $2: $(cat "$T/$1.err")"
}

# Notes in $T/order that it has started.
note() { # NAME
    echo "echo $1 >> $T/order; sleep 0.2"
}

case_they_wait_in_order_and_are_told_where() {
    boot
    touch "$T/order"
    chmod 666 "$T/order"
    start_job
    queue_as first bob --wait -np 2 sh -c '[ "$HOROVOD_RANK" = 1 ] || { '"$(note first)"'; }'
    said first 'localhost: waiting for 2 slots: place 1 of 1; 1 of 2 are free \(alice 1\)$'
    queue_as small alice --wait=forever -np 1 sh -c "$(note small)"
    said small 'localhost: waiting for 1 slot: place 2 of 2; 1 of 2 are free \(alice 1\)$'
    queue_as urgent root --wait --priority 60 -np 2 sh -c '[ "$HOROVOD_RANK" = 1 ] || { '"$(note urgent)"'; }'
    said urgent 'place 1 of 3'
    said first 'place 2 of 3'
    as bob -np 1 true # would fit
    expect_status 125
    expect_err 'it is busy: 3 jobs wait there already'
    as bob --wait --priority 51 -np 2 true
    expect_status 125
    expect_err 'bob may not ask for priority 51, the highest is 50 \(max_priority\)'
    as bob --wait -np 3 true
    expect_status 125
    expect_err '3 slots are wanted, it has 2'
    touch "$T/go"
    stop_job
    expect_status 0
    ended urgent 0
    ended first 0
    ended small 0
    expect_same 'urgent first small' "$(tr '\n' ' ' < "$T/order" | sed 's/ $//')" 'the order'
    [ "$(wc -l < "$T/small.err")" -le 6 ] || fail "too many lines: $(cat "$T/small.err")"
    all_over
    shut
}

slow_who_goes_leaves_his_place() {
    boot
    start_job
    queue_as interrupted bob --wait -np 2 true
    said interrupted 'place 1 of 1'
    queue_as killed bob --wait --priority 40 -np 2 true
    said killed 'place 2 of 2'
    queue_as late bob --wait=1.5 --priority 30 -np 2 true
    said late 'place 3 of 3'
    queue_as patient alice --wait --priority 20 -np 2 echo fine
    said patient 'place 4 of 4'
    there pkill -INT -f 'hvdrun --wait -np 2 true'
    ended interrupted 130
    said late 'place 2 of 3'
    there pkill -KILL -f 'hvdrun --wait --priority 40'
    ended killed 137
    ended late 125
    expect_same 1 "$(grep -cE 'localhost: 1.5 s are over \(--wait\): still waiting for 2 slots: place' "$T/late.err")" 'lines that say why'
    said patient 'place 1 of 1'
    touch "$T/go"
    stop_job
    ended patient 0
    grep -q '^fine$' "$T/patient.out" || fail "it did not run"
    all_over
    shut
}

slow_the_start_timeout_counts_from_the_end_of_the_wait() {
    boot
    start_job
    queue_as patient bob --wait --start-timeout 1 --heartbeat-timeout 2 -np 2 echo fine
    said patient 'place 1 of 1'
    sleep 4
    kill -0 "${queued[patient]}" || fail "it did not wait: $(cat "$T/patient.err")"
    touch "$T/go"
    stop_job
    ended patient 0
    shut
}

slow_the_agent_is_killed_or_drained_while_jobs_wait() {
    boot
    start_job
    queue_as first bob --wait -np 2 true
    said first 'place 1 of 1'
    there kill -KILL "$(agent_pid)"
    until_true 10 agent_started 1 || fail 'it was not started again'
    ended first 125
    expect_same 1 "$(grep -c 'localhost: waiting: the managed agent ended while the job waited for it: start it again' "$T/first.err")" 'lines that say why'
    queue_as second bob --wait -np 2 true
    said second 'place 1 of 1'
    conf 'slots: 2' 'drain: until Friday'
    there systemctl reload hvdagent.service
    ended second 125
    expect_same 1 "$(grep -c 'localhost: .*it is drained: until Friday' "$T/second.err")" 'lines that say why'
    touch "$T/go"
    stop_job
    expect_status 0
    all_over
    shut
}

slow_a_smaller_node_and_a_full_queue() {
    boot 'max_waiting: 2'
    start_job
    queue_as first bob --wait -np 2 true
    said first 'place 1 of 1'
    as bob --wait -np 2 true
    expect_status 125
    expect_err '1 jobs of bob wait there, and more may not \(half of max_waiting\)'
    conf 'slots: 1' 'max_waiting: 2'
    there systemctl reload hvdagent.service
    ended first 125
    grep -q '2 slots are wanted, it has 1' "$T/first.err" || fail "it was not told: $(cat "$T/first.err")"
    touch "$T/go"
    stop_job
    all_over
    shut
}

# ---- several nodes ----------------------------------------------------------------------------------------------------------
attached() { # COUNT: so many wait on the first node
    [ "$(SYSTEMD_DIR=$T/node1 "$machine" exec pgrep -c -f 'hvdagent attach')" = "$1" ]
}

# Each would have its first node before the second can be reached, and the other one's then.
slow_jobs_that_call_the_nodes_differently_wait_for_no_circle() {
    two_nodes "slots: 1"
    printf 'n2\nz1\n' > "$T/late"
    on_nodes one --wait=20 -np 2 -H n1:1,n2:1 echo one
    on_nodes two --wait=20 -np 2 -H a2:1,z1:1 echo two
    until_true 5 pgrep -f "$T/rsh z1 " || fail 'nobody connects'
    on_nodes three --wait=20 -np 2 -H n1:1,n2:1 true
    until_true 10 attached 2 || fail 'nobody waits'
    expect_same '' "$(SYSTEMD_DIR=$T/node1 "$machine" exec ls /run/hvd/leases)" 'the leases while a host cannot be reached'
    kill -INT "${queued[three]}"
    ended three 130
    rm "$T/late"
    ended one 0
    ended two 0
    expect_same 2 "$(grep -c '^one$' "$T/one.out")" 'ranks of one'
    expect_same 2 "$(grep -c '^two$' "$T/two.out")" 'ranks of two'
    all_down
}

slow_a_node_gives_no_more_slots_than_it_gets_ranks() {
    two_nodes "slots: 2"
    on_nodes three -np 3 -H n1:2,n2:2 sh -c "echo ready; until [ -e $T/go ]; do sleep 0.05; done"
    until_true 20 grep -q ready "$T/three.out" || fail "it did not start: $(cat "$T/three.err")"
    for k in 1 2; do SYSTEMD_DIR=$T/node$k "$machine" exec sh -c 'grep -h slots /run/hvd/leases/*'; done > "$T/slots"
    expect_same 'slots: 2 slots: 1' "$(paste -sd' ' "$T/slots")" 'the leases'
    touch "$T/go"
    ended three 0
    on_nodes itself --wait -np 3 -H n1:2,z1:1 true
    ended itself 125
    grep -q ': 1 slot is wanted beside the 2 that the same job has there already, it has 2' "$T/itself.err" || fail "it was not told: $(cat "$T/itself.err")"
    all_down
}

# ---- GPUs -------------------------------------------------------------------------------------------------------------------
boot_with_gpus() { # GPUS
    local gpus=$1
    boot
    conf 'slots: 0'
    there mkdir -p /etc/systemd/system/hvdagent.service.d /usr/local/lib/nvml
    cp "$BUILD/tests/nvml/libnvidia-ml.so.1" "$T/"
    there cp "$T/libnvidia-ml.so.1" /usr/local/lib/nvml/
    there sh -c 'printf "[Service]\nEnvironment=LD_LIBRARY_PATH=/usr/local/lib/nvml HVD_TEST_GPUS='"$gpus"'\n" > /etc/systemd/system/hvdagent.service.d/gpus.conf'
    there systemctl daemon-reload
}

# shellcheck disable=SC2016
devices='echo $HOROVOD_RANK ${CUDA_VISIBLE_DEVICES-unset}'

case_gpus_of_two_jobs_are_not_the_same() {
    [ -e "$BUILD/tests/nvml/libnvidia-ml.so.1" ] || skip 'the double of NVML was not built'
    boot_with_gpus 4
    start_as alice -np 2 sh -c "$devices; until [ -e $T/go ]; do sleep 0.05; done"
    until_job '^[01] 0,1$' 2
    as bob -np 2 --gpu-bind single sh -c "$devices"
    expect_status 0
    expect_sorted '0 2' '1 3'
    as bob -np 1 --gpu-bind none -x CUDA_VISIBLE_DEVICES=0 sh -c "$devices"
    expect_status 0
    expect_sorted '0 2'
    there kill -KILL "$(agent_pid)"
    until_true 10 agent_started 1 || fail 'it was not started again'
    as bob -np 1 sh -c "$devices"
    expect_sorted '0 2'
    as bob -np 3 true
    expect_status 125
    expect_err 'it is busy: 3 slots are wanted, 2 of 4 are free \(alice 2\)'
    touch "$T/go"
    stop_job
    expect_status 0
    as bob -np 4 sh -c "$devices"
    expect_sorted '0 0,1,2,3' '1 0,1,2,3' '2 0,1,2,3' '3 0,1,2,3'
    all_over
    shut
}
