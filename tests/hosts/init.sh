#!/bin/bash
# PID 1 of a host that hosts.sh makes: builds its root file system, moves into it, starts its sshd, reaps orphans.
# Descriptor 9 is the ready pipe; HOSTS_STATE, HOSTS_BIND, HOSTS_USER and HOSTS_UID come from hosts.sh.
set -eu

host=$1
dir=$HOSTS_STATE/$host
root=$dir/fs/root

mount_root() {
    mount --make-rprivate /
    mount -t tmpfs -o mode=755,size=512m hvd "$dir/fs"
    mkdir "$dir/fs/upper" "$dir/fs/work" "$root"
    mount -t overlay -o "lowerdir=/,upperdir=$dir/fs/upper,workdir=$dir/fs/work" hvd "$root"
    mount -t proc proc "$root/proc"
    mount -t sysfs sysfs "$root/sys"
    mount -t tmpfs -o mode=1777 tmp "$root/tmp"
    mount -t tmpfs -o mode=755 run "$root/run"
    # A container runtime may forbid a cgroup2 mount of our own; the agent then contains by subreaper.
    if mount -t tmpfs -o mode=755 cgroup "$root/sys/fs/cgroup" 2>/dev/null; then
        mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup" 2>/dev/null || :
    fi
}

mount_dev() {
    local node
    mount -t tmpfs -o mode=755,size=64k dev "$root/dev"
    for node in null zero full random urandom tty; do
        : > "$root/dev/$node"
        mount --bind "/dev/$node" "$root/dev/$node"
    done
    mkdir "$root/dev/pts" "$root/dev/shm"
    mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts "$root/dev/pts"
    mount -t tmpfs -o mode=1777 shm "$root/dev/shm"
    ln -s pts/ptmx "$root/dev/ptmx"
    ln -s /proc/self/fd "$root/dev/fd"
    ln -s fd/0 "$root/dev/stdin"
    ln -s fd/1 "$root/dev/stdout"
    ln -s fd/2 "$root/dev/stderr"
}

bind_shared() {
    local shared
    for shared in ${HOSTS_BIND:-}; do
        mkdir -p "$root$shared"
        mount --rbind "$shared" "$root$shared"
    done
}

write_accounts() { # the users' keys: every host trusts the one key, and knows every host
    local home
    mkdir -p "$root/run/sshd" "$root/root/.ssh" "$root/home/$HOSTS_USER/.ssh"
    cp "$HOSTS_STATE/hosts" "$root/etc/hosts"
    echo "$host" > "$root/etc/hostname"
    echo "$HOSTS_USER:x:$HOSTS_UID:$HOSTS_UID::/home/$HOSTS_USER:/bin/bash" >> "$root/etc/passwd"
    echo "$HOSTS_USER:*:19000:0:99999:7:::" >> "$root/etc/shadow"
    echo "$HOSTS_USER:x:$HOSTS_UID:" >> "$root/etc/group"
    for home in root "home/$HOSTS_USER"; do
        rm -f "$root/$home/.ssh/config"
        # What this machine's shells start with takes its time, and may wait for a lock whose holder a case has killed.
        rm -f "$root/$home"/{.bashrc,.bash_profile,.bash_login,.profile}
        cp "$HOSTS_STATE"/id/* "$HOSTS_STATE/known_hosts" "$root/$home/.ssh/"
        cp "$HOSTS_STATE/id/id_ed25519.pub" "$root/$home/.ssh/authorized_keys"
        chmod 700 "$root/$home" "$root/$home/.ssh"
        chmod 600 "$root/$home/.ssh/"*
    done
    chown -R "$HOSTS_UID:$HOSTS_UID" "$root/home/$HOSTS_USER"
}

write_sshd_config() {
    rm -f "$root"/etc/ssh/ssh_host_*
    [ ! -e "$dir/keys/ssh_host_ed25519_key" ] || cp "$dir/keys/"* "$root/etc/ssh/"
    cat > "$root/run/sshd.conf" <<END
Port 22
HostKey /etc/ssh/ssh_host_ed25519_key
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
UseDNS no
PidFile none
MaxStartups 200:30:400
END
}

hostname "$host"
mount_root
mount_dev
bind_shared
write_accounts
write_sshd_config
mkdir "$root/.old"
cd "$root"
pivot_root . .old
# shellcheck disable=SC2016 # expanded by the shell in the new root
exec chroot . /bin/bash -c '
    umount -l /.old; rmdir /.old
    ip link set lo up
    if [ "$1" != head ]; then /usr/sbin/sshd -D -e -f /run/sshd.conf 2> /run/sshd.log & fi
    printf up >&9; exec 9>&-
    trap "" HUP INT TERM
    while :; do sleep infinity & wait $!; done' bash "$host"
