# shellcheck shell=bash disable=SC2034,SC2154
# Processes that not even SIGKILL ends, as in uninterruptible sleep: frozen by the v1 freezer. hvdrun names them and returns.
limit=60
needs_root=1

# freeze PID...: until thaw. A process in the frozen group ignores SIGKILL.
freeze() {
    group=/sys/fs/cgroup/freezer/hvd-test-$$
    mkdir "$group" 2> /dev/null || skip "the kernel gives no v1 freezer of our own here"
    trap thaw EXIT
    local p
    for p; do echo "$p" > "$group/cgroup.procs" || fail "cannot freeze $p"; done
    echo FROZEN > "$group/freezer.state"
    until_true 5 grep -qx FROZEN "$group/freezer.state" || fail "not frozen"
}

thaw() {
    [ -d "$group" ] || return 0
    echo THAWED > "$group/freezer.state"
    until_true 5 rmdir "$group" 2> /dev/null
}

case_a_frozen_worker_is_named() {
    # shellcheck disable=SC2016
    start --grace 1 -np 1 sh -c 'echo "pid $$"; exec sleep 100'
    until_out 5 pid
    local worker
    worker=$(sed -n 's/^.*pid //p' "$T/out")
    freeze "$worker"
    mark_time
    kill -TERM $pid
    timeout 30 tail --pid=$pid -f /dev/null || fail "hvdrun still waits"
    stop_status
    expect_within 8 # the grace period, and 5 s for SIGKILL: once, not once for each who waits
    expect_status 143
    expect_count 1 "process $worker" "$T/err"
    thaw
    leave_within=5
}

slow_a_frozen_agent_is_named() {
    # shellcheck disable=SC2016
    start --grace 1 --heartbeat-timeout 2 -np 1 sh -c 'echo "pid $$"; exec sleep 100'
    until_out 5 pid
    # shellcheck disable=SC2046
    freeze $(pgrep -P $pid) $(pgrep -P "$(pgrep -P $pid)")
    mark_time
    timeout 40 tail --pid=$pid -f /dev/null || fail "hvdrun still waits"
    stop_status
    expect_within 30
    expect_status 125
    expect_err 'process [0-9]+ \(of the agent\) could not be ended'
    thaw
    leave_within=8
}
