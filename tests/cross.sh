#!/bin/bash
# Another machine: this tree is built for aarch64 with a cross compiler in a new root of Debian, and its programs run there under
# qemu-user. BUILD=build tests/cross.sh. Needs root, mmdebstrap, and a kernel with binfmt_misc. Prints one TAP line a test.
# CROSS_ROOT=DIR keeps the root there, and takes it the next time. CASE=word keeps the cases with that word in their names.
# shellcheck disable=SC2317,SC2329 # cases are called by their names
set -u

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2
build=$(realpath -m "${BUILD:-build}")
work=$(mktemp -d) || exit 2
root=${CROSS_ROOT:-$work/root}
binfmt=/proc/sys/fs/binfmt_misc
emulator=hvd-test-aarch64
trap '[ ! -e "$binfmt/$emulator" ] || echo -1 > "$binfmt/$emulator"; rm -rf --one-file-system "$work"' EXIT
. tests/cases.sh

# They ask the machine itself for what the emulator does not have: numbers of system calls, the last real-time signal, stopped threads,
# the names of processes, limits of memory, filters of system calls. Programs of which single tests do so ask for HVD_TEST_EMULATED.
not_here='backend_tcp containment gpu_headers hostile_children hostile_daemon hostile_hosts session session_deaths signals spawn ssh_config'

make_root() {
    [ "$(id -u)" = 0 ] || { echo 'not root'; return 77; }
    command -v mmdebstrap > /dev/null || { echo 'no mmdebstrap here'; return 77; }
    [ -e "$binfmt/register" ] || mount -t binfmt_misc none "$binfmt" 2> /dev/null || { echo 'the kernel has no binfmt_misc'; return 77; }
    [ -x "$root/usr/bin/qemu-aarch64-static" ] || mmdebstrap --quiet --variant=apt --architectures=amd64,arm64 \
        --include=make,gcc,libc6-dev,gcc-aarch64-linux-gnu,libc6-dev-arm64-cross,pkg-config,protobuf-compiler,protobuf-c-compiler,qemu-user-static,mount,hostname,procps,python3 \
        --include=libuv1-dev:arm64,libssh2-1-dev:arm64,libprotobuf-c-dev:arm64,libssl-dev:arm64,libpmix-dev:arm64,libmicrohttpd-dev:arm64 \
        --include=libyaml-dev:arm64,libhwloc-dev:arm64,libsystemd-dev:arm64,check:arm64 "$(. /etc/os-release && echo "$VERSION_CODENAME")" "$root" || return
    # The header of an ELF file for aarch64. F: the emulator is opened now, so that it is found in every root.
    [ -e "$binfmt/$emulator" ] || printf '%s' ":$emulator:M::"'\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00:\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:'"$root/usr/bin/qemu-aarch64-static:F" > "$binfmt/register"
}

in_root() { # SECONDS COMMAND LINE
    timeout "$1" unshare -m -u -i -p --fork --kill-child=SIGKILL tests/enter_root.sh "$root" env -i HOME=/root TERM=dumb LANG=C.UTF-8 \
        PATH=/usr/sbin:/usr/bin:/sbin:/bin bash -c "cd /src && $2"
}

case_it_is_built_without_a_warning() {
    rm -rf "$root/src"
    mkdir "$root/src"
    contrib/release/source.sh "$build" | tar -x -C "$root/src" || return
    in_root 1200 'export PKG_CONFIG_LIBDIR=/usr/lib/aarch64-linux-gnu/pkgconfig:/usr/share/pkgconfig
        make CC=aarch64-linux-gnu-gcc CI=1 all test-programs' > "$work/build" 2>&1 || { grep -E 'error|warning' "$work/build"; tail -n 5 "$work/build"; return 1; }
    in_root 20 'build/hvdrun --version && readelf -h build/hvdrun | grep AArch64'
}

# Two ranks train, and their losses are those of this machine to the last digit.
case_two_ranks_train() {
    in_root 200 'build/hvdrun -np 2 build/examples/train --steps 3' > "$work/there" 2>&1 || { cat "$work/there"; return 1; }
    "$build/hvdrun" -np 2 "$build/examples/train" --steps 3 > "$work/here" 2>&1 || { cat "$work/here"; return 1; }
    grep -q '^step 3 ' "$work/there" || { cat "$work/there"; return 1; }
    diff <(grep '^step' "$work/here" | sed 's/ chars.*//') <(grep '^step' "$work/there" | sed 's/ chars.*//')
}

case_unit_tests() {
    in_root 3000 "for test in build/tests/test_*; do
        name=\${test#build/tests/test_}
        [ -f \$test ] && [ -x \$test ] || continue
        case ' $not_here ' in *\" \$name \"*) continue ;; esac
        HVD_TEST_EMULATED=1 CK_TIMEOUT_MULTIPLIER=6 timeout 300 \$test > /tmp/said 2>&1
        status=\$?
        [ \$status = 0 ] || [ \$status = 77 ] || { echo \"\$name: exit status \$status\"; grep ':F:\\|:E:' /tmp/said | head -n 3; }
    done" > "$work/unit" 2>&1
    [ ! -s "$work/unit" ] || { cat "$work/unit"; return 1; }
}

make_root > "$work/why" 2>&1
status=$?
[ $status = 0 ] || { say_result cross $status 'a root with a cross compiler' "$work/why"; exit $failed; }
for case in case_it_is_built_without_a_warning case_two_ranks_train case_unit_tests; do
    case $case in *"${CASE:-}"*) ;; *) continue ;; esac
    name=${case#case_}
    "$case" > "$work/why" 2>&1
    say_result cross $? "${name//_/ }" "$work/why"
done
exit $failed
