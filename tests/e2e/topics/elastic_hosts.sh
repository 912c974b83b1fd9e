# shellcheck shell=bash disable=SC2034,SC2154
# Elastic jobs on several hosts: hosts are lost, come and go. elastic.sh has the other cases with the names of Horovod's tests.
hosts=2
limit=60

TRAINEE_PROGRAM=$BUILD/tests/trainee # its source says what it does

hosts_are() { # LINE...
    printf '%s\n' "$@" > "$T/hosts.new"
    mv "$T/hosts.new" "$T/hosts"
}

case_fault_tolerance_without_scaling() {
    TRAINEE=2:5:kill hvd -np 4 -H $H1:2,$H2:2 --min-np 1 "$TRAINEE_PROGRAM" 30
    expect_status 0
    expect_out '^enter 3 [0-9]+ 2 3 2 5$'
    expect_count 3 '^done . 30$' "$T/out"
    expect_err "^hvdrun: rank 2 on $H2 \(worker 2, pid [0-9]+\) failed: killed by signal 9 \(Killed\); the job goes on with 3 ranks"
}

case_all_ranks_of_a_host_die() {
    TRAINEE=0:5:kill,1:5:kill hvd -np 4 -H $H1:2,$H2:2 --min-np 1 "$TRAINEE_PROGRAM" 30
    expect_status 0
    expect_out '^enter 2 [0-9]+ 0 2 [23] 5$'
    expect_count 2 '^done . 30$' "$T/out"
}

# Unlike Horovod's jobs, ours goes on with the other ranks of these hosts. No host can get new ones, so too few are the end at once.
case_all_hosts_blacklisted() {
    TRAINEE=0:5:exit,2:20:exit hvd -np 4 -H $H1:2,$H2:2 --min-np 2 "$TRAINEE_PROGRAM" 150
    expect_status 0
    expect_count 2 '^done . 150$' "$T/out"
    expect_no "$T/out" '^enter [4-9]'
    mark_time
    TRAINEE=0:5:exit,2:20:exit hvd -np 4 -H $H1:2,$H2:2 --min-np 3 "$TRAINEE_PROGRAM" 150
    expect_status 3
    expect_within 10
    expect_err 'the job cannot go on: 2 ranks are left of at least 3 \(--min-np\)'
}

case_encrypted() {
    TRAINEE=2:5:kill hvd --encrypt -np 4 -H $H1:2,$H2:2 --min-np 1 "$TRAINEE_PROGRAM" 30
    expect_status 0
    expect_count 3 '^done . 30$' "$T/out"
}

case_a_host_is_cut_off() {
    needs_kind ns
    start --heartbeat-timeout 1 -np 4 -H $H1:2,$H2:2 --min-np 1 "$TRAINEE_PROGRAM" 300
    until_out 10 '^enter' 4
    ip link set v2 down
    stop_status
    ip link set v2 up
    expect_status 0
    expect_err "host $H2 was lost: nothing was heard of it for (0\.9|1\.[0-9]) s; the job goes on with 2 ranks \(membership 2: 2 left, 0 came\)"
    expect_count 2 '^done . 300$' "$T/out"
    leave_within=10
}

kill_session() { # HOST NUMBER
    on "$1" "for d in /proc/[0-9]*; do [ \"\$(readlink \$d/exe)\" != '$BUILD/hvdagent' ] || echo \${d#/proc/}; done | sort -n | tail -n 1 | xargs kill -9"
}

case_a_killed_session() {
    needs_kind ns
    start -np 4 -H $H1:2,$H2:2 --min-np 1 "$TRAINEE_PROGRAM" 150
    until_out 10 '^enter' 4
    kill_session 2
    stop_status
    expect_status 0
    expect_err "host $H2 was lost.*; the job goes on with 2 ranks"
    expect_count 2 '^done . 150$' "$T/out"
}

# A host that was lost is taken again after its cool-down, each time.
slow_resurrecting_blacklisted_hosts() {
    needs_kind ns
    start -np 4 -H $H1:2,$H2:2 --min-np 1 --blacklist-cooldown-range 1 1 "$TRAINEE_PROGRAM" 800
    until_out 10 '^enter' 4
    kill_session 2
    until_out 15 '^enter . [0-9]+ . 4 [2-9] ' 4
    kill_session 2
    until_out 15 '^enter . [0-9]+ . 4 [2-9] ' 8
    stop_status
    expect_status 0
    expect_count 4 '^done . 800$' "$T/out"
}

case_a_killed_engine_costs_its_host() {
    needs_kind ns
    start -np 4 -H $H1:2,$H2:2 --min-np 1 "$TRAINEE_PROGRAM" 150
    until_out 10 '^enter' 4
    on 2 "for d in /proc/[0-9]*; do [ \"\$(readlink \$d/exe)\" != '$BUILD/modules/hvd-engine' ] || kill -9 \${d#/proc/}; done"
    stop_status
    expect_status 0
    expect_err "host $H2: the collectives engine .*; the job goes on with 2 ranks"
    expect_count 2 '^done . 150$' "$T/out"
}

# Two hosts come at once, are linked to one another, and the step takes longer than the engines' limit for links, 30 s.
slow_newcomers_wait_for_a_far_commit() {
    needs_kind ns
    hosts_are "$H1:1"
    TRAINEE=0:50:far start -np 1 --min-np 1 --host-discovery-script "cat $T/hosts" "$TRAINEE_PROGRAM" 300
    until_out 10 '^enter' 1
    hosts_are "$H1:1" "$H2:1" localhost:1
    stop_status
    expect_status 0
    expect_no "$T/err" 'cannot reach|was lost'
    expect_count 3 '^done . 300$' "$T/out"
}

# The discovery script's hosts: one comes, one goes.
case_hosts_added_and_removed() {
    hosts_are "$H1:2"
    start -np 2 --min-np 1 --host-discovery-script "cat $T/hosts" "$TRAINEE_PROGRAM" 1000
    until_out 10 '^enter' 2
    hosts_are "$H1:2" "$H2:1"
    until_out 15 '^enter 2 [0-9]+ 2 3 2 0$' 1
    hosts_are "$H2:1"
    until_out 15 '^left' 2
    until_out 10 '^enter 2 [0-9]+ 0 1 3 [0-9]+$'
    stop_status
    expect_status 0
    expect_out '^done 2 1000$'
    expect_err 'the job goes on with 3 ranks \(membership 2: 0 left, 1 came\)'
    expect_err 'the job goes on with 1 rank \(membership 3: 2 left, 0 came\)'
}

# All hosts at once: a rank that is to leave first gives the state to the new ones.
case_all_hosts_are_exchanged() {
    hosts_are "$H1:2"
    start -np 2 --min-np 1 --max-np 2 --host-discovery-script "cat $T/hosts" "$TRAINEE_PROGRAM" 600
    until_out 10 '^enter' 2
    hosts_are "$H2:2"
    until_out 15 '^left' 2
    stop_status
    expect_status 0
    expect_count 2 '^done [23] 600$' "$T/out"
    expect_out '^enter 2 [0-9]+ 0 . [34] [1-9][0-9]+$'
}

# An empty answer is no reason to end a job whose ranks are all there.
case_a_script_that_names_no_host_for_a_moment() {
    hosts_are "$H1:1" "$H2:1"
    start -np 2 --min-np 1 --host-discovery-script "cat $T/hosts" "$TRAINEE_PROGRAM" 500
    until_out 10 '^enter' 2
    : > "$T/hosts.new"
    mv "$T/hosts.new" "$T/hosts"
    until_true 10 grep -q 'without the hosts that are to go, 0 ranks are left of at least 1' "$T/err" || fail 'the user was not told'
    hosts_are "$H1:1" "$H2:1"
    stop_status
    expect_status 0
    expect_count 2 '^done . 500$' "$T/out"
    expect_count 2 '^enter' "$T/out"
}

case_a_hostfile_is_read_again() {
    hosts_are "$H1 slots=1"
    start -np 1 --min-np 1 --max-np 3 --hostfile "$T/hosts" "$TRAINEE_PROGRAM" 400
    until_out 10 '^enter' 1
    sleep 1.2
    hosts_are "$H1 slots=1" "$H2 slots=1"
    until_out 15 '^enter 1 [0-9]+ 1 2 2 0$' 1
    stop_status
    expect_status 0
    expect_count 2 '^done . 400$' "$T/out"
}

# More slots than -np at the start: the other host is taken beside the running job.
case_it_grows_to_free_slots() {
    hvd -np 1 --min-np 1 --max-np 2 -H $H1,$H2 "$TRAINEE_PROGRAM" 200
    expect_status 0
    expect_count 2 '^done . 200$' "$T/out"
}

case_a_script_that_fails_later() {
    hosts_are "$H1:1" "$H2:1"
    start -np 2 --min-np 1 --host-discovery-script "cat $T/hosts" "$TRAINEE_PROGRAM" 300
    until_out 10 '^enter' 2
    rm "$T/hosts"
    stop_status
    expect_status 0
    expect_err 'ended with exit status 1; the hosts of its last answer stay'
    expect_count 2 '^done . 300$' "$T/out"
}

case_a_script_that_fails_at_first() {
    hvd -np 2 --min-np 1 --host-discovery-script 'exit 3' "$TRAINEE_PROGRAM" 5
    expect_status 125
    expect_err '--host-discovery-script: exit 3 ended with exit status 3'
}

# A host that comes and cannot be used does no harm.
case_a_host_that_cannot_be_reached() {
    hosts_are "$H1:1"
    start -np 1 --min-np 1 --start-timeout 3 --host-discovery-script "cat $T/hosts" "$TRAINEE_PROGRAM" 800
    until_out 10 '^enter' 1
    hosts_are "$H1:1" 'no-such-host.invalid:1'
    until_true 15 grep -q 'host no-such-host.invalid cannot be used' "$T/err" || fail 'the user was not told'
    stop_status
    expect_status 0
    expect_out '^done 0 800$'
}

# ---- hosts that ask to go --------------------------------------------------------------------------------

ctl_there() { # HOST ARGUMENT...: hvdctl on that host
    local host=$1
    shift
    on "$host" "$BUILD/hvdctl $*" > "$T/shown" 2>&1
}

session_there() { # HOST: its pid
    on "$1" "$BUILD/hvdctl ps --json" | python3 -c 'import json, sys; print(json.load(sys.stdin)[0]["session_pid"])'
}

# A notice that the machine will be taken away.
case_sigterm_to_a_session() {
    needs_kind ns
    start -np 4 -H $H1:2,$H2:2 --min-np 1 "$TRAINEE_PROGRAM" 300
    until_out 10 '^enter' 4
    on 2 "kill $(session_there 2)"
    until_out 10 '^left [23]$' 2
    stop_status
    expect_status 0
    expect_count 2 '^done . 300$' "$T/out"
    expect_err "^hvdrun: the ranks on $H2 leave at their next commit: the session there was asked to end by signal 15 \(Terminated\)$"
    expect_err '^hvdrun: the job goes on with 2 ranks \(membership 2: 2 left, 0 came\)$'
}

# The whole job moves: the first rank stays until the newcomers have the state.
case_leave_moves_the_job_to_another_host() {
    needs_kind ns
    hosts_are "$H1:2"
    start -np 2 --min-np 1 --host-discovery-script "cat $T/hosts" "$TRAINEE_PROGRAM" 800
    until_out 10 '^enter' 2
    job=$(on 1 "$BUILD/hvdctl ps" | awk 'NR == 2 {print $1}')
    ctl_there 1 leave "$job"
    hosts_are "$H1:2" "$H2:2"
    until_out 15 '^left [01]$' 2
    stop_status
    expect_status 0
    expect_out '^enter 0 [0-9]+ 0 [23] 2 [0-9]+$'
    expect_out '^enter 2 [0-9]+ 1 [23] 2 0$'
    expect_out '^enter [23] [0-9]+ 0 2 [34] [1-9][0-9]*$'
    expect_count 2 '^done [23] 800$' "$T/out"
}

# The engine that tells of the stall is on the other host than the rank that hangs.
case_a_stalled_rank_of_the_other_host() {
    TRAINEE=2:5:hang hvd -np 4 -H $H1:2,$H2:2 --min-np 1 --stall-check-warning-time-seconds 1 \
        --stall-check-shutdown-time-seconds 2 "$TRAINEE_PROGRAM" 30
    expect_status 0
    expect_count 3 '^done . 30$' "$T/out"
    expect_err "given up after 2 s .*rank 2 on $H2; the job goes on with 3 ranks"
}
