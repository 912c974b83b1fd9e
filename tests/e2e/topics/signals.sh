# shellcheck shell=bash disable=SC2034,SC2154
# Signals and deaths: what hvdrun gets reaches the workers, and whoever dies, nothing of the job stays.
limit=30

# shellcheck disable=SC2016
steady='trap "echo got INT; exit 3" INT; trap "echo got TERM; exit 4" TERM; trap "echo got USR1" USR1; echo ready; while :; do sleep 0.1; done'
# shellcheck disable=SC2016
stubborn='trap "" INT TERM; echo ready; while :; do sleep 0.1; done'

case_interrupt_reaches_the_workers() {
    start -np 2 sh -c "$steady"
    until_out 5 ready 2
    kill -INT $pid
    stop_status
    expect_count 2 'got INT' "$T/out"
    [ "$status" = 3 ] || [ "$status" = 130 ] || fail "exit status $status, neither the workers' 3 nor 130"
}

case_a_second_interrupt_kills() {
    start --grace 8 -np 2 sh -c "$stubborn" # less than the tests' own grace when they are ended
    until_out 5 ready 2
    kill -INT $pid
    sleep 0.3
    [ -e /proc/$pid ] || fail "ended at the first interrupt, though the workers ignore it"
    mark_time
    kill -INT $pid
    stop_status
    expect_within 3
    [ "$status" -gt 128 ] || fail "exit status $status"
}

case_terminate_ends_the_job() {
    start --grace 1 -np 2 sh -c "$stubborn"
    until_out 5 ready 2
    mark_time
    kill -TERM $pid
    stop_status
    expect_within 5
    [ "$status" -gt 128 ] || fail "exit status $status"
}

case_usr1_is_forwarded_and_ends_nothing() {
    start -np 2 sh -c "$steady"
    until_out 5 ready 2
    kill -USR1 $pid
    until_out 5 'got USR1' 2
    kill -TERM $pid
    stop_status
    expect_count 2 'got TERM' "$T/out"
}

case_stop_and_continue() {
    # shellcheck disable=SC2016
    start --heartbeat-timeout 2 -np 2 sh -c 'echo ready; i=0; while [ $i -lt 1000 ]; do sleep 0.05; i=$((i+1)); echo tick; done'
    until_out 5 ready 2
    kill -TSTP $pid
    sleep 1
    local ticks
    ticks=$(grep -c tick "$T/out")
    sleep 3
    expect_same "$ticks" "$(grep -c tick "$T/out")" 'the number of ticks while stopped'
    kill -CONT $pid
    until_true 5 out_has tick $((ticks + 10)) || fail "the workers did not go on: $(cat "$T/err")"
    kill -TERM $pid
    stop_status
}

case_kill_9_of_hvdrun_leaves_nothing() {
    start -np 3 sh -c "$stubborn"
    until_out 5 ready 3
    kill -KILL $pid
    stop_status
    leave_within=8
}

case_kill_9_of_hvdrun_while_workers_print() {
    "$HVDRUN" -np 3 sh -c 'trap "" TERM INT PIPE; while :; do echo xxxxxxxxxxxxxxxxxxxxxxxxxxxx; done' > /dev/null 2>&1 < /dev/null &
    pid=$!
    sleep 0.5
    kill -KILL $pid
    stop_status
    leave_within=8
}

# The processes of the job that run hvdagent, parents first: the session, then its fork, the guard - or the other way.
agents() {
    local dir
    for dir in /proc/[0-9]*; do
        [ "$(readlink "$dir/exe" 2>/dev/null)" = "$BUILD/hvdagent" ] || continue
        tr '\0' '\n' < "$dir/environ" 2>/dev/null | grep -qxF "HVD_TEST_CASE=$T" && echo "${dir#/proc/}"
    done | sort -n
}

kill_agent() { # NUMBER: of the list above
    local victim
    start --grace 1 -np 3 sh -c "$stubborn" # what is left of the agent gives the workers this time
    until_out 5 ready 3
    expect_same 2 "$(agents | wc -l)" 'the number of agent processes (session and guard)'
    victim=$(agents | sed -n "$1p")
    kill -KILL "$victim"
    mark_time
    stop_status
    expect_within 10
    expect_status 125
    leave_within=5
}

case_kill_9_of_the_first_agent_process() {
    kill_agent 1
}

case_kill_9_of_the_second_agent_process() {
    kill_agent 2
}

case_kill_9_of_everything_but_workers() {
    start -np 3 sh -c "$stubborn"
    until_out 5 ready 3
    # shellcheck disable=SC2046
    kill -KILL $pid $(agents)
    stop_status
    # PDEATHSIG ends the workers; files are swept by the next agent that starts here.
    until_true 5 no_processes || fail "processes were left: $(leftover_processes)"
    hvd -np 1 true
    expect_status 0
}

case_a_stopped_hvdrun_is_not_mistaken_for_a_dead_one_at_once() {
    start --heartbeat-timeout 10 -np 1 sh -c "$steady"
    until_out 5 ready
    kill -STOP $pid
    sleep 2
    kill -CONT $pid
    sleep 0.5
    [ -e /proc/$pid ] || fail "the job ended: $(cat "$T/err")"
    kill -TERM $pid
    stop_status
    expect_count 1 'got TERM' "$T/out"
}

case_a_hvdrun_that_stood_still_for_too_long_says_so() {
    start --heartbeat-timeout 2 -np 1 sleep 60
    sleep 1
    kill -STOP $pid
    sleep 4
    kill -CONT $pid
    stop_status
    expect_err '^hvdrun: host localhost was lost: its agent heard nothing of hvdrun for 2.0 s and ended the job there$'
    expect_err 'hint: hvdrun was stopped, or a slow file'
}

case_workers_are_not_in_the_terminals_process_group() {
    # shellcheck disable=SC2016
    start -np 1 sh -c 'echo group $(cut -d" " -f5 /proc/$$/stat) session $(cut -d" " -f6 /proc/$$/stat); echo ready; exec sleep 60'
    until_out 5 ready
    local mine
    mine=$(cut -d' ' -f5 /proc/$pid/stat)
    expect_no "$T/out" "^group $mine "
    kill -TERM $pid
    stop_status
}

# Nobody reads hvdrun's stderr, and it is full: heartbeats go on far beyond their time-out, and the job ends.
case_a_full_stderr_stops_nothing() {
    mkfifo "$T/stuck"
    # shellcheck disable=SC2217 # it holds the reading end open
    sleep 60 < "$T/stuck" &
    local holder=$! stuck
    exec {stuck}> "$T/stuck"
    timeout 1 dd if=/dev/zero of="$T/stuck" bs=4096 2> /dev/null
    # shellcheck disable=SC2016
    timeout 20 "$HVDRUN" --log-level trace --heartbeat-timeout 1 -np 2 sh -c 'sleep 3; echo whole' \
        > "$T/out" 2>&$stuck < /dev/null
    status=$?
    kill "$holder"
    : > "$T/err"
    expect_status 0
    expect_count 2 whole "$T/out"
}

case_forward_signals_chooses() {
    # shellcheck disable=SC2016
    start --forward-signals ALRM -np 2 sh -c 'trap "echo got ALRM" ALRM; trap "echo got USR1" USR1; echo ready; while :; do sleep 0.1; done'
    until_out 5 ready 2
    kill -USR1 $pid
    kill -ALRM $pid
    until_out 5 'got ALRM' 2
    kill -USR1 $pid
    sleep 0.2
    kill -TERM $pid
    stop_status
    expect_status 143
    expect_no "$T/out" 'got USR1'
}

case_forward_signals_none_protects_the_workers() {
    start --forward-signals none -np 2 sh -c 'echo ready; exec sleep 1'
    until_out 5 ready 2
    kill -USR1 $pid
    kill -WINCH $pid
    stop_status
    expect_status 0
    hvd --forward-signals USR1,KILL -np 1 true
    expect_status 2
    expect_err 'KILL cannot be passed on'
}
