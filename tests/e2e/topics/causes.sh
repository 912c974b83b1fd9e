# shellcheck shell=bash disable=SC2034,SC2154
# Whoever of the supervisors dies first is named as the cause, in the same words every time; ranks that failed because of it
# are not.
hosts=2
limit=40

# The processes of the job on the second host. The guard is the agent process whose parent is none, the session its child.
pids_there() { # guard|session|engine|sshd
    local agents
    agents=$(on 2 "for d in /proc/[0-9]*; do [ \"\$(readlink \$d/exe)\" != '$BUILD/hvdagent' ] || echo \${d#/proc/} \$(sed -n 's/^PPid:.//p' \$d/status); done")
    case $1 in
    guard) awk '{above[$1] = $2} END {for (p in above) if (!(above[p] in above)) print p}' <<< "$agents" ;;
    session) awk '{above[$1] = $2} END {for (p in above) if (above[p] in above) print p}' <<< "$agents" ;;
    engine) on 2 'grep -lx hvd-engine /proc/[0-9]*/comm' | cut -d/ -f3 ;;
    sshd) on 2 "sed -n 's/^PPid:\t//p' /proc/$(pids_there guard)/status" ;;
    esac
}

train_on_both() {
    needs_kind ns
    start --heartbeat-timeout 2 --grace 1 -np 2 -H $H1:1,$H2:1 "$TRAIN" --steps 1000000
    until_out 15 'loss='
}

# Waits for the end, 125, and expects this to be the only cause that is told, before anything that followed from it.
cause_is() { # REGEX
    mark_time
    stop_status
    expect_within 9
    expect_status 125
    expect_err "^hvdrun: $1\$"
    expect_no "$T/err" 'failed first'
}

ends() { # SIGNAL VICTIM REGEX: %P is the victim's pid
    local victim
    train_on_both
    victim=$(pids_there "$2")
    [ -n "$victim" ] || fail "no $2"
    on 2 "kill -$1 $victim"
    cause_is "${3//%P/$victim}"
}

case_a_killed_engine() {
    ends KILL engine "host $H2: the collectives engine \(pid %P\) was killed by signal 9 \(Killed\)"
}

case_a_stopped_engine() {
    ends STOP engine "host $H2: the collectives engine \(pid %P\) did not move for 1 s and was killed"
}

case_a_killed_session() {
    ends KILL session "host $H2: the session of the job \(pid %P\) was killed by signal 9 \(Killed\)"
}

case_a_session_asked_to_end() {
    ends TERM session "host $H2: the session of the job \(pid %P\) was asked to end by signal 15 \(Terminated\)"
}

case_a_stopped_session() {
    ends STOP session "host $H2: the session of the job \(pid %P\) did not move and was killed by its guard"
}

case_a_killed_guard() {
    ends KILL guard "host $H2: the guard of the job \(pid %P\) was killed"
}

case_a_killed_connection() {
    ends KILL sshd "host $H2 was lost: the connection to $H2 was lost"
}

# Nothing is wrong with the workers: the guard goes on, and the job ends as it would have.
case_a_stopped_guard_stops_nothing() {
    local guard
    needs_kind ns
    start --heartbeat-timeout 1 --grace 1 -np 2 -H $H1:1,$H2:1 sh -c 'echo ready; sleep 4; echo whole'
    until_out 10 ready 2
    guard=$(pids_there guard)
    on 2 "kill -STOP $guard"
    stop_status
    expect_status 0
    expect_count 2 whole "$T/out"
    expect_err "$H2: the guard of the job \(pid $guard\) was stopped: it goes on"
}

# Nobody is left there but what has escaped PDEATHSIG: hvdrun sweeps.
case_guard_and_session_killed_together() {
    local both
    needs_kind ns
    start --heartbeat-timeout 5 --grace 1 -np 2 -H $H1:1,$H2:1 sh -c "setsid sh -c '(setsid sleep 300 &) &'; echo ready; exec sleep 300"
    until_out 10 ready 2
    both="$(pids_there guard) $(pids_there session)"
    on 2 "kill -STOP ${both% *}; kill -KILL $both"
    mark_time
    stop_status
    expect_within 8
    expect_status 125
    expect_err "^hvdrun: host $H2: the guard of the job \(pid ${both% *}\) was killed$"
    leave_within=1
}
