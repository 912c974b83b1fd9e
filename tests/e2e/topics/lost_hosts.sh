# shellcheck shell=bash disable=SC2034,SC2154
# A host is lost while its workers run: hvdrun goes there again and sweeps, or says that it cannot.
hosts=2
limit=60

# The rank on the second host ignores what asks it to end; the others do not.
# shellcheck disable=SC2016
second_is_stubborn='echo ready; [ $HOROVOD_RANK = 0 ] || trap "" INT TERM; while :; do sleep 0.1; done'

kill_the_sshd() { # of the session on node2
    on 2 "for d in /proc/[0-9]*; do [ \"\$(readlink \$d/exe)\" != '$BUILD/hvdagent' ] || sed -n 's/^PPid:\t//p' \$d/status; done | sort -n | head -n 1 | xargs kill -9"
}

# Gone within the grace and 1 s, and what the way there takes.
case_a_killed_sshd_is_swept_after() {
    needs_kind ns
    start --log-level debug --grace 3 -np 2 -H $H1:1,$H2:1 sh -c "$second_is_stubborn"
    until_out 10 ready 2
    kill_the_sshd
    mark_time
    stop_status
    expect_within 7
    expect_status 125
    expect_err "host $H2 was lost"
    expect_err "$H2: sweep ended .* status 0"
    expect_no "$T/err" 'could not be reached'
    leave_within=1
}

# The sweep comes while the session gives its workers their grace, and leaves it to them.
# shellcheck disable=SC2016
case_the_grace_is_not_cut_short() {
    needs_kind ns
    start --log-level debug --grace 8 -np 2 -H $H1:1,$H2:1 sh -c '[ $HOROVOD_RANK = 0 ] || trap "sleep 1.5; echo whole > /tmp/whole; exit 0" TERM; echo ready; while :; do sleep 0.1; done'
    until_out 10 ready 2
    kill_the_sshd
    mark_time
    stop_status
    expect_within 7
    expect_status 125
    expect_err "$H2: sweep ended .* status 0"
    on 2 'grep -q whole /tmp/whole; found=$?; rm -f /tmp/whole; exit $found' || fail "the worker was cut short"
    leave_within=1
}

case_a_second_interrupt_cuts_the_grace_of_a_lost_host() {
    needs_kind ns
    start --log-level debug --grace 40 -np 2 -H $H1:1,$H2:1 sh -c "$second_is_stubborn"
    until_out 10 ready 2
    kill_the_sshd
    until_true 10 grep -q 'sweeping, attempt 1' "$T/err" || fail "never tried"
    sleep 1
    kill -INT $pid
    sleep 0.2
    [ -e /proc/$pid ] || fail "the first interrupt ended the waiting"
    mark_time
    kill -INT $pid
    stop_status
    expect_within 6
    expect_status 125
    expect_err "$H2: sweep ended .* status 0"
    expect_no "$T/err" 'could not be reached'
    leave_within=1
}

case_a_link_that_heals_is_swept_over() {
    needs_kind ns
    start --log-level debug --heartbeat-timeout 2 --grace 3 -np 2 -H $H1:1,$H2:1 sh -c "$second_is_stubborn"
    until_out 10 ready 2
    ip link set v2 down
    until_true 10 grep -q 'sweeping, attempt 1' "$T/err" || { ip link set v2 up; fail "never tried"; }
    ip link set v2 up
    mark_time
    stop_status
    expect_within 12
    expect_status 125
    expect_err "$H2: sweep ended .* status 0"
    expect_no "$T/err" 'could not be reached'
    leave_within=1
}

# The line behind the cause says what the other ranks were in meanwhile, and when those of the lost host were seen.
case_the_waits_of_the_others_are_named() {
    needs_kind ns
    start --heartbeat-timeout 3 --grace 1 -np 2 -H $H1:1,$H2:1 "$BUILD/tests/culprit" healthy 0
    until_out 20 ready 2
    sleep 3
    ip link set v2 down
    until_true 20 grep -q 'had waited in' "$T/err" || { ip link set v2 up; fail "never said"; }
    ip link set v2 up
    stop_status
    expect_status 125
    expect_err "host $H2 was lost"
    expect_err "^hvdrun: rank 0 had waited in allreduce \"layer.[0-3].weight\" for [1-9][0-9.]* s; the ranks of $H2 were last seen in \"layer.[0-3].weight\", [1-9][0-9.]* s before it was lost$"
    leave_within=1
}

case_a_host_that_stays_away_is_named() {
    needs_kind ns
    start --heartbeat-timeout 2 --grace 1 -np 2 -H $H1:1,$H2:1 sh -c "$second_is_stubborn"
    until_out 10 ready 2
    ip link set v2 down
    mark_time
    stop_status
    ip link set v2 up
    expect_within 12
    expect_status 125
    head -n 1 "$T/err" | grep -q "host $H2 was lost" || fail "the cause is not said first"
    expect_err "host $H2 could not be reached again; its session ends its workers by itself when it hears nothing for 2 s"
    # It was waited for longer than its session needed: nothing is left of it.
    leave_within=1
}

slow_a_second_interrupt_does_not_wait_for_it() {
    needs_kind ns
    start --log-level debug --heartbeat-timeout 3 --grace 10 -np 2 -H $H1:1,$H2:1 sh -c "$second_is_stubborn"
    until_out 10 ready 2
    ip link set v2 down
    until_true 15 grep -q 'sweeping, attempt 1' "$T/err" || { ip link set v2 up; fail "never tried"; }
    kill -INT $pid
    sleep 0.2
    [ -e /proc/$pid ] || fail "the first interrupt ended the waiting"
    mark_time
    kill -INT $pid
    stop_status
    ip link set v2 up
    expect_within 4
    expect_status 125
    expect_err 'could not be reached again'
    leave_within=25
}

# Its session may have heard hvdrun last when the time was over, and has then the heartbeat time-out and the grace to end its workers:
# that is waited for, and not more.
slow_a_time_limit_with_a_host_that_is_cut_off() {
    needs_kind ns
    start --timeout 2 --heartbeat-timeout 6 --grace 1 -np 2 -H $H1:1,$H2:1 sh -c "$second_is_stubborn"
    until_out 10 ready 2
    ip link set v2 down
    mark_time
    stop_status
    ip link set v2 up
    expect_within 12
    expect_status 124
    expect_err "host $H2 was lost: nothing was heard of it"
    expect_err "host $H2 could not be reached again"
    expect_err '^hvdrun: the time limit of 2 s \(--timeout\) is over$'
    leave_within=1
}

# ---- the guard, whose end is the agent's ------------------------------------------------------------------------------------
# It takes SECONDS to end on the second host.
late_guard() { # SECONDS ARGUMENTS of hvdrun
    [ -z "$E2E_SANITIZE" ] || skip "a sanitizer wants to be loaded first"
    # shellcheck disable=SC2016
    printf '#!/bin/sh\ncase $(hostname).$1 in node2.attach|node2.session) export HOLD_GUARD_MS=%d LD_PRELOAD=%s ;; esac\nexec %s "$@"\n' \
        $(($1 * 1000)) "$BUILD/tests/fault-hold.so" "$BUILD/hvdagent" > "$T/agent"
    chmod 755 "$T/agent"
    chmod 777 "$T"
    mark_time
    hvd --agent-path "$T/agent" --agent job -np 2 -H "$H1:1,$H2:1" "${@:2}"
}

gone_with_hvdrun() {
    expect_same '' "$(leftover_processes)" 'what runs when hvdrun has returned'
    [ "${EPOCHREALTIME/./}" -ge $((since + 2500000)) ] || fail "nobody was held"
}

case_a_late_guard_is_waited_for() {
    needs_kind ns
    late_guard 3 true
    gone_with_hvdrun
    expect_status 0
    expect_no_err
}

# Its host has nothing to say for longer than the heartbeat time-out, and that is no silence.
case_a_late_guard_is_no_silent_host() {
    needs_kind ns
    late_guard 3 --heartbeat-timeout 1 --grace 1 --timeout 1 sleep 60
    gone_with_hvdrun
    expect_status 124
    expect_no "$T/err" 'was lost|not heard of'
}

case_a_late_guard_behind_the_ssh_program() {
    needs_kind ns
    late_guard 3 --rsh "${ssh_command[*]}" true
    gone_with_hvdrun
    expect_status 0
    expect_no_err
}

# Nobody waits for ever for a guard, but then it is named.
slow_a_guard_that_stays_is_named() {
    needs_kind ns
    late_guard 25 --heartbeat-timeout 2 --grace 1 true
    expect_status 0
    expect_count 1 "host $H2: its agent has ended the job, but its guard process \(pid [0-9]+\) did not report its end" "$T/err"
    expect_within 20
    leave_within=25
}
