#!/bin/sh
# Finds what this machine lacks to build or test the project, and installs it when asked to and allowed to.
#
#   deps.sh check GROUP...     names what is missing with the apt command and fails; silent when all is there
#   deps.sh install GROUP...   installs it: as root, or through sudo when that asks no password
#
# Groups: build (without these nothing is built), options (parts of a build that can be left out: PMIx, the store for Gloo,
# configuration files, binding, the managed agent, the Python package), test (everything that a test of `make check` calls, PyTorch, other people's
# launchers and MPI libraries included), extra (fuzz, lint, sanitizers), frameworks (for check-frameworks and the slow tests), wheel (make wheel and its
# test), deb (make deb and its test), rpm (likewise), release (its test; deb, rpm and wheel too), cross (another
# machine), fresh (new roots of Debian), root (one such root).
# The common case, nothing missing, costs a few milliseconds: one pkg-config call and shell built-ins.
set -u

mode=${1:-check}
shift 2>/dev/null || :
missing=

need_program() { # PROGRAM PACKAGE
    command -v "$1" >/dev/null 2>&1 || [ -x "/usr/sbin/$1" ] || [ -x "/sbin/$1" ] || missing="$missing $2"
}

need_libraries() { # MODULE PACKAGE ... : one pkg-config call when all are there
    all=
    n=0
    for word in "$@"; do
        n=$((n + 1))
        [ $((n % 2)) = 0 ] || all="$all $word"
    done
    # shellcheck disable=SC2086
    ${PKG_CONFIG:-pkg-config} --exists $all 2>/dev/null && return
    while [ $# -gt 1 ]; do
        ${PKG_CONFIG:-pkg-config} --exists "$1" 2>/dev/null || missing="$missing $2"
        shift 2
    done
}

need_module() { # MODULE PACKAGE: of Debian's python3, which need not be the first one in PATH
    /usr/bin/python3 -c "import importlib.util as u, sys; sys.exit(u.find_spec('$1') is None)" 2>/dev/null || missing="$missing $2"
}

for group in "${@:-build}"; do
    case $group in
    build)
        need_program "${PKG_CONFIG:-pkg-config}" pkg-config
        need_program gcc gcc
        need_program ld binutils
        need_program protoc protobuf-compiler
        need_program protoc-gen-c protobuf-c-compiler
        [ -e /usr/include/stdio.h ] || missing="$missing libc6-dev"
        need_libraries libuv libuv1-dev libssh2 libssh2-1-dev libprotobuf-c libprotobuf-c-dev libcrypto libssl-dev
        ;;
    options)
        need_libraries pmix libpmix-dev libmicrohttpd libmicrohttpd-dev yaml-0.1 libyaml-dev hwloc libhwloc-dev \
            libsystemd libsystemd-dev
        ls /usr/include/python3*/Python.h >/dev/null 2>&1 || missing="$missing python3-dev"
        ;;
    test)
        need_libraries check check
        need_program g++ g++
        need_program sshd openssh-server
        need_program ssh openssh-client
        need_program ip iproute2
        need_program unshare util-linux
        need_program setpriv util-linux
        need_program script bsdutils
        need_program eu-stack elfutils
        need_program gdb gdb
        need_program iptables iptables
        need_program curl curl
        need_program man man-db
        need_program pgrep procps
        need_program perl perl
        need_program zsh zsh
        need_program fish fish
        need_program chromium-headless-shell chromium-headless-shell
        [ -x /lib/systemd/systemd ] || missing="$missing systemd"
        need_program mpicc.openmpi libopenmpi-dev
        need_program mpirun.openmpi openmpi-bin
        need_program mpicc.mpich libmpich-dev
        need_program mpiexec.mpich mpich
        need_program slurmctld slurm-wlm
        need_program munged munge
        need_module mpi4py python3-mpi4py
        need_module yaml python3-yaml
        need_module numpy python3-numpy
        need_module torch python3-torch
        ;;
    extra)
        need_program clang clang
        need_program clang-format clang-format
        need_program cppcheck cppcheck
        need_program shellcheck shellcheck
        need_program mandoc mandoc
        need_program groff groff
        need_program podman podman
        need_program runc runc
        need_program mypy mypy # Debian 12 has no ruff: lint skips it where pip has not installed one
        ls /usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.fuzzer-*.a >/dev/null 2>&1 || missing="$missing libclang-rt-dev"
        ;;
    frameworks)
        need_module sklearn python3-sklearn
        need_module venv python3-venv
        need_module ensurepip python3-venv
        ;;
    wheel)
        need_module wheel python3-wheel
        need_module venv python3-venv
        need_module ensurepip python3-venv
        need_program mmdebstrap mmdebstrap
        ;;
    deb)
        need_program dpkg-buildpackage dpkg-dev
        need_program dh debhelper
        need_program dh_python3 dh-python
        need_program lintian lintian
        need_program mmdebstrap mmdebstrap
        ;;
    rpm)
        need_program rpmbuild rpm
        need_program mmdebstrap mmdebstrap
        ;;
    cross)
        need_program mmdebstrap mmdebstrap
        ;;
    release)
        need_program gpg gnupg
        ;;
    root)
        need_program mmdebstrap mmdebstrap
        ;;
    fresh)
        need_program mmdebstrap mmdebstrap
        need_program podman podman
        need_program runc runc
        ;;
    *)
        echo "deps.sh: unknown group $group" >&2
        exit 2
        ;;
    esac
done
[ -n "$missing" ] || exit 0

command="apt-get install -y$missing"
if [ "$mode" = check ]; then
    echo "packages are missing on this machine; install them as root with: $command (or with: make deps)" >&2
    exit 1
fi

become=
if [ "$(id -u)" != 0 ]; then
    become='sudo -n'
    if ! sudo -n true 2>/dev/null; then
        echo "missing on this machine:$missing (install as root: $command)" >&2
        exit 1
    fi
fi
if ! command -v apt-get >/dev/null 2>&1; then
    echo "missing on this machine:$missing (Debian's names; there is no apt-get here to install them with)" >&2
    exit 1
fi
echo "installing$missing"
# shellcheck disable=SC2086
{
    $become env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=500 -q update &&
        $become env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=500 -q install -y \
            --no-install-recommends $missing
} || {
    echo "cannot install$missing (the command was: $command)" >&2
    exit 1
}
