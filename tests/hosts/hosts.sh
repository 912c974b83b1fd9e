#!/bin/bash
# Several hosts on one machine, for root: each is a set of namespaces with an sshd of its own.
#
#   hosts.sh up N [v6]      starts head and node1 ... nodeN (head has no sshd: the place to run hvdrun in); v6: with IPv6
#                           addresses alone
#   hosts.sh down           removes them all, waiting until every process has gone
#   hosts.sh exec HOST CMD  runs a command there, in the same directory when it exists there
#   hosts.sh as USER HOST CMD
#   hosts.sh cut HOST       takes its network link away
#   hosts.sh mute|deaf HOST  what it sends, or what is sent to it, vanishes; the other direction works
#   hosts.sh slow HOST RATE  its link carries no more than that in either direction (as in 1mbit)
#   hosts.sh heal HOST      undoes these four
#   hosts.sh crash|boot HOST  power off (the link first, so no FIN is sent); start it again
#   hosts.sh freeze|thaw HOST  stops every process there; lets them go on
#   hosts.sh can [v6]       says why this machine cannot, and fails; silent when it can
#
# HOSTS_DIR holds the state (keys, pids); HOSTS_BIND lists directories that all hosts share at the same path, as NFS would.
# A host is one PID 1 in new net, uts, ipc, pid, mount and cgroup namespaces with an overlay root in a tmpfs and its own
# /tmp, /dev/shm, /run and cgroup. Nothing is added to the machine's own network: killing that PID 1 removes the host.
set -eu

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
state=${HOSTS_DIR:-/tmp/hvd-hosts}
network=10.91
user=hvduser
user_id=10091

die() {
    echo "hosts.sh: $*" >&2
    exit 1
}

address() { # NUMBER
    if [ -e "$state/v6" ]; then
        printf 'fd91::%x\n' $(($1 + 1))
    else
        echo "$network.$(($1 / 250)).$(($1 % 250 + 1))"
    fi
}

with_prefix() { # NUMBER: for `ip addr add`; no wait for an address that somebody else might have
    if [ -e "$state/v6" ]; then
        echo "$(address "$1")/64 nodad"
    else
        echo "$(address "$1")/16"
    fi
}

cgroup_root() { # the cgroup2 hierarchy, in a pure or a hybrid set-up; empty without one
    local dir
    for dir in /sys/fs/cgroup/unified /sys/fs/cgroup; do
        [ -e "$dir/cgroup.procs" ] && { echo "$dir"; return; }
    done
    return 0
}

pid_of() { # HOST: its PID 1, as seen from here
    local pid
    { read -r pid < "$state/$1/pid"; } 2>/dev/null || return 1
    [ -e "/proc/$pid" ] || return 1
    echo "$pid"
}

enter() { # HOST CMD...
    local pid
    pid=$(pid_of "$1") || die "$1 is not up"
    shift
    # shellcheck disable=SC2016 # expanded by the inner shell, in the host
    exec nsenter -t "$pid" -m -n -u -i -p -C -r -w -- \
        /bin/sh -c 'cd "$1" 2>/dev/null || cd /; shift; exec "$@"' sh "$PWD" "$@"
}

in_network_of() { # HOST CMD...: only its network, with this machine's programs
    local pid
    pid=$(pid_of "$1") || die "$1 is not up"
    shift
    nsenter -t "$pid" -n -- "$@"
}

can() {
    [ "$(id -u)" = 0 ] || { echo "not root"; return 1; }
    local program
    for program in unshare nsenter ip ssh-keygen; do
        command -v "$program" > /dev/null || { echo "no $program"; return 1; }
    done
    [ -x /usr/sbin/sshd ] || { echo "no sshd"; return 1; }
    unshare -n -u -i -p -m -C --fork true 2>/dev/null || { echo "namespaces are not allowed here"; return 1; }
    # shellcheck disable=SC2016
    unshare -m sh -c 'mount --make-rprivate / && mount -t tmpfs t /mnt && mkdir /mnt/u /mnt/w /mnt/r &&
        mount -t overlay -o lowerdir=/,upperdir=/mnt/u,workdir=/mnt/w t /mnt/r' 2>/dev/null ||
        { echo "overlay mounts are not allowed here"; return 1; }
    # shellcheck disable=SC2016
    unshare -n sh -c 'ip link add br0 type bridge && ip link add v1 type veth peer name w1' 2>/dev/null ||
        { echo "virtual network links are not allowed here"; return 1; }
    [ "${1:-}" != v6 ] || unshare -n sh -c 'ip link set lo up && ip addr add fd91::1/64 dev lo' 2>/dev/null ||
        { echo "no IPv6"; return 1; }
}

make_keys() { # COUNT: host keys, the users' key, and the files that name them
    local k type key
    mkdir -p "$state/id"
    ssh-keygen -q -t ed25519 -N '' -C hosts -f "$state/id/id_ed25519"
    printf '127.0.0.1 localhost\n::1 localhost\n%s head\n' "$(address 0)" > "$state/hosts"
    : > "$state/known_hosts"
    for k in $(seq 1 "$1"); do
        mkdir -p "$state/node$k/keys"
        ssh-keygen -q -t ed25519 -N '' -C "node$k" -f "$state/node$k/keys/ssh_host_ed25519_key"
        echo "$(address "$k") node$k" >> "$state/hosts"
        read -r type key _ < "$state/node$k/keys/ssh_host_ed25519_key.pub"
        echo "node$k,$(address "$k") $type $key" >> "$state/known_hosts"
    done
}

boot() { # HOST
    local host=$1 dir=$state/$1 group='' pid
    mkdir -p "$dir/fs" "$dir/keys"
    rm -f "$dir/ready"
    mkfifo "$dir/ready"
    [ -z "$(cgroup_root)" ] || { group=$(cgroup_root)/hvd-hosts.$(stat -c %i "$state").$host; mkdir -p "$group"; }
    echo "$group" > "$dir/cgroup"
    # shellcheck disable=SC2016
    HOSTS_STATE=$state HOSTS_USER=$user HOSTS_UID=$user_id setsid sh -c '
        [ -z "$1" ] || echo $$ > "$1/cgroup.procs"
        shift; exec "$@"' sh "$group" \
        unshare -n -u -i -p -m -C --fork --kill-child=SIGKILL "$here/init.sh" "$host" \
        9<> "$dir/ready" < /dev/null > "$dir/log" 2>&1 &
    echo $! > "$dir/holder"
    IFS= read -r -n2 -t 20 _ <> "$dir/ready" || die "$host did not start: $(tail -n 3 "$dir/log")"
    rm -f "$dir/ready"
    read -r pid _ < "/proc/$(cat "$dir/holder")/task/$(cat "$dir/holder")/children" || :
    echo "$pid" > "$dir/pid"
}

plug() { # HOST: into the bridge, which lives in head; with the same hardware address after each boot, as others remember it
    local k=${1#node} pid mac
    mac=$(printf 02:00:00:00:%02x:%02x $((k / 256)) $((k % 256)))
    pid=$(pid_of "$1")
    in_network_of head sh -c "ip link del v$k 2>/dev/null
        ip link add v$k type veth peer name eth0 address $mac netns $pid && ip link set v$k master br0 up"
    in_network_of "$1" sh -c "ip addr add $(with_prefix "$k") dev eth0; ip link set eth0 up"
}

await_sshd() { # HOST
    local try
    for try in $(seq 500); do
        in_network_of head timeout 2 bash -c "exec 3<>/dev/tcp/$(address "${1#node}")/22" 2>/dev/null && return
        sleep 0.02
    done
    die "sshd on $1 does not answer after $try tries"
}

up() { # COUNT FAMILY
    local k pids=() pid
    [ ! -e "$state" ] || die "already up, or left over: $state (hosts.sh down removes it)"
    mkdir -p "$state"
    chmod 755 "$state"
    [ "${2:-}" != v6 ] || : > "$state/v6"
    make_keys "$1"
    boot head
    in_network_of head sh -c "ip link set lo up; ip link add br0 type bridge stp_state 0 forward_delay 0
        ip addr add $(with_prefix 0) dev br0; ip link set br0 up"
    for k in $(seq 1 "$1"); do
        { boot "node$k" && plug "node$k"; } &
        pids+=($!)
        if [ ${#pids[@]} = 8 ]; then
            for pid in "${pids[@]}"; do wait "$pid"; done
            pids=()
        fi
    done
    for pid in "${pids[@]}"; do wait "$pid"; done
    for k in $(seq 1 "$1"); do await_sshd "node$k"; done
}

slay() { # HOST: SIGKILL for the process that we started, if that number is still ours
    local holder
    [ -e "$state/$1/holder" ] || return 0
    read -r holder < "$state/$1/holder"
    if [ -r "/proc/$holder/cmdline" ] && tr '\0' ' ' < "/proc/$holder/cmdline" | grep -q "init.sh $1"; then
        kill -9 "$holder" 2>/dev/null || :
    fi
}

await_end() { # HOST: until it has gone, then its cgroup
    local holder group _
    [ -e "$state/$1/holder" ] || return 0
    read -r holder < "$state/$1/holder"
    for _ in $(seq 1000); do
        [ -e "/proc/$holder" ] || break
        sleep 0.01
    done
    read -r group < "$state/$1/cgroup" || :
    rm -f "$state/$1/pid" "$state/$1/holder"
    [ -n "$group" ] || return 0
    for _ in $(seq 500); do
        [ -d "$group" ] || return 0
        find "$group" -depth -type d -exec rmdir {} \; 2>/dev/null || :
        sleep 0.01
    done
}

down() {
    local dir
    [ -d "$state" ] || return 0
    for dir in "$state"/node* "$state/head"; do [ ! -d "$dir" ] || slay "$(basename "$dir")"; done
    for dir in "$state"/node* "$state/head"; do [ ! -d "$dir" ] || await_end "$(basename "$dir")"; done
    rm -rf --one-file-system "$state"
}

# Packets for a hardware address that nobody has arrive nowhere, and nobody is told.
lose_packets() { # FROM TO
    in_network_of "$1" ip neigh replace "$(address "$(number "$2")")" lladdr 02:00:00:00:ff:ff nud permanent dev "$(device "$1")"
}

find_packets() { # FROM TO
    in_network_of "$1" ip neigh del "$(address "$(number "$2")")" dev "$(device "$1")" 2>/dev/null || :
}

number() { # HOST
    case $1 in head) echo 0 ;; *) echo "${1#node}" ;; esac
}

device() { # HOST
    case $1 in head) echo br0 ;; *) echo eth0 ;; esac
}

others() { # HOST: all that are up but this one
    local dir
    for dir in "$state"/node* "$state/head"; do
        [ ! -e "$dir/pid" ] || [ "$(basename "$dir")" = "$1" ] || basename "$dir"
    done
}

slow() { # HOST RATE
    local shape=(root tbf rate "$2" burst 4k latency 400ms)
    in_network_of head tc qdisc add dev "v${1#node}" "${shape[@]}" && in_network_of "$1" tc qdisc add dev eth0 "${shape[@]}"
}

heal() { # HOST
    local other
    in_network_of head ip link set "v${1#node}" up
    for other in $(others "$1"); do
        find_packets "$1" "$other"
        find_packets "$other" "$1"
    done
    in_network_of head tc qdisc del dev "v${1#node}" root 2>/dev/null || :
    in_network_of "$1" tc qdisc del dev eth0 root 2>/dev/null || :
}

signal_all() { # SIGNAL HOST: every process in its PID namespace, at once
    local namespace pids
    namespace=$(readlink "/proc/$(pid_of "$2")/ns/pid")
    pids=$(find /proc/[0-9]*/ns/pid -lname "${namespace//\[/\\[}" 2>/dev/null | cut -d/ -f3)
    [ -n "$pids" ] || die "no processes found on $2"
    # shellcheck disable=SC2086
    kill "-$1" $pids 2>/dev/null || :
}

command=${1:-help}
[ $# = 0 ] || shift
case $command in
can) can "$@" ;;
up) [ "$(id -u)" = 0 ] || die "needs root"; up "$1" "${2:-}" ;;
down) down ;;
exec) enter "$@" ;;
as)
    who=$1 host=$2
    shift 2
    enter "$host" setpriv --reuid "$who" --regid "$who" --init-groups -- env "HOME=/home/$who" "USER=$who" "$@"
    ;;
cut) in_network_of head ip link set "v${1#node}" down ;;
mute) for other in $(others "$1"); do lose_packets "$1" "$other"; done ;;
deaf) for other in $(others "$1"); do lose_packets "$other" "$1"; done ;;
slow) slow "$1" "$2" ;;
heal) heal "$1" ;;
crash) in_network_of head ip link set "v${1#node}" down || :; slay "$1"; await_end "$1" ;;
boot) boot "$1"; plug "$1"; await_sshd "$1" ;;
freeze) signal_all STOP "$1" ;;
thaw) signal_all CONT "$1" ;;
*) sed -n '2,20s/^# \{0,1\}//p' "$0"; [ "$command" = help ] || exit 2 ;;
esac
