#!/bin/bash
# Several 'hosts' for an ordinary user: one sshd of the user's own for each of 127.0.0.2, 127.0.0.3, ..., all on one free port.
#
#   loopback.sh up N   starts them; prints nothing
#   loopback.sh down   ends them
#   loopback.sh can    says why this machine cannot, and fails; silent when it can
#
# They share files and processes, so they show the way over SSH and the placement, not isolation. HOSTS_DIR holds the state:
# `port`, the client's key `id`, `known_hosts`, `ssh_config` for the ssh program (the names node1, node2, ... work there),
# and `home`, a home directory with the same in .ssh for programs that go by $HOME.
set -eu

state=${HOSTS_DIR:-/tmp/hvd-loopback-$(id -u)}
sshd=$(PATH=$PATH:/usr/sbin:/sbin command -v sshd || :)

die() {
    echo "loopback.sh: $*" >&2
    exit 1
}

can() {
    [ -n "$sshd" ] || { echo "no sshd"; return 1; }
    command -v ssh-keygen > /dev/null || { echo "no ssh-keygen"; return 1; }
}

free_port() { # a port that nobody listens on at any of the addresses; the kernel's range for clients is left out
    local port
    for port in $(seq 22022 7 22700); do
        grep -qi ":$(printf %04X "$port") " /proc/net/tcp /proc/net/tcp6 2>/dev/null || { echo "$port"; return; }
    done
    die "no free port"
}

start_sshd() { # NUMBER PORT
    local dir=$state/node$1 address=127.0.0.$(($1 + 1))
    mkdir -p "$dir"
    ssh-keygen -q -t ed25519 -N '' -C "node$1" -f "$dir/key"
    cat > "$dir/sshd.conf" <<END
ListenAddress $address:$2
HostKey $dir/key
AuthorizedKeysFile $state/id.pub
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
StrictModes no
UsePAM no
UseDNS no
PidFile none
MaxStartups 200:30:400
END
    echo "[$address]:$2 $(cut -d' ' -f1,2 "$dir/key.pub")" >> "$state/known_hosts"
    printf 'Host node%s\n  HostName %s\n' "$1" "$address" >> "$state/ssh_config"
    "$sshd" -D -e -f "$dir/sshd.conf" < /dev/null > /dev/null 2> "$dir/log" 9>&- &
    echo $! > "$dir/pid"
}

await() { # NUMBER PORT
    local _
    for _ in $(seq 250); do
        bash -c "exec 3<>/dev/tcp/127.0.0.$(($1 + 1))/$2" 2>/dev/null && return
        [ -e "/proc/$(cat "$state/node$1/pid")" ] || die "sshd ended: $(tail -n 2 "$state/node$1/log")"
        sleep 0.02
    done
    die "sshd of node$1 does not answer"
}

up() { # COUNT
    local k port
    [ ! -e "$state" ] || die "already up, or left over: $state (loopback.sh down removes it)"
    mkdir -p "$state/home/.ssh"
    chmod 700 "$state" "$state/home/.ssh"
    [ "$(id -u)" != 0 ] || mkdir -p /run/sshd
    ssh-keygen -q -t ed25519 -N '' -C loopback -f "$state/id"
    port=$(free_port)
    echo "$port" > "$state/port"
    : > "$state/known_hosts"
    : > "$state/ssh_config"
    for k in $(seq 1 "$1"); do start_sshd "$k" "$port"; done
    cat >> "$state/ssh_config" <<END
Host *
  Port $port
  IdentityFile $state/id
  IdentitiesOnly yes
  UserKnownHostsFile $state/known_hosts
  GlobalKnownHostsFile /dev/null
  BatchMode yes
END
    cp "$state/known_hosts" "$state/home/.ssh/known_hosts"
    cp "$state/id" "$state/home/.ssh/id_ed25519"
    cp "$state/id.pub" "$state/home/.ssh/id_ed25519.pub"
    for k in $(seq 1 "$1"); do await "$k" "$port"; done
}

down() {
    local file pid
    for file in "$state"/node*/pid; do
        [ -e "$file" ] || continue
        read -r pid < "$file"
        if tr '\0' ' ' < "/proc/$pid/cmdline" 2>/dev/null | grep -q "${file%/pid}"; then kill "$pid"; fi
    done
    rm -rf "$state"
}

case ${1:-help} in
can) can ;;
up) up "$2" ;;
down) down ;;
*) sed -n '2,10s/^# \{0,1\}//p' "$0"; [ "${1:-help}" = help ] || exit 2 ;;
esac
