# The phases: each starts the job and returns when the job is there, with proof. Part of cell.sh.
# shellcheck shell=bash disable=SC2034,SC2154

# Exit status 75: no verdict. An sshd of a busy machine now and then leaves a connection hanging; the cell is then tried once more.
reached() { # WHAT COMMAND...
    until_true 8 "${@:2}" || (fail "the phase was not reached: $1") || exit 75
}

sink=$T/out
launch() { # the worker's phase
    local program=("$HVDRUN")
    [ -z "${on_terminal:-}" ] || program=("$BUILD/tests/fault-pty" "$HVDRUN")
    [ -p "$sink" ] || : > "$T/out"
    # A shell without job control has its background commands ignore SIGINT.
    "$hosts" exec head env --default-signal=INT,QUIT HOME=/root "${program[@]}" --grace "$grace" "${options[@]}" \
        "${hosts_option[@]:--H}" "${placement:-node1:1,node2:1}" "$BUILD/tests/fault-worker" "$1" "$mark" < /dev/null > "$sink" 2> "$T/err" &
    pid=$!
}

# What node2's agent does before it begins.
agent_first() { # SHELL COMMANDS
    # shellcheck disable=SC2016
    printf '#!/bin/sh\n[ "$(hostname)" != node2 ] || { %s; }\nexec %s "$@"\n' "$1" "$BUILD/hvdagent" > "$T/agent"
    chmod +x "$T/agent"
    options+=(--agent-path "$T/agent")
}

contained() { # KIND: what node2's session says holds its job together
    grep -qE "node2: session .* containment $1," "$T/err"
}

phase_connect() { # an sshd that answers nothing: the kernel accepts for it
    on 2 "kill -STOP $(pids_of listener)"
    launch running
    reached 'hvdrun is connecting' grep -qE 'node2: (connect|host key)$' "$T/err"
    ! is_there session || fail "there is a session already"
}

phase_hello() { # the agent was executed and has said nothing yet
    # shellcheck disable=SC2016
    agent_first "$(printf '[ -e %s/hello ] || { : > %s/hello; kill -STOP $$; }' "$mark" "$mark")"
    launch running
    reached 'the agent is about to begin' is_there held
    marked hello || fail "another process was held"
}

phase_spawn() { # the child that is to become the worker has not executed it yet
    agent_first "export HOLD_FILE=$mark/spawn LD_PRELOAD=$BUILD/tests/fault-hold.so"
    launch running
    reached 'the worker is being made' marked spawn
    reached 'its process stands before exec' is_there held
}

phase_wire-up() { # rank 0 is in hvd_init, which rank 1 has not called
    launch wire-up
    reached 'rank 0 is in hvd_init' marked wire-up.0 wire-up.1 grandchild.1
    reached 'its engine runs' engine_on node1
}

phase_running() {
    launch running
    reached 'both ranks returned from hvd_init' marked running.0 running.1 grandchild.1
    engine_on node2 || fail "no engine runs"
    contained "${containment:-(cgroup|subreaper)}" || fail "it is contained otherwise"
}

phase_subreaper() { # running, on a host where no cgroup can be had
    agent_first 'export HVD_CONTAINMENT=subreaper'
    containment=subreaper
    phase_running
}

phase_collective() { # rank 0 waits in hvd_allreduce for rank 1
    launch collective
    reached 'rank 0 is in hvd_allreduce' marked collective.0 grandchild.1
    engine_on node2 || fail "no engine runs"
}

phase_together() { # the same, with both ranks on node2
    placement=node2:2
    launch collective
    reached 'rank 0 is in hvd_allreduce' marked collective.0 grandchild.0 grandchild.1
    engine_on node2 || fail "no engine runs"
}

# An operation again and again, by a rank on each host; `together-` before its name: by two ranks on node2.
moving() { # OPERATION
    launch "$1"
    reached "both ranks do one $1 after the other" marked "$1.0" "$1.1" grandchild.1
    engine_on node2 || fail "no engine runs"
}

for operation in allgather alltoall reducescatter grouped shared compressed; do
    eval "phase_$operation() { moving $operation; }
        phase_together-$operation() { placement=node2:2; moving $operation; }"
done

engine_on() { # HOST
    strangers "$1" | grep -q hvd-engine
}

phase_output() {
    launch output
    reached 'lines of both ranks came' marked output.0 output.1
    reached 'lines came out' out_has '<1:' 1
}

phase_draining() { # the workers have ended, their output has not: nobody reads it yet
    sink=$T/pipe
    mkfifo "$sink"
    exec 7<> "$sink"
    launch draining
    reached 'the workers have written all' marked written.0 written.1
    reached 'the worker has gone' no_worker
    ! has_ended || fail "hvdrun has ended"
}

no_worker() {
    ! is_there worker
}

phase_teardown() { # the job is being ended, and the workers use their time of grace
    grace=3
    launch teardown
    reached 'the workers run' marked running.0 running.1
    there head "kill -TERM $(pids_of hvdrun)"
    reached 'the workers were asked to end' marked term.0 term.1
    ! has_ended || fail "hvdrun has ended"
}

# ---- elastic jobs -------------------------------------------------------------------------------------------------------
# Worker 0 is on node1, worker 1 on node2, workers 2 and 3 beside hvdrun: three engines.
train() { # SIZE
    launch elastic
    reached 'all ranks have taken a step' out_has "^steps [0-9]+ [0-9]+ $1 1 " "$1"
    reached 'each has left a grandchild' marked grandchild.1
}

phase_elastic() {
    options+=(-np 4 --min-np 1 --elastic-timeout 4)
    placement=${placement:-node1:1,node2:1,localhost:2}
    train 4
}

phase_elastic-first() { # rank 0 and the job's first engine are on node2
    placement=node2:1,node1:1,localhost:2
    phase_elastic
}

phase_elastic-pair() { # both ranks of node2 are hit
    placement=node1:1,node2:2,localhost:1
    phase_elastic
}

# The same fault has hit node2 before; its cool-down is over, and the job has taken it again.
phase_elastic-again() {
    options+=(--blacklist-cooldown-range 1 1)
    phase_elastic
    aim
    hit
    until_true 12 goes_on || fail "the job did not go on after the first fault: $(tail -n 3 "$T/err")"
    repair
    ! hit_by network.cut || "$hosts" heal node2
    reached 'node2 was taken again' whole_again
}

whole_again() { # by a membership that is not the first one
    [ -n "$(pids_of worker)" ] && [ "$(membership_now)" -gt 1 ] && out_has "^steps [0-9]+ [0-9]+ 4 $(membership_now) " 1
}

# Worker 3 was killed, and the ranks change. Worker 2 keeps the others waiting in hvd_reset until after the fault.
phase_elastic-change() {
    phase_elastic
    : > "$mark/hold"
    there head "kill -KILL $(cat "$mark/head.3")"
    reached 'the others are in hvd_reset' marked resets.0 resets.1 resets.2
    sleep 0.1
    [ "$(membership_now)" = 1 ] || fail "the ranks have changed already"
}

phase_elastic-first-change() {
    placement=node2:1,node1:1,localhost:2
    phase_elastic-change
}

# Worker 2 keeps the other one in its step until the newcomer waits in hvd_init, and until after the fault.
phase_elastic-arrival() {
    hosts_of_script node1:1 localhost:2
    hosts_option=(--host-discovery-script)
    options+=(-np 3 --min-np 1 --elastic-timeout 4)
    train 3
    : > "$mark/pause"
    echo node2:1 >> "$mark/hosts"
    reached 'the newcomer waits in hvd_init' grep -q 'worker 3 waits, having left membership 0' "$T/err"
    [ "$(membership_now)" = 1 ] || fail "the ranks have changed already"
}

# The hosts are those of a script. While `mode` is empty it prints what `hosts` has.
phase_elastic-script() {
    hosts_of_script node1:1 node2:1 localhost:2
    hosts_option=(--blacklist-cooldown-range 1 1 --host-discovery-script)
    phase_elastic
}

hosts_of_script() { # HOST...
    printf '%s\n' "$@" > "$mark/hosts"
    : > "$mark/mode"
    printf '#!/bin/sh\ncd %s\ndate +%%s >> runs\n. ./mode\ncat hosts\n' "$mark" > "$T/script"
    chmod +x "$T/script"
    placement=$T/script
}

membership_now() {
    awk '$1 == "steps" && $5 > n {n = $5} END {print n + 0}' "$T/out"
}

# Ranks of a later membership than that of the fault have taken a step, or hvdrun has ended.
goes_on() {
    has_ended || [ "$(membership_now)" -gt "$membership" ]
}

each_run() { # COUNT: the script has run so many times since
    [ "$(wc -l < "$mark/runs")" -ge $((runs + $1)) ]
}
