#!/bin/bash
# tests/gpu/first where there is nothing but bash and coreutils, as on a machine that is lent with a GPU: a new root of Debian (minbase)
# without network, compiler, make or -dev packages, with the tree and a bundle, and the doubles in place of driver and NCCL.
#
#   BUILD=build tests/gpu/bare.sh      needs root, mmdebstrap, Debian's packages, and BUILD-gpu (make gpu-bundle)
#   CASE=word                          keeps the cases that have it in their names
#
# Prints TAP lines; what was written in the root lies in BUILD/bare. BARE_KEEP=1 leaves the root there.
# shellcheck disable=SC2016 # command lines are of the shell in the root
set -u

cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 2
build=$(realpath -m "${BUILD:-build}")
bundle=$build-gpu
state=$build/bare
root=$state/root
failed=0

skip() { # WHY
    echo "ok - gpu bundle # SKIP $1"
    exit 0
}

try() { # TEXT FUNCTION: a case, which writes FUNCTION.log
    local log=$state/$2.log
    [[ $2 == *${CASE:-}* ]] || return
    if "$2" "$log"; then
        echo "ok - gpu bundle: $1"
    else
        failed=1
        tail -n 40 "$log" | cut -c1-300 | sed 's/^/    # /'
        echo "not ok - gpu bundle: $1"
    fi
}

make_root() {
    rm -rf --one-file-system "${root:?}"
    mkdir -p "$root" || return
    # A mirror is asked once.
    if [ ! -e "$state/bookworm.tar" ]; then
        mmdebstrap --quiet --variant=minbase bookworm "$state/bookworm.part.tar" && mv "$state/bookworm.part.tar" "$state/bookworm.tar" || return
    fi
    tar -C "$root" -xf "$state/bookworm.tar" && chmod 755 "$root" && mkdir "$root/root/tree" || return
    git ls-files -z -co --exclude-standard | tar -c --null -T - --ignore-failed-read | tar -C "$root/root/tree" -x || return
    cp -a "$bundle" "$root/root/tree/build-gpu"
}

in_root() { # LOG COMMAND: a shell command line in the tree there; a network of its own, of which only the loopback is up
    timeout 900 unshare -m -u -i -p -n --fork --kill-child=SIGKILL sh -c 'ip link set lo up && exec tests/enter_root.sh "$@"' sh "$root" \
        env -i HOME=/root USER=root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 \
        bash -c "cd /root/tree && { $2
        }" > "$1" 2>&1 < /dev/null
}

nothing_to_build_with() { # LOG, as all cases
    in_root "$1" 'for program in make gcc cc ld pkg-config nvcc python3 git; do ! command -v $program || exit 1; done'
}

# Rows of steps that have to be there, with what did the work; `.` for any.
rows='two ranks=NCCL|both
test_gpu_communicator=NCCL
test_gpu_fuse=NCCL
bench: 1 rank, worker=.
bench: 2 ranks, worker=NCCL
training=NCCL
gpu_kinds=both
gpu_flow=NCCL|both
gpu_trouble=NCCL|both
gpu_arena=NCCL|both
what the driver does=.
registered memory=NCCL
memcheck of test_gpu_fuse=-
bench: 2 ranks, engine=NCCL
bench: 2 ranks, worker, MPS=NCCL
bench: 2 ranks, engine, MPS=NCCL
gpu_hosts=-
gpu_mps=.
the other topics=NCCL|both
the other unit tests=.'

the_table() { # of the first run: each row is there, by what it has to be, and no test failed
    awk -F '|' -v want="$rows" '
        function trim(text) { gsub(/^ +| +$/, "", text); return text }
        $4 + 0 != 0 || $5 + 0 != 0 || $6 + 0 != 0 { by[trim($2)] = trim($3); if ($5 + 0) { print "failed: " $0; bad = 1 } }
        END {
            n = split(want, row, "\n")
            for (i = 1; i <= n; i++) {
                name = row[i]; sub(/=.*/, "", name)
                way = row[i]; sub(/.*=/, "", way)
                if (!(name in by)) { print "no row: " name; bad = 1 }
                else if (by[name] !~ "^(" way (way == "." ? ".*" : "") ")$") { print name " is by " by[name] ", not " way; bad = 1 }
            }
            exit bad
        }' "$root/root/out/table.md"
}

few_files() { # in what comes back
    [ "$(find "$root/root/out" -type f | wc -l)" -le 8 ] && [ -z "$(find "$root/root/out" -mindepth 1 -type d -o -size +16384k)" ]
}

first() {
    local status
    in_root "$1" 'tests/gpu/first --double /root/out'
    status=$?
    sed 's/^/# /' "$root/root/out/table.md"
    cp -r "$root/root/out" "$state/" && [ $status = 0 ] && the_table >> "$1" && few_files
}

# SIGKILL, from without, when the first rows are there: they stay.
killed() {
    in_root "$1" 'BUILD=build-gpu HOSTS=none timeout -s KILL 25 tests/gpu/run --double /root/killed'
    cat "$root/root/killed/table.md" >> "$1"
    grep -q '^| test_gpu_communicator  *| NCCL ' "$root/root/killed/table.md"
}

refuses() { # LOG REGEX COMMAND: in one line, exit status 1, no table
    in_root "$1" "$3; echo \"exit status \$?\""
    echo "expected: $2" >> "$1"
    grep -qE "$2" "$1" && grep -q '^exit status 1$' "$1" && [ "$(wc -l < "$1")" = 3 ]
}

no_gpu() {
    refuses "$1" '^no GPU: there is no CUDA driver: ' 'BUILD=build-gpu tests/gpu/run /root/none'
}

no_nccl() {
    refuses "$1" '^1 GPUs, .* no NCCL: there is no NCCL: ' 'mkdir /root/driver; cp build-gpu/tests/gpu/libcuda.so.1 /root/driver
        LD_LIBRARY_PATH=/root/driver BUILD=build-gpu timeout 60 tests/gpu/run /root/none'
}

# As on a machine whose loader knows neither driver nor NCCL: the doubles lie where it does not look, and are taken for real. Two ranks
# share one GPU. The run is ended from without (SIGTERM) and still prints its table. What it could test is not looked at further: doubles
# are no GPUs.
found_anywhere() {
    in_root "$1" 'wheel=/opt/venv/lib/python3.12/site-packages/nvidia/nccl/lib
        mkdir -p /usr/local/nvidia/lib64 $wheel && cp build-gpu/tests/gpu/libcuda.so.1 /usr/local/nvidia/lib64/ &&
        cp build-gpu/tests/gpu/libnccl.so.2 $wheel && timeout 60 tests/gpu/first /root/found'
    grep -q '^first: libnccl.so.2 is in /opt/venv/' "$1" && grep -q '^first: libcuda.so.1 is in /usr/local/nvidia/' "$1" &&
        grep -qE '^\| two ranks  *\| (NCCL|both) ' "$1" && grep -q '^| test_gpu_communicator  *| NCCL ' "$1"
}

[ "$(id -u)" = 0 ] || skip 'needs root'
command -v mmdebstrap > /dev/null || skip 'needs mmdebstrap (apt-get install mmdebstrap)'
unshare -m -n true 2> /dev/null || skip 'the kernel allows no namespaces here'
[ -e "$bundle/gpu-prebuilt" ] || { echo "bare.sh: there is no $bundle: make gpu-bundle" >&2; exit 2; }
mkdir -p "$state" && rm -rf "$state/out"
if ! make_root > "$state/root.log" 2>&1; then
    sed 's/^/    # /' "$state/root.log"
    echo 'not ok - gpu bundle: no bare root can be made'
    exit 1
fi
try 'nothing to build with is there' nothing_to_build_with
try 'the first run: every step, none failed' first
try 'rows stay when the run is killed' killed
try 'without a GPU it fails' no_gpu
try 'without NCCL it fails' no_nccl
# The last one: the loader of this root then knows doubles as driver and NCCL.
try 'driver and NCCL are found where the loader does not look' found_anywhere
[ -n "${BARE_KEEP:-}" ] || rm -rf --one-file-system "${root:?}"
exit $failed
