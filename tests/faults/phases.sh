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
        -H "${placement:-node1:1,node2:1}" "$BUILD/tests/fault-worker" "$1" "$mark" < /dev/null > "$sink" 2> "$T/err" &
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
