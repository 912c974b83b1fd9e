#!/bin/bash
# tests/gpu/first where there is nothing but bash and coreutils, as on a machine that is lent with a GPU: a new root of Debian (minbase)
# without network, compiler, make or -dev packages, with the tree and a bundle, and the doubles in place of driver and NCCL.
#
#   BUILD=build tests/gpu/bare.sh      needs root, mmdebstrap, Debian's packages, and BUILD-gpu (make gpu-bundle)
#   CASE=word                          keeps the cases that have it in their names
#
# Prints TAP lines; what was written in the root lies in BUILD/bare. BARE_KEEP=1 leaves the root there.
# shellcheck disable=SC2016,SC2317,SC2329 # command lines are of the shell in the root; cases are called by their names
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

# Rows of steps that have to be there, with what did the work (a regular expression).
on_doubles='two ranks=NCCL|both
test_gpu_communicator=NCCL
test_gpu_fuse=NCCL
bench: 1 rank, worker=NCCL
bench: 2 ranks, worker=NCCL
training=NCCL
gpu_kinds=both
gpu_flow=both
gpu_trouble=both
gpu_arena=NCCL
what the driver does=-
registered memory=NCCL
memcheck of test_gpu_fuse=-
bench: 2 ranks, engine=NCCL
bench: 2 ranks, worker, MPS=NCCL
bench: 2 ranks, engine, MPS=NCCL
gpu_hosts=-
gpu_mps=-
the other topics=both
the other unit tests=.*'
# Ranks share a GPU; NCCL refuses that to the engine, which is one process.
on_one_gpu='two ranks=NCCL|both
test_gpu_communicator=NCCL
test_gpu_fuse=NCCL
bench: 1 rank, worker=NCCL
bench: 2 ranks, worker=NCCL
training=-
gpu_kinds=both
gpu_flow=both
gpu_trouble=both
gpu_arena=NCCL|both
what the driver does=-
registered memory=NCCL
memcheck of test_gpu_fuse=-
bench: 2 ranks, engine=host memory
bench: 2 ranks, MPS=-
gpu_hosts=-
gpu_mps=-
the other topics=.*
the other unit tests=.*'

the_table() { # FILE ROWS: each is there, by what it has to be, and no test failed
    awk -F '|' -v want="$2" '
        function trim(text) { gsub(/^ +| +$/, "", text); return text }
        NF == 8 { by[trim($2)] = trim($3) }
        NF == 8 && $5 + 0 { print "failed: " $0; bad = 1 }
        END {
            n = split(want, row, "\n")
            for (i = 1; i <= n; i++) {
                split(row[i], part, "=")
                if (!(part[1] in by)) { print "no row: " part[1]; bad = 1 }
                else if (by[part[1]] !~ "^(" part[2] ")$") { print part[1] " is by " by[part[1]] ", not " part[2]; bad = 1 }
            }
            exit bad
        }' "$1"
}

few_files() { # in what comes back
    [ "$(find "$root/root/out" -type f | wc -l)" -le 8 ] && [ -z "$(find "$root/root/out" -mindepth 1 -type d -o -size +16384k)" ]
}

first() {
    local status
    in_root "$1" 'tests/gpu/first --double /root/out'
    status=$?
    sed 's/^/# /' "$root/root/out/table.md"
    cp -r "$root/root/out" "$state/" && [ "$status" = 0 ] && the_table "$state/out/table.md" "$on_doubles" >> "$1" && few_files
}

# Ended when the first rows are there. SIGTERM: the table is printed. SIGKILL: the rows are in the file.
ended() {
    in_root "$1" 'for signal in TERM KILL; do
            tests/gpu/first --double /root/$signal &
            until grep -q "^| test_gpu_fuse" /root/$signal/table.md 2> /dev/null; do sleep 0.2; done
            kill -$signal $! && wait $!
        done
        cat /root/KILL/table.md'
    [ "$(grep -c '^| test_gpu_communicator  *| NCCL ' "$1")" = 2 ] && [ "$(grep -c '^ended from outside' "$1")" = 1 ]
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

# As on a machine with one GPU whose loader knows neither driver nor NCCL: the doubles lie where it does not look, and are taken for
# real. The CUDA Toolkit, which train_cuda needs, has no double there.
as_real() {
    in_root "$1" 'wheel=/opt/venv/lib/python3.12/site-packages/nvidia/nccl/lib
        rm build-gpu/examples/train_cuda
        mkdir -p /usr/local/nvidia/lib64 $wheel && cp build-gpu/tests/gpu/libcuda.so.1 /usr/local/nvidia/lib64/ &&
        cp build-gpu/tests/gpu/libnccl.so.2 $wheel && GPU_BENCH="--few --sizes 4K" tests/gpu/first /root/real'
    grep -q '^first: libnccl.so.2 is in /opt/venv/' "$1" && grep -q '^first: libcuda.so.1 is in /usr/local/nvidia/' "$1" &&
        the_table "$root/root/real/table.md" "$on_one_gpu" >> "$1" && [ -s "$root/root/real/figures.txt" ]
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
try 'rows stay however the run is ended' ended
try 'without a GPU it fails' no_gpu
try 'without NCCL it fails' no_nccl
# The last one: the loader of this root then knows doubles as driver and NCCL.
try 'driver and NCCL are found where the loader does not look, and used' as_real
[ -n "${BARE_KEEP:-}" ] || rm -rf --one-file-system "${root:?}"
exit $failed
