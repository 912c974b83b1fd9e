#!/bin/bash
# Runs one cell of the matrix: cell.sh DIRECTORY PHASE VICTIM VERB STATUS WITHIN CLEAN AFTER MESSAGE (see cells.txt). The hosts are up:
# head, where hvdrun runs, node1 with rank 0 and node2 with rank 1. Victims are those of node2.
set -u
export T=$1 KIND=ns
phase=$2 victim=$3 verb=$4 wanted=$5 within=$6 clean=$7 after=$8 message=$9
export HVD_TEST_CASE=$T
cd "$T" || exit 1
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/../e2e/lib.sh"
hosts=$top/tests/hosts/hosts.sh
mark=$T/mark
mkdir -p "$mark"
options=(--heartbeat-timeout 2 --grace 1 --start-timeout 6 --log-level debug -H "node1:1,node2:1")

# In wire-up rank 1 has not called the library, so only the other host has an engine.
where=node2
[ "$phase $victim" != 'wire-up engine' ] || where=node1

# Not by ssh: sshd and the network are among what is broken here.
on() { # NUMBER COMMAND
    "$hosts" exec "node$1" bash -c "$2"
}

there() { # HOST COMMAND
    "$hosts" exec "$1" bash -c "$2"
}

# ---- who is where -------------------------------------------------------------------------------------------------------
# Everything that runs on a host and is not of the host itself (its first process, that one's sleep, its sshd, this search).
strangers() { # HOST: PID PPID STATE ARGUMENTS
    "$hosts" exec "$1" ps -e -ww -o pid=,ppid=,stat=,args= |
        awk '$1 == 1 || $3 ~ /^Z/ {next} $2 == 1 && /sleep infinity$|sshd: .*\[listener\]/ {next} $2 == 0 && / ps -e -ww /{next} {print}'
}

pids_of() { # VICTIM: on node2, or head for hvdrun
    case $1 in
    worker) strangers node2 | awk '/fault-worker/ && $2 != 1 {print $1}' | head -n 1 ;;
    grandchild) on 2 'grep -lx grandchild /proc/[0-9]*/comm' | cut -d/ -f3 ;;
    held) strangers node2 | awk '$3 ~ /^T/ {print $1}' ;;
    session) agents | tail -n 1 ;;
    guard) agents | head -n 1 ;;
    engine) strangers "$where" | awk '/hvd-engine/ {print $1}' ;;
    hvdrun) strangers head | awk '/hvdrun --heartbeat/ {print $1}' ;;
    sshd) strangers node2 | awk '/sshd/ {print $1}' ;;
    listener) "$hosts" exec node2 ps -e -o pid=,ppid=,args= | awk '$2 == 1 && /sshd: .*listener/ {print $1}' ;;
    esac
}

# The guard first, then its child, the session; a child of that one is a worker to be.
agents() {
    on 2 "for d in /proc/[0-9]*; do [ \"\$(readlink \$d/exe)\" != '$BUILD/hvdagent' ] || echo \${d#/proc/} \$(sed -n 's/^PPid:.//p' \$d/status); done" |
        awk '{above[$1] = $2} END {for (p in above) if (!(above[p] in above)) guard = p; print guard
            for (p in above) if (above[p] == guard) print p}'
}

marked() { # NAME...
    local name
    for name in "$@"; do [ -e "$mark/$name" ] || return 1; done
}

# Exit status 75: no verdict. An sshd of a busy machine now and then leaves a connection hanging; the cell is then tried once more.
reached() { # WHAT COMMAND...
    until_true 8 "${@:2}" || (fail "the phase was not reached: $1") || exit 75
}

is_there() { # VICTIM
    [ -n "$(pids_of "$1")" ]
}

# ---- the phases: each starts the job and returns when it is there --------------------------------------------------------
launch() { # MORE OPTIONS and the worker's phase last
    local last=${*: -1}
    [ -p "$T/out" ] || : > "$T/out"
    "$hosts" exec head env HOME=/root "$HVDRUN" "${options[@]}" "${@:1:$#-1}" "$BUILD/tests/fault-worker" "$last" "$mark" \
        < /dev/null > "$T/out" 2> "$T/err" &
    pid=$!
    trap 'kill -9 $pid 2>/dev/null' EXIT
}

phase_connect() { # an sshd that answers nothing: the kernel accepts for it
    on 2 "kill -STOP $(pids_of listener)"
    launch running
    reached 'hvdrun is connecting' grep -qE 'node2: (connect|host key)$' "$T/err"
    ! is_there session || fail "there is a session already"
}

phase_hello() { # the agent was executed and has said nothing yet
    # shellcheck disable=SC2016
    printf '#!/bin/sh\n[ "$(hostname)" != node2 ] || [ -e %s/hello ] || { : > %s/hello; kill -STOP $$; }\nexec %s "$@"\n' \
        "$mark" "$mark" "$BUILD/hvdagent" > "$T/agent"
    chmod +x "$T/agent"
    launch --agent-path "$T/agent" running
    reached 'the agent is about to begin' is_there held
    marked hello || fail "another process was held"
}

phase_spawn() { # the child that is to become the worker has not executed it yet
    # shellcheck disable=SC2016
    printf '#!/bin/sh\n[ "$(hostname)" != node2 ] || export HOLD_FILE=%s/spawn LD_PRELOAD=%s\nexec %s "$@"\n' \
        "$mark" "$BUILD/tests/fault-hold.so" "$BUILD/hvdagent" > "$T/agent"
    chmod +x "$T/agent"
    launch --agent-path "$T/agent" running
    reached 'the worker is being made' marked spawn
    reached 'its process stands before exec' is_there held
}

phase_wire-up() { # rank 0 is in hvd_init, which rank 1 has not called
    launch wire-up
    reached 'rank 0 is in hvd_init' marked wire-up.0 wire-up.1 grandchild.1
}

phase_running() {
    launch running
    reached 'both ranks returned from hvd_init' marked running.0 running.1 grandchild.1
    is_there engine || fail "no engine runs"
}

phase_collective() { # rank 0 waits in hvd_allreduce for rank 1
    launch collective
    reached 'rank 0 is in hvd_allreduce' marked collective.0 grandchild.1
    is_there engine || fail "no engine runs"
}

phase_output() {
    launch output
    reached 'lines of both ranks came' marked output.0 output.1
    until_out 5 '^<1:'
}

phase_draining() { # the workers have ended, their output has not: nobody reads it yet
    mkfifo "$T/out"
    exec 7<> "$T/out"
    launch draining
    reached 'the workers have written all' marked written.0 written.1
    reached 'the worker has gone' no_worker
    is_there hvdrun || fail "hvdrun has ended"
}

no_worker() {
    ! strangers node2 | grep -v "$(pids_of grandchild | head -n 1) " | grep -q 'fault-worker'
}

phase_teardown() { # the job is being ended, and the workers use their time of grace
    options+=(--grace 3)
    launch teardown
    reached 'the workers run' marked running.0 running.1
    there head "kill -TERM $(pids_of hvdrun)"
    reached 'the workers were asked to end' marked term.0 term.1
    is_there hvdrun || fail "hvdrun has ended"
}

# ---- the faults ---------------------------------------------------------------------------------------------------------
signal_victim() { # NAME
    local pids at=$where
    pids=$(pids_of "$victim" | tr '\n' ' ')
    [ -n "$pids" ] || fail "no $victim to $verb"
    [ "$victim" != hvdrun ] || at="head"
    there "$at" "kill -$1 $pids"
}

fault() {
    case $verb in
    kill) signal_victim KILL ;;
    term) signal_victim TERM ;;
    stop) signal_victim STOP ;;
    cut) "$hosts" cut node2 ;;
    blip) "$hosts" cut node2; sleep 1; "$hosts" heal node2 ;;
    crash) "$hosts" crash node2 ;;
    freeze) "$hosts" freeze node2 ;;
    fill) on 2 'mount -o remount,nr_inodes=2 /tmp' ;;
    starve) on 2 "prlimit --pid $(pids_of held) --nofile=8" ;;
    esac || fail "the fault could not be injected"
}

release() { # what stood still for the phase alone goes on
    local pids
    case $phase in
    connect) [ "$verb" = crash ] || [ "$victim" = listener ] || on 2 "kill -CONT $(pids_of listener)" ;;
    hello | spawn)
        [ "$verb" != crash ] && [ "$verb" != freeze ] || return 0
        [ "$victim $verb" != "held stop" ] || return 0
        pids=$(pids_of held | tr '\n' ' ')
        [ -z "$pids" ] || [ "$verb" = stop ] || on 2 "kill -CONT $pids"
        ;;
    draining) cat <&7 > "$T/read" & reader=$! ;;
    esac
    [ "$after" != go ] || : > "$mark/go"
    [ "$after" != term ] || there head "kill -TERM $(pids_of hvdrun)"
    # A stopped launcher is continued when the lease of its sessions has run out: it has to notice.
    if [ "$victim $verb" = 'hvdrun stop' ]; then
        until_true "$within" all_gone node1 node2 || fail "the sessions did not end the job of a stopped hvdrun: $(leftovers)"
        there head "kill -CONT $(pids_of hvdrun)"
        kill -CONT $pid
    fi
}

repair() { # the host comes back: what is left there must go by itself
    case $verb in
    crash) "$hosts" boot node2 ;;
    freeze) "$hosts" thaw node2 ;;
    fill) on 2 'mount -o remount,nr_inodes=100000 /tmp' ;;
    esac
    if [ "$victim $verb" = 'listener kill' ]; then
        on 2 'setsid /usr/sbin/sshd -D -e -f /run/sshd.conf < /dev/null > /dev/null 2>> /run/sshd.log &'
        until_true 5 is_there listener || fail "sshd did not start again"
    fi
    # Stopped here, so they may go on: the job was given up without them, and now they have to go by themselves.
    case $victim.$verb in guard.stop | held.stop) [ -z "$(pids_of "$victim")" ] || signal_victim CONT ;; esac
}

# ---- afterwards ---------------------------------------------------------------------------------------------------------
# An sshd that was cut off or stopped is the host's own affair, and no part of the job.
of_the_job() { # HOST
    strangers "$1" | grep -v ' sshd: '
}

leftovers() {
    local host
    for host in head node1 node2; do of_the_job "$host" | sed "s/^/$host: /"; done
}

all_gone() { # HOST...
    local host
    for host in "$@"; do [ -z "$(of_the_job "$host")" ] || return 1; done
}

# So that the next cell finds none of them.
end_connections() {
    local k
    for k in 1 2; do
        on "$k" "kill -9 $(strangers "node$k" | awk '/ sshd: / {print $1}' | tr '\n' ' ')" 2>/dev/null
    done
}

files_left() {
    local host
    for host in head node1 node2; do
        "$hosts" exec "$host" bash "$top/tests/e2e/leftovers.sh" files "$BUILD" "$T" ns | sed "s/^/$host: /"
    done
}

no_files_left() {
    [ -z "$(files_left)" ]
}

has_ended() {
    [ ! -e "/proc/$pid" ] || grep -q '^State:.Z' "/proc/$pid/status" 2>/dev/null
}

"phase_$phase"
mark_time
fault
release
until_true "$within" has_ended || fail "hvdrun still runs after $within s: $(leftovers)"
stop_status
trap - EXIT
[ -z "${reader:-}" ] || kill "$reader"
exec 7>&-
took=$(((${EPOCHREALTIME/./} - since) / 1000))
[[ $status =~ ^($wanted)$ ]] || fail "exit status is $status, not $wanted"
# What is said by itself; the log that proves the phases does not count.
grep -vE '(trace|debug|info): ' "$T/err" > "$T/said"
[ "$message" = - ] || grep -qE -- "$message" "$T/said" || fail "nothing said is like \"$message\""
[ -z "${VERBOSE:-}" ] || { echo "exit status $status"; cat "$T/said"; }
repair
until_true "$clean" all_gone head node1 node2 || fail "processes were left: $(leftovers)"
until_true "$clean" no_files_left || fail "files were left: $(files_left)"
[ "$verb" != cut ] || "$hosts" heal node2
end_connections
echo "$took"
