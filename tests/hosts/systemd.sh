#!/bin/bash
# A host with a real systemd as PID 1, for root: namespaces of its own, an overlay root, cgroup2 only.
#
#   systemd.sh can         says why this machine cannot, and fails; silent when it can
#   systemd.sh up          starts it and waits until it has booted; users alice and bob are there
#   systemd.sh exec CMD    runs a command there as root, in the same directory when it exists there
#   systemd.sh as USER CMD
#   systemd.sh down        removes it, waiting until every process has gone
#
# SYSTEMD_DIR holds the state; SYSTEMD_BIND lists directories that it sees at the same path; what lies below SYSTEMD_ROOT is copied
# over its root before it boots (as `make install DESTDIR=` left it). There is no D-Bus, no network but loopback, and of systemd's own
# services only the journal.
set -eu

state=${SYSTEMD_DIR:-/tmp/hvd-systemd}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
systemd=/lib/systemd/systemd

die() {
    echo "systemd.sh: $*" >&2
    exit 1
}

can() {
    [ "$(id -u)" = 0 ] || { echo "not root"; return 1; }
    local program
    for program in unshare nsenter systemctl "$systemd"; do
        command -v "$program" > /dev/null || { echo "no $program"; return 1; }
    done
    # shellcheck disable=SC2016
    unshare -n -u -i -p -m -C --fork sh -c 'mount --make-rprivate / && mount -t tmpfs t /mnt && mkdir /mnt/u /mnt/w /mnt/r /mnt/c &&
        mount -t overlay -o lowerdir=/,upperdir=/mnt/u,workdir=/mnt/w t /mnt/r && mount -t cgroup2 c /mnt/c' 2>/dev/null ||
        { echo "namespaces, overlay mounts or cgroup2 are not allowed here"; return 1; }
}

# A shell's command line in the cgroup2 hierarchy: in a pure or a hybrid set-up, or, where that is mounted nowhere, mounted for itself.
in_cgroups() { # COMMAND LINE, ARGUMENT...
    local dir
    for dir in /sys/fs/cgroup/unified /sys/fs/cgroup; do
        [ -e "$dir/cgroup.procs" ] || continue
        cd "$dir"
        # shellcheck disable=SC2093 # the first that is there
        exec sh -c "$1" sh "${@:2}"
    done
    mkdir -p "$state/cgroup"
    # shellcheck disable=SC2016 # expanded by the inner shells
    exec unshare -m sh -c 'mount --make-rprivate / && mount -t cgroup2 cgroup2 "$1" && cd "$1" && shift && exec sh -c "$@"' \
        sh "$state/cgroup" "$1" sh "${@:2}"
}

group_name() { # of its cgroup
    echo "hvd-systemd.$(stat -c %i "$state")"
}

pid_of() { # its PID 1, as seen from here
    local pid
    { read -r pid < "$state/pid"; } 2>/dev/null || return 1
    [ -e "/proc/$pid" ] || return 1
    echo "$pid"
}

enter() { # CMD...
    local pid
    pid=$(pid_of) || die "it is not up"
    # shellcheck disable=SC2016 # expanded by the inner shell, in the host
    exec nsenter -t "$pid" -m -n -u -i -p -C -r -w -- \
        /bin/sh -c 'cd "$1" 2>/dev/null || cd /; shift; exec "$@"' sh "$PWD" "$@"
}

# Users of the host can reach what they share with this machine, also where its users cannot: below /root. Only the overlay changes.
open_way() { # ROOT DIR
    local dir=$2
    while dir=$(dirname "$dir") && [ "$dir" != / ]; do chmod a+x "$1$dir"; done
}

# ---- in its namespaces, before systemd ------------------------------------------------------------------------------------
mount_all() { # ROOT
    local root=$1 node dir
    mount -t proc proc "$root/proc"
    mount -t sysfs sysfs "$root/sys"
    mount -t tmpfs -o mode=755 cgroup "$root/sys/fs/cgroup" 2>/dev/null && umount "$root/sys/fs/cgroup"
    mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
    mount -t tmpfs -o mode=755 dev "$root/dev"
    for node in null zero full random urandom tty; do
        : > "$root/dev/$node"
        mount --bind "/dev/$node" "$root/dev/$node"
    done
    mkdir "$root/dev/pts" "$root/dev/shm"
    mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts "$root/dev/pts"
    ln -s pts/ptmx "$root/dev/ptmx"
    ln -s /proc/self/fd "$root/dev/fd"
    mount -t tmpfs -o mode=1777 shm "$root/dev/shm"
    mount -t tmpfs -o mode=755 run "$root/run"
    mount -t tmpfs -o mode=1777 tmp "$root/tmp"
    for dir in ${SYSTEMD_BIND:-}; do
        mkdir -p "$root$dir"
        open_way "$root" "$dir"
        mount --rbind "$dir" "$root$dir"
    done
}

write_system() { # ROOT: the users, and a target that starts next to nothing
    local root=$1 unit user id=20001
    rm -f "$root/etc/machine-id"
    echo 0123456789abcdef0123456789abcdef > "$root/etc/machine-id"
    echo systemd-host > "$root/etc/hostname"
    rm -rf "$root"/etc/systemd/system/*.wants
    for unit in systemd-{udevd,udev-trigger,udevd-kernel,modules-load,sysctl,timesyncd,random-seed,logind,remount-fs,binfmt}.service \
        systemd-udevd-{control,kernel}.socket getty.target dbus.socket dbus.service {dev-hugepages,dev-mqueue}.mount \
        sys-{kernel-debug,kernel-tracing,kernel-config,fs-fuse-connections}.mount proc-sys-fs-binfmt_misc.automount; do
        ln -sf /dev/null "$root/etc/systemd/system/$unit"
    done
    for user in alice bob; do
        echo "$user:x:$id:$id::/home/$user:/bin/bash" >> "$root/etc/passwd"
        echo "$user:x:$id:" >> "$root/etc/group"
        mkdir -p "$root/home/$user"
        chown "$id:$id" "$root/home/$user"
        chmod 700 "$root/home/$user"
        id=$((id + 1))
    done
    [ -z "${SYSTEMD_ROOT:-}" ] || cp -a "$SYSTEMD_ROOT/." "$root/"
}

init() {
    local fs=$state/fs
    hostname systemd-host
    mount --make-rprivate /
    mount -t tmpfs -o mode=755,size=512m hvd "$fs"
    mkdir "$fs/upper" "$fs/work" "$fs/root"
    mount -t overlay -o "lowerdir=/,upperdir=$fs/upper,workdir=$fs/work" hvd "$fs/root"
    mount_all "$fs/root"
    write_system "$fs/root"
    ip link set lo up
    mkdir -p "$fs/root/.old"
    cd "$fs/root"
    pivot_root . .old
    exec chroot . /bin/sh -c "umount -l /.old; rmdir /.old
        exec env -i container=hvd PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin TERM=dumb \
            $systemd --system --unit=multi-user.target --log-target=console --log-level=info --show-status=no"
}

hold() { # what holds it, from a cgroup of its own
    # shellcheck disable=SC2016 # expanded by the inner shell
    in_cgroups 'mkdir -p "$1" && echo $$ > "$1/cgroup.procs" && cd / && shift && exec "$@"' "$(group_name)" \
        unshare -n -u -i -p -m -C --fork --kill-child=SIGKILL "$here/systemd.sh" init
}

# ---- from outside ---------------------------------------------------------------------------------------------------------
has_booted() {
    case $("$0" exec systemctl is-system-running 2>/dev/null) in running | degraded) ;; *) return 1 ;; esac
}

up() {
    local holder pid _
    [ ! -e "$state" ] || die "already up, or left over: $state (systemd.sh down removes it)"
    mkdir -p "$state/fs"
    chmod 755 "$state"
    SYSTEMD_DIR=$state setsid "$here/systemd.sh" hold < /dev/null > "$state/log" 2>&1 &
    holder=$!
    echo $holder > "$state/holder"
    for _ in $(seq 1000); do
        [ -e "/proc/$holder" ] || die "it did not start: $(tail -n 3 "$state/log")"
        # Until it is unshare, its children are others.
        pid=
        [ "$(cat "/proc/$holder/comm")" != unshare ] || read -r pid _ < "/proc/$holder/task/$holder/children" || :
        [ -z "$pid" ] || { echo "$pid" > "$state/pid"; ! has_booted || return 0; }
        sleep 0.02
    done
    die "it did not boot: $(tail -n 3 "$state/log")"
}

down() {
    local holder _
    [ -d "$state" ] || return 0
    read -r holder < "$state/holder" || :
    if [ -n "${holder:-}" ] && tr '\0' ' ' < "/proc/$holder/cmdline" 2>/dev/null | grep -qE "systemd.sh (init|hold)"; then
        kill -9 "$holder" 2>/dev/null || :
    fi
    for _ in $(seq 1000); do
        # shellcheck disable=SC2016 # expanded by the inner shell
        ! (in_cgroups 'find "$1" -depth -type d -exec rmdir {} \; 2> /dev/null; [ ! -d "$1" ]' "$(group_name)") || break
        sleep 0.01
    done
    rm -rf --one-file-system "$state"
}

command=${1:-help}
[ $# = 0 ] || shift
case $command in
can) can ;;
hold) hold ;;
init) init ;;
up) [ "$(id -u)" = 0 ] || die "needs root"; up ;;
down) down ;;
exec) enter "$@" ;;
as)
    who=$1
    shift
    enter setpriv --reuid "$who" --regid "$who" --init-groups -- env -i PATH=/usr/local/bin:/usr/bin:/bin "HOME=/home/$who" \
        "USER=$who" "LOGNAME=$who" ${HVD_TEST_CASE:+"HVD_TEST_CASE=$HVD_TEST_CASE"} "$@"
    ;;
*) sed -n '2,14s/^# \{0,1\}//p' "$0"; [ "$command" = help ] || exit 2 ;;
esac
