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

is_ours() { # PID
    local exe marks="HVD_TEST_CASE=$case"
    exe=$(readlink "/proc/$1/exe" 2>/dev/null) || return 1
    case $where:$exe in
    ns:"$build"/tests/*) return 1 ;;
    ns:"$build"/* | ns:*/hvd-sent-*/* | ns:*/.cache/hvd/*) return 0 ;;
    loop:*) marks="$marks|SSH_CONNECTION=.* $(cat "$HOSTS_DIR/port")" ;;
    esac
    { tr '\0' '\n' < "/proc/$1/environ" | grep -qxE "$marks"; } 2>/dev/null
}

# The processes above this one: the case itself, the runner, the shell that sshd made.
above() {
    local pid=$$
    while [ "$pid" -gt 1 ]; do
        echo "$pid"
        pid=$(sed -n 's/^PPid:\t//p' "/proc/$pid/status" 2>/dev/null)
        [ -n "$pid" ] || return
    done
}

list() { # processes of ours: PID COMMAND
    local dir pid own
    own=" $(above | tr '\n' ' ')"
    for dir in /proc/[0-9]*; do
        pid=${dir#/proc/}
        case $own in *" $pid "*) continue ;; esac
        [ "$(sed -n 's/^PPid:\t//p' "$dir/status" 2>/dev/null)" != $$ ] || continue
        is_ours "$pid" || continue
        case $(sed -n 's/^State:\t\(.\).*/\1/p' "$dir/status" 2>/dev/null) in Z | X | '') continue ;; esac
        echo "$pid $(tr '\0' ' ' < "$dir/cmdline" 2>/dev/null)"
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
    find "/sys/fs/cgroup$own" "/sys/fs/cgroup/unified$own" -maxdepth 1 -name 'hvdjob-*' 2>/dev/null | while read -r dir; do
        ! grep -qx 'populated 0' "$dir/cgroup.events" 2>/dev/null || echo "$dir"
    done
    ipcs -m 2>/dev/null | awk '/^0x/ {print "sysv shared memory " $2}'
    ;;
esac
exit 0
