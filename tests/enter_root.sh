#!/bin/bash
# Makes the directory ROOT, which holds a new Debian, this process's root, and goes on with COMMAND there. Runs in mount, UTS, IPC and
# process namespaces of its own (unshare -m -u -i -p --fork); the root gets /proc, /sys and a small /dev.
#
#   enter_root.sh ROOT COMMAND...
set -e
root=$1
shift
mount --make-rprivate /
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount -t tmpfs -o mode=755,nosuid dev "$root/dev"
for node in null zero full random urandom tty; do
    : > "$root/dev/$node"
    mount --bind "/dev/$node" "$root/dev/$node"
done
mkdir "$root/dev/pts" "$root/dev/shm" "$root/dev/mqueue"
mount -t devpts -o newinstance,ptmxmode=666,mode=620,gid=5 devpts "$root/dev/pts"
mount -t tmpfs -o mode=1777 shm "$root/dev/shm"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
for k in 0:stdin 1:stdout 2:stderr; do ln -s "/proc/self/fd/${k%:*}" "$root/dev/${k#*:}"; done
mount -t tmpfs -o mode=755 run "$root/run"
mkdir -p "$root/.before"
cd "$root"
pivot_root . .before
umount -l /.before
rmdir /.before
hostname fresh
cd /
exec "$@"
