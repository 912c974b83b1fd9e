# The faults: what has to be there before the job starts, the hit itself, and how the world is put right afterwards. Part of cell.sh.
# shellcheck shell=bash disable=SC2034,SC2154

cgroups=/sys/fs/cgroup
own_group=hvd-faults.$$

skip_without() { # CONTROLLER of cgroup v1
    [ -e "$cgroups/$1/cgroup.procs" ] || skip "no v1 $1 cgroups here"
}

group_path() { # CONTROLLER: below our own, which is where a host's own tree begins
    local above
    above=$(sed -n "s/^[0-9]*:$1:\(.*\)/\1/p" /proc/self/cgroup)
    echo "$cgroups/$1${above%/}/$own_group"
}

group() { # CONTROLLER: the cell's own cgroup there
    skip_without "$1"
    mkdir -p "$(group_path "$1")" && group_path "$1"
}

# ---- before the job -----------------------------------------------------------------------------------------------------
prepare() {
    local one
    for one in "${victims[@]}"; do
        case $one in
        rsh) options+=(--rsh 'ssh -o BatchMode=yes -o KexAlgorithms=curve25519-sha256') ;;
        terminal) on_terminal=1 ;;
        files-of-output)
            there head 'mkdir -p /tmp/output && mount -t tmpfs -o size=4m t /tmp/output' || fail "no small file system"
            options+=(--output-filename /tmp/output)
            ;;
        reader)
            sink=$T/pipe
            mkfifo "$sink"
            cat "$sink" > "$T/out" &
            reader=$!
            ;;
        memory) give_little_memory ;;
        esac
    done
}

give_little_memory() {
    local group
    group=$(group memory) || skip "$group"
    echo $((96 << 20)) > "$group/memory.limit_in_bytes"
    on 2 'mkdir -p /run/memory; mountpoint -q /run/memory || mount -t cgroup -o memory cgroup /run/memory' || skip "no memory cgroups on a host"
    agent_first "echo \$\$ > /run/memory/$own_group/cgroup.procs"
}

# ---- the hit ------------------------------------------------------------------------------------------------------------
# Finds all victims first: what dies first must not make the next one hard to find.
# shellcheck disable=SC2046
aim() {
    local i one
    for i in "${!victims[@]}"; do
        one=${victims[i]}
        targets[i]=
        case $one in
        reader) targets[i]=$reader ;;
        host | network | disk | files | processes | memory | files-of-output | script | nobody) continue ;;
        *) targets[i]=$(as_here "$(host_of "$one")" $(pids_of "$one") | tr '\n' ' ') ;;
        esac
        [ -n "${targets[i]}" ] || (fail "no $one to ${verbs[i]}") || exit 75
    done
    first_session=$(pids_of session)
    membership=$(membership_now)
    [[ $phase != elastic*change ]] || membership=2 # which is under way
    runs=$([ ! -e "$mark/runs" ] || wc -l < "$mark/runs")
}

hit() {
    local i
    for i in "${!victims[@]}"; do
        hit_one "${victims[i]}" "${verbs[i]}" "${targets[i]}" || died_of_the_other "$i" ||
            (fail "the fault could not be injected") || exit 75
        # What these commands take is not time in which anybody could notice.
        hit_by host.crash || [[ ${victims[i]} != @(network|host) ]] || silent_since=${EPOCHREALTIME/./}
    done
}

died_of_the_other() { # INDEX: the first victim's death was so quick in ending the second
    local one
    [ "$1" -gt 0 ] || return 1
    for one in ${targets[$1]}; do [ ! -e "/proc/$one" ] || return 1; done
}

hit_one() { # VICTIM VERB PIDS
    local pids=$3 n
    # shellcheck disable=SC2086
    case $1.$2 in
    host.*) "$hosts" "$2" node2 ;;
    network.blip) "$hosts" cut node2; sleep 0.5; "$hosts" heal node2 ;;
    network.slow) "$hosts" slow node2 1mbit ;;
    network.*) "$hosts" "$2" node2 ;;
    disk.fill) fill_disk ;;
    files.starve) leave_no_files ;;
    processes.starve*) leave_processes "${2#starve}" ;;
    memory.starve) : > "$mark/eat" ;;
    script.*) change_script "$2" ;;
    files-of-output.fill) fill_output ;;
    terminal.close) kill -USR1 $pids ;;
    nobody.*) : ;;
    *.frost) frost $pids ;;
    *.twice) kill -TERM $pids; sleep 0.3; kill -TERM $pids ;;
    *.*) kill "-${2^^}" $pids ;;
    esac
}

# shellcheck disable=SC2016 # of the script
change_script() { # VERB
    case $1 in
    fail) echo 'exit 3' ;;
    hang) echo 'sleep 1000' ;;
    empty) echo 'exit 0' ;;
    blink) echo '[ -e blinked ] || { : > blinked; exit 0; }' ;; # one empty answer
    swap) echo 'echo node2:4; exit 0' ;;
    flap) echo '[ $(($(wc -l < runs) % 2)) = 0 ] || { grep -v node2 hosts; exit 0; }' ;;
    esac > "$mark/mode.new"
    mv "$mark/mode.new" "$mark/mode"
    [ "$1" = hang ] || until_true 8 each_run 3
}

fill_disk() { # where the job's directory is, or will be: not one more file, not one more byte
    # shellcheck disable=SC2016
    on 2 'set -- $(df -k --output=iused,used /tmp | tail -n 1); mount -o "remount,nr_inodes=$(($1 + 1)),size=$(($2 + 4))k" /tmp'
}

leave_no_files() { # the agent gets no descriptor beyond those that it has
    local number last
    case $phase in
    hello) number=$(pids_of held) last=7 ;;
    *) number=$first_session last=$(on 2 "ls /proc/$first_session/fd | sort -n | tail -n 1") ;;
    esac
    on 2 "prlimit --pid $number --nofile=$((last + 1))"
}

leave_processes() { # HOW MANY more than there are now
    local group pids one
    group=$(group pids) || skip "$group"
    # shellcheck disable=SC2046
    case $phase in
    hello) pids=$(as_here node2 $(pids_of held)) ;;
    *) pids=$(as_here node2 $(of_the_job node2 | awk '{print $1}')) ;;
    esac
    for one in $pids; do echo "$one" > "$group/cgroup.procs" || return 1; done
    echo $(($(cat "$group/pids.current") + ${1:-0})) > "$group/pids.max"
}

fill_output() { # and the job goes on all the same
    local before
    ! there head 'dd if=/dev/zero of=/tmp/output/filler bs=64k status=none' 2> /dev/null || return 1
    before=$(grep -c '^<1:' "$T/out")
    until_true 5 out_has '^<1:' $((before + 100))
}

# As in uninterruptible sleep: a process in a frozen v1 group ignores SIGKILL.
frost() { # PID...
    local group one
    group=$(group freezer) || skip "$group"
    for one; do echo "$one" > "$group/cgroup.procs" || return 1; done
    echo FROZEN > "$group/freezer.state"
    until_true 5 grep -qx FROZEN "$group/freezer.state"
}

thaw() {
    local group
    group=$(group_path freezer)
    [ ! -d "$group" ] || echo THAWED > "$group/freezer.state"
}

# ---- what stood still for the phase alone goes on -----------------------------------------------------------------------
release() {
    local pids
    case $phase in
    connect) hit_by host.crash listener.kill || on 2 "kill -CONT $(pids_of listener)" ;;
    hello | spawn)
        if ! hit_by host.crash host.freeze held.stop; then
            pids=$(pids_of held | tr '\n' ' ')
            [ -z "$pids" ] || [[ $verb == *stop* ]] || on 2 "kill -CONT $pids"
        fi
        ;;
    draining) cat <&7 > "$T/out" & reader=$! ;;
    esac
    rm -f "$mark/hold" "$mark/pause"
    case $after in
    go) : > "$mark/go" ;;
    on)
        until_true 15 goes_on || fail "the job did not go on: $(grep -vE '(trace|debug|info): ' "$T/err" | tail -n 3)"
        went_on=$(since_fault)
        : > "$mark/go"
        ;;
    later)
        until_true 3 has_ended
        : > "$mark/go"
        ;;
    flaps)
        until_true 20 each_run 8
        : > "$mark/go"
        ;;
    term) there head "kill -TERM $(pids_of hvdrun)" ;;
    twice) there head "n=$(pids_of hvdrun); kill -TERM \$n; sleep 0.3; kill -TERM \$n" ;;
    esac
    # A stopped launcher is continued when the lease of its sessions has run out: it has to notice.
    if hit_by hvdrun.stop; then
        until_true $((${within%.*} + 1)) all_gone node1 node2 || fail "the sessions did not end the job of a stopped hvdrun: $(leftovers)"
        there head "kill -CONT $(pids_of hvdrun)"
        kill -CONT "$pid" # the way into the host stops with it
    fi
}

# ---- afterwards ---------------------------------------------------------------------------------------------------------
# The host comes back, and what was stopped by us may go on: the job was given up without them, so they have to go by themselves.
repair() {
    local i
    for i in "${!victims[@]}"; do repair_one "${victims[i]}" "${verbs[i]}" "${targets[i]}"; done
}

repair_one() { # VICTIM VERB PIDS
    # shellcheck disable=SC2086
    case $1.$2 in
    host.crash) "$hosts" boot node2 ;;
    host.freeze) "$hosts" thaw node2 ;;
    disk.fill) on 2 'mount -o remount,nr_inodes=100000,size=1g /tmp' ;;
    files-of-output.*) there head 'umount /tmp/output; rmdir /tmp/output' ;;
    listener.kill)
        on 2 'setsid /usr/sbin/sshd -D -e -f /run/sshd.conf < /dev/null > /dev/null 2>> /run/sshd.log &'
        until_true 5 is_there listener || fail "sshd did not start again"
        ;;
    *.frost) thaw ;;
    guard.stop | session.stop | held.stop) kill -CONT $3 2> /dev/null || : ;;
    esac
}

# So that the next cell finds none of them.
end_connections() {
    local k
    ! hit_by network.cut network.mute network.deaf network.slow || "$hosts" heal node2
    for k in 1 2; do
        on "$k" "kill -9 $(strangers "node$k" | awk '/ sshd(-session)?: / {print $1}' | tr '\n' ' ')" 2>/dev/null
    done
}

# However the cell ends: nothing of its own stays on the machine.
tidy() {
    local controller group
    thaw
    {
        [ -z "${reader:-}" ] || kill -9 "$reader"
        [ -z "${pid:-}" ] || has_ended || kill -9 "$pid"
        wait
    } 2> /dev/null
    for controller in freezer memory pids; do
        group=$(group_path $controller)
        [ ! -d "$group" ] || until_true 3 rmdir "$group" 2> /dev/null
    done
}
