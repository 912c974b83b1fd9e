# Who and what is where. Part of cell.sh.
# shellcheck shell=bash disable=SC2034,SC2154

# Everything that runs on a host and is not of the host itself (its first process, that one's sleep, its sshd, this search).
strangers() { # HOST: PID PPID STATE ARGUMENTS
    "$hosts" exec "$1" ps -e -ww -o pid=,ppid=,stat=,args= |
        awk '$1 == 1 || $3 ~ /^Z/ {next} $2 == 1 && /sleep infinity$|sshd: .*\[listener\]/ {next} $2 == 0 && / ps -e -ww /{next} {print}'
}

# An sshd that was cut off or stopped is the host's own affair, and no part of the job.
of_the_job() { # HOST
    strangers "$1" | grep -vE ' sshd(-session)?: ' # OpenSSH 9.8 has a program of its own for each connection
}

leftovers() {
    local host
    for host in head node1 node2; do of_the_job "$host" | sed "s/^/$host: /"; done
}

all_gone() { # HOST...
    local host
    for host in "$@"; do [ -z "$(of_the_job "$host")" ] || return 1; done
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

marked() { # NAME...
    local name
    for name in "$@"; do [ -e "$mark/$name" ] || return 1; done
}

# ---- victims ------------------------------------------------------------------------------------------------------------
host_of() { # VICTIM
    case $1 in
    hvdrun | rsh | terminal) echo head ;;
    peer) echo node1 ;;
    # In wire-up rank 1 has not called the library, so only the other host has an engine.
    engine) [ "$phase" = wire-up ] && echo node1 || echo node2 ;;
    *) echo node2 ;;
    esac
}

pids_of() { # VICTIM: as its host numbers them
    case $1 in
    worker) case $phase in elastic*) workers_on node2 ;; *) worker_of 1 ;; esac ;;
    peer) case $phase in elastic*) workers_on node1 ;; *) worker_of 0 ;; esac ;;
    grandchild) on 2 'grep -lx grandchild /proc/[0-9]*/comm' | cut -d/ -f3 ;;
    held) strangers node2 | awk '$3 ~ /^T/ {print $1}' ;;
    session) agents | tail -n 1 ;;
    guard) agents | head -n 1 ;;
    engine) strangers "$(host_of engine)" | awk '/hvd-engine/ {print $1}' ;;
    hvdrun) strangers head | awk '$4 ~ /\/hvdrun$/ {print $1}' ;;
    rsh) strangers head | awk '$4 ~ /^(.*\/)?ssh$/ && / node2 / {print $1}' ;;
    terminal) strangers head | awk '$4 ~ /\/fault-pty$/ {print $1}' ;;
    sshd) strangers node2 | awk '/sshd/ {print $1}' ;;
    listener) "$hosts" exec node2 ps -e -o pid=,ppid=,args= | awk '$2 == 1 && /sshd: .*listener/ {print $1}' ;;
    esac
}

worker_of() { # RANK: while it runs
    local number
    local number host=node2
    { read -r number < "$mark/worker.$1"; } 2>/dev/null || return 0
    [[ "$1 $phase" = '0 together'* ]] || [ "$1" = 1 ] || host=node1
    strangers "$host" | awk -v number="$number" '$1 == number {print $1}'
}

workers_on() { # HOST: those of an elastic job that live
    # shellcheck disable=SC2046
    strangers "$1" | awk -v numbers=" $(cat "$mark/$1".* 2> /dev/null | tr '\n' ' ')" 'index(numbers, " " $1 " ") {print $1}'
}

# The guard first, then its child, the session; a child of that one is a worker to be.
agents() {
    on 2 "for d in /proc/[0-9]*; do [ \"\$(readlink \$d/exe)\" != '$BUILD/hvdagent' ] || echo \${d#/proc/} \$(sed -n 's/^PPid:.//p' \$d/status); done" |
        awk '{above[$1] = $2} END {for (p in above) if (!(above[p] in above)) guard = p; print guard
            for (p in above) if (above[p] == guard) print p}'
}

# The same processes as this machine numbers them, so that a signal needs no program that takes time to start.
as_here() { # HOST PID...
    local space file _ numbers dir
    space=$(readlink "/proc/$(cat "$HOSTS_DIR/$1/pid")/ns/pid")
    shift
    grep -sH '^NSpid:' /proc/[0-9]*/status | while IFS=: read -r file _ numbers; do
        dir=${file%/status}
        case " $* " in *" ${numbers##*[[:space:]]} "*) ;; *) continue ;; esac
        [ "$(readlink "$dir/ns/pid")" != "$space" ] || echo "${dir#/proc/}"
    done
}

is_there() { # VICTIM
    [ -n "$(pids_of "$1")" ]
}
