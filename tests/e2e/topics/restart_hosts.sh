# shellcheck shell=bash disable=SC2016,SC2034,SC2154
# --max-restarts on several hosts: a lost host is left out when another can take its place, else it is tried again.
hosts=3
limit=90

where='echo "rank $HOROVOD_RANK of $HVD_RESTART_COUNT on $HOROVOD_HOSTNAME"'

until_err() { # SECONDS REGEX
    until_true "$1" grep -qE -- "$2" "$T/err" || fail "no line of stderr like \"$2\" within $1 s"
}

# The worker on the second host kills its own agent.
case_a_lost_host_with_a_spare() {
    hvd --max-restarts 2 --report "$T/report.json" -np 2 -H $H1:1,$H2:1,$H3:1 sh -c "$where"'
        [ $HVD_RESTART_COUNT = 1 ] && exit 0
        [ $HOROVOD_RANK = 0 ] || { sleep 0.5; kill -KILL $PPID; }
        exec sleep 60'
    expect_status 0
    expect_sorted "rank 0 of 0 on $H1" "rank 1 of 0 on $H2" "rank 0 of 1 on $H1" "rank 1 of 1 on $H3"
    expect_err "^hvdrun: host $H2\b.*; restart 1 of 2 in 1 s, without host $H2\$"
    expect_count 1 '^hvdrun: ' "$T/err"
    command -v python3 > /dev/null || return 0
    python3 -c 'import json, sys
r = json.load(open(sys.argv[1]))
assert r["restarts"][0]["left_out"] == [sys.argv[2]] and r["hosts"][1]["host"] == sys.argv[3], r' "$T/report.json" "$H2" "$H3" || fail "the report is wrong"
}

# The link is cut and stays so: it is waited until the lost session's lease has run out, then the spare takes over.
slow_a_silent_host_with_a_spare() {
    needs_kind ns
    start --max-restarts 1 --heartbeat-timeout 2 --grace 1 -np 2 -H $H1:1,$H2:1,$H3:1 sh -c "$where"'
        while [ $HVD_RESTART_COUNT = 0 ]; do sleep 0.1; done; exit 0'
    until_out 10 'of 0' 2
    mark_time
    ip link set v2 down
    stop_status
    ip link set v2 up
    expect_status 0
    expect_within 20
    expect_out "^rank 1 of 1 on $H3\$"
    expect_err "host $H2 could not be reached again"
    expect_err "host $H2\b.*restart 1 of 1 in 1 s, without host $H2\$"
    # Its session had ended its workers before the second epoch began.
    leave_within=1
}

slow_a_silent_host_without_a_spare() {
    needs_kind ns
    start --max-restarts 2 --heartbeat-timeout 2 --grace 1 --start-timeout 3 -np 2 -H $H1:1,$H2:1 sh -c "$where; exec sleep 60"
    until_out 10 'of 0' 2
    mark_time
    ip link set v2 down
    stop_status
    ip link set v2 up
    expect_status 125
    expect_within 40
    expect_err "host $H2\b.*restart 1 of 2 in 1 s, again with host $H2\$"
    expect_err "$H2.*restart 2 of 2 in 2 s, again with host $H2\$"
    tail -n 2 "$T/err" | grep -q "$H2" || fail "the last epoch's cause does not name the host"
    expect_no "$T/out" 'of [12] on'
}

slow_a_host_that_comes_back() {
    needs_kind ns
    start --max-restarts 5 --heartbeat-timeout 2 --grace 1 --start-timeout 3 -np 2 -H $H1:1,$H2:1 sh -c "$where"'; [ $HVD_RESTART_COUNT != 0 ] || exec sleep 60'
    until_out 10 'of 0' 2
    ip link set v2 down
    until_true 30 grep -q 'restart 2 of 5' "$T/err" || { ip link set v2 up; fail "the second restart did not come"; }
    ip link set v2 up
    stop_status
    expect_status 0
    expect_out "^rank 1 of [2-5] on $H2\$"
}

# What a host lacks at a restart is said, and costs one of the restarts.
slow_a_spare_without_the_command() {
    needs_kind ns
    on 1 'cp /bin/sh /tmp/only-some-have-it'
    on 2 'cp /bin/sh /tmp/only-some-have-it'
    hvd --max-restarts 2 -np 2 -H $H1:1,$H2:1,$H3:1 /tmp/only-some-have-it -c '[ $HOROVOD_RANK = 0 ] || { sleep 0.5; kill -KILL $PPID; }; exec sleep 60'
    on 1 'rm /tmp/only-some-have-it'
    on 2 'rm /tmp/only-some-have-it'
    expect_status 127
    expect_err "$H3: command not found: .*; restart 2 of 2"
}

slow_training_ends_with_the_same_loss() {
    loss() {
        sed -n 's/^\(step [0-9]* loss=[0-9.]*\) .*/\1/p' "$T/out" | tail -n 1
    }
    local straight
    hvd -np 4 -H $H1:2,$H2:2 "$TRAIN" --steps 150 --seed 5
    expect_status 0
    straight=$(loss)
    start --max-restarts 1 -np 4 -H $H1:2,$H2:2,$H3:2 sh -c '
        [ $HOROVOD_RANK.$HVD_RESTART_COUNT != 3.0 ] || (until [ -e "$1.die" ]; do sleep 0.02; done; kill -KILL $$) &
        state=$1; shift; exec "$0" --checkpoint "$state" "$@"' "$TRAIN" "$T/state" --steps 150 --seed 5 --checkpoint-every 10
    until_out 30 'step 35 '
    touch "$T/state.die"
    stop_status
    expect_status 0
    expect_err 'rank 3 .*signal 9.*; restart 1 of 1 in 1 s$'
    expect_out '^train: going on after step [3-9]'
    expect_same "$straight" "$(loss)" 'the last loss'
    expect_out '^step 150 '
}
