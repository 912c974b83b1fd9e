# Hosts without sshd: hvdagent wait runs there, and hvdrun comes by --rsh 'hvdagent reach'.
# shellcheck shell=bash disable=SC2154,SC2034,SC2016
hosts=2
limit=30

key=/tmp/reach.key # of each host, and of hvdrun's

keys() {
    needs_kind ns
    [ -e "$T/key" ] || head -c 32 /dev/urandom | base64 > "$T/key"
    for host in 1 2; do on $host "umask 077; rm -f $key; cat > $key" < "$T/key"; done
    carried="$BUILD/hvdagent reach --key-file $T/key"
    leave_within=8
}

waits() { # HOST OPTION...: its words and exit status are read by waited
    local host=$1
    shift
    on "$host" "rm -f /tmp/reach.status; setsid sh -c '$BUILD/hvdagent wait --key-file $key $*; echo \$? > /tmp/reach.status' > /tmp/reach.said 2>&1 < /dev/null &"
}

waited() { # HOST SECONDS: sets $status and fills $T/said
    until_true "$2" on "$1" 'test -s /tmp/reach.status' || fail "hvdagent wait still runs on node$1: $(on "$1" 'cat /tmp/reach.said')"
    status=$(on "$1" 'cat /tmp/reach.status')
    on "$1" 'cat /tmp/reach.said' > "$T/said"
}

case_two_hosts_train() {
    keys
    for host in 1 2; do waits $host --linger 1; done
    run "$HVDRUN" -H node1:2,node2:2 --rsh "$carried" "$BUILD/examples/train" --steps 20
    expect_status 0
    expect_out 'loss='
    cp "$T/out" "$T/reached"
    for host in 1 2; do
        waited $host 5
        expect_status 0
        expect_same '' "$(cat "$T/said")" "the words of node$host"
    done
    hvd -H $H1:2,$H2:2 "$BUILD/examples/train" --steps 20
    expect_same "$(grep -o 'loss=.*' "$T/out" | tail -n 1 | cut -d' ' -f1)" "$(grep -o 'loss=.*' "$T/reached" | tail -n 1 | cut -d' ' -f1)" 'the loss'
}

case_exit_status_and_bytes_pass() {
    keys
    for host in 1 2; do waits $host --linger 1; done
    head -c 300000 /dev/urandom > "$T/in"
    run "$HVDRUN" -H node1:1,node2:1 --rsh "$carried" --stdin 1 sh -c '[ $RANK = 0 ] || { cat; exit 9; }'
    expect_status 9
    expect_err 'rank 1 on node2 .* failed first: exit status 9'
    cmp -s "$T/in" "$T/out" || fail 'the bytes have changed on their way'
    for host in 1 2; do
        waited $host 5
        expect_status 0
    done
}

case_hvdrun_may_come_first() {
    keys
    start -H node1:1,node2:1 --rsh "$carried" sh -c 'echo $RANK is here'
    sleep 1
    for host in 1 2; do waits $host --linger 1; done
    stop_status
    expect_status 0
    expect_sorted '0 is here' '1 is here'
    for host in 1 2; do waited $host 5; done
}

begin_job() { # its two workers run
    keys
    for host in 1 2; do waits $host --linger 1; done
    start -H node1:1,node2:1 --rsh "$carried" sh -c 'echo $RANK ready; exec sleep 61.25'
    until_out 10 'ready' 2
}

case_the_end_of_hvdrun_ends_all() {
    begin_job
    kill -KILL $pid
    wait $pid
    for host in 1 2; do
        waited $host 10
        on $host 'pgrep -fx "sleep 61.25"' && fail "the worker of node$host lives"
    done
    status=0
}

case_a_connection_that_is_lost_ends_its_host() {
    begin_job
    kill -KILL "$(pgrep -P $pid -f "key node2")"
    stop_status
    expect_status 125
    expect_err 'host node2 was lost: the command of --rsh, which led to node2, was killed by signal 9'
    for host in 1 2; do waited $host 12; done
}

case_sigterm_ends_the_job() {
    begin_job
    on 2 'kill $(pgrep -o -x hvdagent)'
    stop_status
    [ "$status" != 0 ] || fail 'hvdrun takes that for success'
    expect_err 'node2'
    waited 2 10
    expect_status 143
    waited 1 10
}

case_another_key_is_refused() {
    keys
    waits 1 --linger 1 --limit 6
    head -c 32 /dev/urandom > "$T/other"
    run "$HVDRUN" -H node1:1 --rsh "$BUILD/hvdagent reach --key-file $T/other" touch "$T/started"
    expect_status 125
    expect_err "node1 does not take the key $T/other"
    [ ! -e "$T/started" ] || fail 'the command was started'
    waited 1 10
    expect_status 1
    grep -q 'a connection was refused' "$T/said" || fail 'the host says nothing of the stranger'
    grep -q 'no hvdrun with the key came within 6 s' "$T/said" || fail "no reason for the end: $(cat "$T/said")"
}

# As a proxy does while the pod behind it is not ready.
case_a_connection_that_is_closed_at_once_is_tried_again() {
    keys
    on 1 "$BUILD/tests/contain 20 1 /usr/bin/python3 -c '
import socket
s = socket.create_server((\"\", 7411))
for i in range(3): s.accept()[0].close()' > /tmp/reach.strangers 2>&1; $BUILD/hvdagent wait --key-file $key --linger 1 > /tmp/reach.said 2>&1" &
    sleep 0.5
    run "$HVDRUN" -H node1:1 --rsh "$carried" echo here
    expect_status 0
    expect_out '^here$'
    wait
}

slow_a_listener_that_says_nothing() {
    keys
    on 1 "$BUILD/tests/contain 30 1 /usr/bin/python3 -c '
import socket, time
s = socket.create_server((\"\", 7411))
time.sleep(15)' > /tmp/reach.strangers 2>&1 &"
    sleep 0.5
    run "$HVDRUN" -H node1:1 --rsh "$carried" touch "$T/started"
    expect_status 125
    expect_err 'node1 says nothing at port 7411: is that hvdagent wait'
}

slow_strangers_do_not_stand_in_the_way() {
    keys
    waits 1 --linger 1
    on 1 "$BUILD/tests/contain 20 1 /usr/bin/python3 -c '
import socket, time
silent = [socket.create_connection((\"node1\", 7411)) for i in range(80)]
for s in silent[:10]: s.send(b\"GET / HTTP/1.1\r\n\r\n\" * 100)
time.sleep(18)' > /tmp/reach.strangers 2>&1 &"
    sleep 1
    run "$HVDRUN" -H node1:1 --rsh "$carried" echo here
    expect_status 0
    expect_out '^here$'
    waited 1 14
    expect_status 0
}

# In a container it is the first process: it gets orphans, whose statuses are not those of commands.
case_the_first_process_of_a_container() {
    keys
    local reach=(timeout 10 "$BUILD/hvdagent" reach --key-file "$T/key" --limit 5)
    on 1 "rm -f /tmp/reach.status; setsid unshare --pid --fork --mount-proc sh -c 'exec $BUILD/hvdagent wait --key-file $key --linger 2' > /tmp/reach.said 2>&1 < /dev/null; echo \$? > /tmp/reach.status" &
    "${reach[@]}" node1 '(sleep 0.5; exit 5) & exit 0'
    "${reach[@]}" node1 'sleep 1; exit 0' || fail 'the second command failed'
    waited 1 5
    expect_status 0
    wait
}

case_a_host_where_nobody_waits() {
    keys
    run "$HVDRUN" -H node1:1 --rsh "$carried --limit 1" touch "$T/started"
    expect_status 125
    expect_err 'node1.*Connection refused'
}

case_keys_that_are_none() {
    keys
    on 1 "$BUILD/hvdagent wait --key-file /nowhere" > "$T/said" 2>&1
    grep -q 'cannot read the key /nowhere: No such file' "$T/said" || fail "$(cat "$T/said")"
    on 1 "echo short > /tmp/reach.short; $BUILD/hvdagent wait --key-file /tmp/reach.short" > "$T/said" 2>&1
    grep -q 'the key /tmp/reach.short has less than 16 bytes' "$T/said" || fail "$(cat "$T/said")"
    on 1 "chmod 666 $key; $BUILD/hvdagent wait --key-file $key" > "$T/said" 2>&1
    grep -q "everybody may write the key $key" "$T/said" || fail "$(cat "$T/said")"
    status=0
}

case_the_key_is_nowhere_to_be_seen() {
    keys
    for host in 1 2; do waits $host --linger 1; done
    start -H node1:1,node2:1 --rsh "$carried" --verbose sh -c 'env; cat /proc/[0-9]*/cmdline 2> /dev/null | tr "\0" " "; echo ready; sleep 1'
    until_out 10 'ready' 2
    expect_no "$T/out" "$(cut -c 1-20 "$T/key")"
    expect_no "$T/err" "$(cut -c 1-20 "$T/key")"
    stop_status
    expect_status 0
    for host in 1 2; do waited $host 5; done
}

case_a_job_that_begins_again() {
    keys
    for host in 1 2; do waits $host --linger 5; done
    run "$HVDRUN" -H node1:1,node2:1 --max-restarts 1 --rsh "$carried" sh -c '[ $HVD_RESTART_COUNT != 0 ] || [ $RANK != 1 ] || exit 3; echo $RANK in $HVD_RESTART_COUNT'
    expect_status 0
    expect_out '^1 in 1$'
    for host in 1 2; do
        waited $host 10
        expect_status 0
    done
}

# The very lines of the pods, with the names, the key and the program of these hosts. The first one's full name stands in its /etc/hosts,
# as in a pod; its name of the list, node1.train, is known to nobody.
slow_the_pods_of_the_indexed_job() {
    keys
    local pod
    on 1 "cp /etc/hosts /etc/hosts.before; sed -i 's/ node1\$/ node1.train.default.svc.cluster.local node1/' /etc/hosts"
    trap 'on 1 "mv /etc/hosts.before /etc/hosts"; rm -rf "$XDG_RUNTIME_DIR" "$XDG_RUNTIME_DIR.open"' EXIT
    pod=$(sed -n '/^ *- |$/,/^ *ports:/p' "$top/contrib/kubernetes-job.yaml" | sed '1d;$d;s/^ *//' | sed "s|train-0.train|node1.train|;s|train-1.train|node2|;
        s|:4|:2|g;s|hvdagent [a-z]*|$BUILD/& --key-file $key|;s|exec hvdrun|exec $BUILD/hvdrun|;s|/opt/train/train|$BUILD/examples/train --steps 10|")
    on 2 "rm -f /tmp/reach.status; cat > /tmp/reach.pod; JOB_COMPLETION_INDEX=1 setsid sh -c 'sh /tmp/reach.pod; echo \$? > /tmp/reach.status' > /tmp/reach.said 2>&1 < /dev/null &" <<< "$pod"
    on 1 "cat > /tmp/reach.pod; JOB_COMPLETION_INDEX=0 sh /tmp/reach.pod" <<< "$pod" > "$T/out" 2> "$T/err"
    status=$?
    expect_status 0
    expect_out '^step 10 loss='
    waited 2 14
    expect_status 0
}
