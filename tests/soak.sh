#!/bin/bash
# Many jobs in a row leave the machine as it was, and one long job does not grow.
#
#   BUILD=build tests/soak.sh            (make soak)      prints TAP and the figures
#   SOAK_JOBS=500 SOAK_SECONDS=20        how many jobs; how long the one job that writes all the time runs
#
# The jobs are a mix: good ones, failing ranks, ranks that use collectives, hvdrun killed with SIGKILL and with SIGTERM, output files, a
# command that does not exist, and - as root - jobs over two hosts of their own by ssh. Before and after them are counted: processes,
# cgroups, files of ours in /dev/shm, /tmp and the runtime directory, sockets, pseudo-terminals, mounts, System V segments, the kernel's
# open files, and the memory that is in use. The mix runs once before the first count, so that what is made once (an sshd's files, the kernel's
# caches) does not count.
set -u

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=$(realpath "${BUILD:-$here/../build}")
jobs=${SOAK_JOBS:-500}
seconds=${SOAK_SECONDS:-20}
scratch=$(mktemp -d "$build/soak.XXXXXX") || exit 2
chmod 755 "$scratch"
export XDG_RUNTIME_DIR=$scratch/runtime TMPDIR=$scratch/tmp HOSTS_DIR=$scratch/hosts HOSTS_BIND=$build
mkdir -m 700 "$XDG_RUNTIME_DIR" "$TMPDIR"
hosts=$here/hosts/hosts.sh
failed=0 up=''

# shellcheck disable=SC2317,SC2329 # called by the trap
clean_up() {
    trap '' INT TERM HUP
    [ -z "$up" ] || "$hosts" down
    rm -rf "$scratch"
}
trap clean_up EXIT
trap 'exit 130' INT TERM HUP

not_ok() {
    echo "not ok - soak: $*"
    failed=1
}

count() { # COMMAND...: its lines
    "$@" 2>/dev/null | wc -l
}

programs() { # processes that run a program of ours, or were started by one
    local exe
    for exe in /proc/[0-9]*/exe; do
        case $(readlink "$exe" 2>/dev/null) in "$build"/hvd* | "$build"/modules/* | "$build"/bench/*) echo "$exe" ;; esac
    done
}

# NAME VALUE, a line each. The first group must not change at all; what the whole machine does as well may differ by some.
state() {
    local node
    echo "programs $(count programs)"
    echo "cgroups $(count find /sys/fs/cgroup -name 'hvdjob-*')"
    echo "shm $(count find /dev/shm -name '*hvd*')"
    echo "runtime $(count find "$XDG_RUNTIME_DIR" "$TMPDIR" -mindepth 1)"
    if [ -n "$up" ]; then
        for node in head node1 node2; do
            echo "host-files-$node $("$hosts" exec "$node" find /dev/shm /tmp /run -maxdepth 2 -name '*hvd*' ! -name 'hvd-0' 2>/dev/null | wc -l)"
            echo "host-processes-$node $("$hosts" exec "$node" sh -c 'ls -d /proc/[0-9]*' | wc -l)"
        done
    fi
    echo "segments $(count tail -n +2 /proc/sysvipc/shm)"
    echo "own-mounts $(count cat /proc/self/mounts)"
    echo "~unix-sockets $(count cat /proc/net/unix)"
    echo "~tcp-sockets $(awk '/^TCP:/ { print $3 }' /proc/net/sockstat)"
    echo "~terminals $(count ls /dev/pts)"
    echo "~open-files $(cut -f1 /proc/sys/fs/file-nr)"
    echo "~processes $(count ls -d /proc/[0-9]*)"
    awk '/^MemAvailable/ { a = $2 } /^MemTotal/ { t = $2 } /^Shmem:/ { s = $2 } END { print "~memory-MiB", int((t - a) / 1024); print "~shmem-MiB", int(s / 1024) }' /proc/meminfo
}

killed() { # SIGNAL: a job whose hvdrun gets it while all ranks run
    local pid status
    "$build/hvdrun" -np 4 sleep 60 > "$scratch/killed" 2>&1 < /dev/null &
    pid=$!
    sleep 0.05
    kill "-$1" "$pid"
    wait "$pid" 2>/dev/null
    status=$?
    case $1 in KILL) [ $status = 137 ] ;; *) [ $status = 143 ] ;; esac
}

expect() { # STATUS COMMAND...
    local wanted=$1 status
    shift
    timeout --foreground 60 "$@" > "$scratch/out" 2>&1 < /dev/null
    status=$?
    [ $status = "$wanted" ] || { echo "    # exit status $status, not $wanted: $*: $(tail -n 2 "$scratch/out" | tr '\n' ' ')"; return 1; }
}

over_ssh() { # STATUS ARGUMENTS of hvdrun
    local wanted=$1
    shift
    [ -n "$up" ] || return 0
    expect "$wanted" "$hosts" exec head env HOME=/root "$build/hvdrun" -H node1:2,node2:2 "$@"
}

job() { # NUMBER
    local bench=("$build/bench/hvd_bench" --bytes 4096 --iterations 20 --warmup 2 --json)
    # shellcheck disable=SC2016
    case $(($1 % 10)) in
    0) expect 0 "$build/hvdrun" -np 8 true ;;
    1) expect 3 "$build/hvdrun" -np 8 sh -c '[ $HOROVOD_RANK != 5 ] || exit 3; exec sleep 60' ;;
    2) expect 0 "$build/hvdrun" -np 4 "${bench[@]}" ;;
    3) killed KILL ;;
    4) expect 137 "$build/hvdrun" -np 3 --grace 0.2 sh -c '[ $HOROVOD_RANK != 0 ] || kill -9 $$; (setsid sleep 60 &); exec sleep 60' ;;
    5) over_ssh 0 -np 4 echo x ;;
    6) over_ssh 0 -np 4 "${bench[@]}" ;;
    7) killed TERM ;;
    8) expect 0 "$build/hvdrun" -np 4 --output-filename "$scratch/logs" seq 2000 ;;
    9) if [ $(($1 / 10 % 2)) = 0 ]; then over_ssh 9 -np 4 sh -c '[ $HOROVOD_RANK != 3 ] || exit 9; exec sleep 60'; else expect 127 "$build/hvdrun" -np 2 ./no-such-command; fi ;;
    esac
}

run_jobs() { # COUNT: how many were not as they should be
    local n wrong=0
    for ((n = 0; n < $1; n++)); do job $n || wrong=$((wrong + 1)); done
    return $((wrong < 250 ? wrong : 250))
}

compare() { # FILES: the state before and after
    local name before after room
    while read -r name before after; do
        room=0
        case $name in
        '~memory-MiB') room=64 ;;
        '~shmem-MiB') room=8 ;;
        '~open-files') room=400 ;; # others' too
        '~'*) room=40 ;;
        esac
        echo "    # $name: $before before, $after after"
        [ "$after" -le $((before + room)) ] || not_ok "$name grew from $before to $after"
    done < <(join "$1" "$2")
}

# One hvdrun whose workers write all the time: its memory and descriptors, and its session's, early and late.
one_long_job() {
    local pid session early late half=$((seconds / 2))
    "$build/hvdrun" -np 8 sh -c 'while :; do seq 1000; seq 100 >&2; done' > /dev/null 2>&1 < /dev/null &
    pid=$!
    sleep "$half"
    session=$(cat "/proc/$pid/task/$pid/children")
    session="${session% } $(for p in $session; do cat "/proc/$p/task/$p/children"; done)"
    early=$(figures "$pid" "$session")
    sleep $((seconds - half))
    late=$(figures "$pid" "$session")
    kill "$pid"
    wait "$pid" 2>/dev/null
    echo "    # KiB and descriptors of hvdrun, then of guard and session: $early after $half s, $late after $seconds s"
    awk -v a="$early" -v b="$late" 'BEGIN { n = split(a, x, " "); if (n < 4 || n != split(b, y, " ")) exit 1
        for (i = 1; i <= n; i++) if (y[i] > x[i] + (i % 2 ? 1024 : 0)) exit 1 }' || not_ok "one job that goes on grows: $early, then $late"
}

figures() { # HVDRUN "PIDS": KiB and descriptors of each that is ours
    local p
    for p in $1 $2; do
        case $(cat "/proc/$p/comm") in hvd*) ;; *) continue ;; esac
        echo "$(sed -n 's/^VmRSS:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$p/status") $(count ls "/proc/$p/fd")"
    done | tr '\n' ' '
}

if why=$("$hosts" can); then
    if "$hosts" up 2 2> "$scratch/up"; then
        up=1
        # This machine's own may start programs that wait for one another's locks, which a killed job leaves.
        for k in 1 2; do "$hosts" exec "node$k" rm -f /root/.bashrc; done
    else
        not_ok "hosts: $(tail -n 1 "$scratch/up")"
    fi
else
    echo "    # no hosts of our own ($why): the jobs over ssh are left out"
fi
run_jobs 20 || not_ok "jobs of the warm-up went wrong: $?"
sleep 1
state | sort > "$scratch/before"
began=$SECONDS
run_jobs "$jobs" || not_ok "$? of $jobs jobs went wrong"
echo "    # $jobs jobs in $((SECONDS - began)) s"
sleep 2
state | sort > "$scratch/after"
compare "$scratch/before" "$scratch/after"
one_long_job
[ $failed != 0 ] || echo "ok - soak: $jobs jobs left the machine as it was, and one of $seconds s did not grow"
exit $failed
