#!/bin/bash
# What a job could leave on the machine where this runs: leftovers.sh processes|files|kill BUILD CASE WHERE
#
# processes: one line for each process that carries HVD_TEST_CASE=CASE in its environment, the tests' own bash and timeout apart.
# What sshd started does not carry it: on a host of our own (WHERE is ns) everything that runs a program of BUILD counts, with loopback
# hosts (loop) what came through their port. So nothing of others on this machine is taken, or ended.
# files: job directories, names of ours in shared memory, empty cgroups of ours (one with processes in it belongs to a job that
# runs, and what is left of ours is among the processes).
set -u
build=$2 case=$3 where=$4

# Looked at after every case, on machines with hundreds of processes: no program is started for each of them.
by_environment() {
    local marks="HVD_TEST_CASE=$case"
    [ "$where" != loop ] || marks="$marks|SSH_CONNECTION=.* $(cat "$HOSTS_DIR/port")"
    grep -lzxE -- "$marks" /proc/[0-9]*/environ
}

by_environment_and_program() { # on a host of our own; the tests' programs are not the job's
    local marked exe path
    marked=$(by_environment)
    find /proc/[0-9]*/exe -maxdepth 0 -printf '%h %l\n' | while read -r path exe; do
        case $exe in
        "$build"/tests/*) continue ;;
        "$build"/* | */hvd-sent-*/* | */.cache/hvd/*) ;;
        *) case $'\n'$marked$'\n' in *$'\n'"$path/environ"$'\n'*) ;; *) continue ;; esac ;;
        esac
        echo "$path/exe"
    done
}

candidates() { # PIDs
    if [ "$where" = ns ]; then by_environment_and_program; else by_environment; fi 2>/dev/null | cut -d/ -f3
}

field() { # PID NAME: of its status
    sed -n "s/^$2:\t//p" "/proc/$1/status" 2>/dev/null
}

# The processes above this one: the case itself, the runner, the shell that sshd made.
above() {
    local pid=$$
    while [ "$pid" -gt 1 ]; do
        echo "$pid"
        pid=$(field "$pid" PPid)
        [ -n "$pid" ] || return
    done
}

list() { # processes of ours: PID COMMAND
    local pid pids own
    pids=$(candidates)
    [ -n "$pids" ] || return
    own=" $(above | tr '\n' ' ')"
    for pid in $pids; do
        case $own in *" $pid "*) continue ;; esac
        [ "$(field "$pid" PPid)" != $$ ] || continue
        case $(field "$pid" State) in Z* | X* | '') continue ;; esac
        echo "$pid $(tr '\0' ' ' < "/proc/$pid/cmdline" 2>/dev/null)"
    done
}

case $1 in
processes) list ;;
kill)
    list | while read -r pid command; do
        echo "left behind, ended: $pid $command"
        kill -9 "$pid"
    done
    ;;
files)
    find /dev/shm -maxdepth 1 -name '*hvd*' 2>/dev/null
    # A local case has a directory of its own for them, in XDG_RUNTIME_DIR.
    [ "$where" = local ] || find /tmp /run /run/user/* -maxdepth 1 \( -name "hvd-$(id -u)" -o -name 'hvd-sent-*' \) 2>/dev/null
    own=$(sed -n 's/^0:://p' /proc/self/cgroup)
    case $own in /..*) own= ;; esac # we came into the host from outside: its jobs are at the top of what it sees
    # hvdjob-t-PID are the unit tests' jobs. A job beside this one may be about to remove its empty cgroup: one that is left stays.
    empty_cgroups() {
        find "/sys/fs/cgroup$own" "/sys/fs/cgroup/unified$own" -maxdepth 1 -name 'hvdjob-*' ! -name 'hvdjob-t-*' 2>/dev/null | while read -r dir; do
            ! grep -qx 'populated 0' "$dir/cgroup.events" 2>/dev/null || echo "$dir"
        done
    }
    [ -z "$(empty_cgroups)" ] || { sleep 1; empty_cgroups; }
    ipcs -m 2>/dev/null | awk '/^0x/ {print "sysv shared memory " $2}'
    ;;
esac
exit 0
