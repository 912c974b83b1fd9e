#!/bin/bash
# Installs the wheels of BUILD/dist as people do, and runs jobs from them: BUILD=build tests/wheel.sh. `make check-wheel` makes the
# wheels first. CASE=word keeps the cases with that word in their names.
#
# Most cases use a venv of Debian's python3, and no network. The last one installs in a new root of Debian that has python3-venv, no
# compiler and none of our libraries; it needs root and mmdebstrap. Prints one TAP line a case.
# shellcheck disable=SC2317,SC2329 # cases are called by their names
set -u

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2
build=$(realpath -m "${BUILD:-build}")
python=${PYTHON:-/usr/bin/python3}
main=$(echo "$build"/dist/hvdrun-*.whl) names=$(echo "$build"/dist/hvdrun_horovod-*.whl)
work=$(mktemp -d) || exit 2
trap 'rm -rf --one-file-system "$work"' EXIT
failed=0
export PIP_NO_INDEX=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_QUIET=1 PYTHONDONTWRITEBYTECODE=1
unset PYTHONPATH PIP_FIND_LINKS

fail() {
    echo "$1" >&2
    exit 1
}

make_venv() { # [ARGUMENT]...: $venv, with pip
    venv=$T/venv
    "$python" -m venv "$@" "$venv" || fail 'no venv can be made'
    cp tests/wheel/*.py "$T"
}

# Nothing of this machine but its Python and a shell: no compiler, no library of ours.
in_venv() { # COMMAND...
    mkdir -p "$T/tools"
    ln -sf /bin/sh "$T/tools/sh"
    (cd "$T" && exec env -i "HOME=$T" "PATH=$venv/bin:$T/tools" LANG=C.UTF-8 "PIP_NO_INDEX=1" "PIP_FIND_LINKS=$build/dist" "$@")
}

expect() { # PATTERN FILE
    grep -qE -- "$1" "$2" || { sed 's/^/    /' "$2" >&2; fail "no line matches $1"; }
}

case_a_job_in_a_venv() {
    make_venv
    in_venv pip install "$names" "$main" || fail 'pip fails'
    in_venv horovodrun -np 2 python sum.py > "$T/out" 2>&1 || { cat "$T/out" >&2; fail 'the job fails'; }
    expect 'rank 0 of 2: 3\.0' "$T/out"
    expect 'rank 1 of 2: 3\.0' "$T/out"
}

# Every module opens, by libraries beside it. The managed agent is left out.
case_every_module_opens() {
    make_venv
    in_venv pip install "$main" || fail 'pip fails'
    in_venv hvdrun --check-build > "$T/out" || fail 'hvdrun fails'
    local name
    for name in ssh hvdagent hvd-engine auth tls gloo topology metrics yaml; do expect "\\[X\\] $name +$venv/" "$T/out"; done
    expect '\[ \] systemd +this build has no the managed agent' "$T/out"
    ldd "$venv"/lib/hvd/*.so | awk '$2 == "=>" { print $1, $3 }' | grep -vE "^(libc|libm|libdl|libpthread|librt|ld-linux[^ ]*)\\.so|$venv/lib/hvd/" > "$T/others"
    [ ! -s "$T/others" ] || { cat "$T/others" >&2; fail 'libraries of this machine are used'; }
}

# pip must choose by itself: no wheel for a Python before 3.11, or without the GIL.
case_other_pythons_are_refused() {
    make_venv
    in_venv pip download --no-deps --only-binary :all: -d "$T/a" --python-version 3.13 hvdrun || fail '3.13 is refused'
    # A pip that can belong to a free-threaded Python knows that the stable ABI is not for these.
    local words list=('--python-version 3.10') version
    version=$("$venv/bin/pip" --version | cut -d' ' -f2)
    [ "$(printf '%s\n' 24.1 "$version" | sort -V | head -n 1)" != 24.1 ] || list+=('--python-version 3.13 --implementation cp --abi cp313t')
    for words in "${list[@]}"; do
        # shellcheck disable=SC2086 # words
        in_venv pip download --no-deps --only-binary :all: -d "$T/b" $words hvdrun > "$T/out" 2>&1 && fail "taken with $words"
        expect 'No matching distribution found for hvdrun|requires a different Python' "$T/out"
    done
}

make_stock() { # a wheel with the name and the files of stock Horovod, as far as they matter
    local root=$T/stock info=$T/stock/horovod-0.28.1.dist-info
    mkdir -p "$root/horovod/runner" "$root/horovod/torch" "$info"
    echo 'print("stock")' | tee "$root/horovod/__init__.py" "$root/horovod/torch/__init__.py" > "$root/horovod/runner/__init__.py"
    : > "$root/horovod/runner/mpi_run.py"
    printf '%s\n' 'Metadata-Version: 2.1' 'Name: horovod' 'Version: 0.28.1' > "$info/METADATA"
    printf '%s\n' 'Wheel-Version: 1.0' 'Generator: test' 'Root-Is-Purelib: true' 'Tag: py3-none-any' > "$info/WHEEL"
    "$python" -m wheel pack "$root" -d "$T" > "$T/pack.out"
}

expect_mixture() { # one line, which names both, and whose command mends
    in_venv python -c 'import horovod' > "$T/out" 2>&1 && fail 'a mixture is imported'
    expect "^ImportError: files of Horovod 0\\.28\\.1 and of hvdrun-horovod are mixed in $venv/.*/horovod: run " "$T/out"
    grep -q '^stock' "$T/out" && fail 'code of the mixture runs'
    in_venv sh -c "$(sed -n 's/^ImportError: .*: run //p' "$T/out")" || fail 'the command fails'
    in_venv horovodrun -np 1 python -c 'import horovod; print(horovod.run)' > "$T/out" 2>&1 || { cat "$T/out" >&2; fail 'not mended'; }
}

case_stock_horovod_first() {
    make_venv
    make_stock
    in_venv pip install "$T"/horovod-*.whl || fail 'pip fails'
    in_venv pip install "$names" "$main" || fail 'pip fails'
    expect_mixture
}

case_stock_horovod_last() {
    make_venv
    make_stock
    in_venv pip install "$names" "$main" || fail 'pip fails'
    in_venv pip install "$T"/horovod-*.whl || fail 'pip fails'
    expect_mixture
}

# The same files below a user's own directory.
case_user() {
    export PYTHONUSERBASE=$T/base
    "$python" -m pip install --user --break-system-packages --no-warn-script-location "$names" "$main" || fail 'pip --user fails'
    cp tests/wheel/sum.py "$T"
    "$T/base/bin/horovodrun" -np 2 "$python" "$T/sum.py" > "$T/out" 2>&1 || { cat "$T/out" >&2; fail 'the job fails'; }
    expect 'rank 1 of 2: 3\.0' "$T/out"
}

# A program in C, with the wheel's header and library.
case_a_worker_in_c() {
    make_venv
    in_venv pip install "$main" || fail 'pip fails'
    printf '%s\n' '#include <hvd.h>' '#include <stdio.h>' 'int main(void) { if (hvd_init() != HVD_SUCCESS) return 1;' \
        'printf("rank %d\n", hvd_rank()); return hvd_shutdown(); }' > "$T/worker.c"
    # shellcheck disable=SC2046 # words
    gcc -o "$T/worker" "$T/worker.c" $(PKG_CONFIG_PATH=$venv/lib/pkgconfig pkg-config --cflags --libs hvd) || fail 'gcc fails'
    in_venv hvdrun -np 2 "$T/worker" > "$T/out" 2>&1 || { cat "$T/out" >&2; fail 'the job fails'; }
    expect 'rank 1' "$T/out"
}

# MPI programs with the machine's libpmix.
case_an_mpi_program() {
    command -v mpicc.openmpi > /dev/null || { echo 'OpenMPI is not installed' >&2; exit 77; }
    make_venv
    in_venv pip install "$main" || fail 'pip fails'
    mpicc.openmpi -o "$T/ring" tests/neighbours/mpi_ring.c || fail 'mpicc fails'
    in_venv hvdrun --check-build > "$T/out" || fail 'hvdrun fails'
    expect "\\[X\\] hvd-pmix +$venv/" "$T/out"
    in_venv hvdrun -np 2 "$T/ring" > "$T/out" 2>&1 || { cat "$T/out" >&2; fail 'the job fails'; }
    expect '^0/2 good' "$T/out"
    expect '^1/2 good' "$T/out"
}

example() { # NAME ARGUMENT...
    in_venv horovodrun -np 2 python "$PWD/examples/python/$1" "${@:2}" > "$T/out" 2>&1 || { cat "$T/out" >&2; fail "$1 fails"; }
}

needs_module() { # NAME PACKAGE: of the machine's Python
    "$python" -c "import importlib.util as u, sys; sys.exit(u.find_spec('$1') is None)" || { echo "$2 is not installed" >&2; exit 77; }
}

case_examples() {
    needs_module torch python3-torch
    needs_module sklearn python3-sklearn
    make_venv --system-site-packages
    in_venv pip install "$names" "$main" || fail 'pip fails'
    example line.py --points 1000
    expect '^slope=[12]\.' "$T/out"
    example train_text.py --steps 5
    expect '^step 5 loss=4\.1115' "$T/out"
    example language_model.py --steps 10 --write 20
    expect '^step 10 loss=' "$T/out"
    example digits.py --epochs 2
    expect '^epoch 2 loss=[0-9.]+ right=2[0-9][0-9]/297' "$T/out"
}

# A machine of somebody else: no network, no compiler, no library that a module needs.
case_a_bare_root() {
    [ "$(id -u)" = 0 ] && command -v mmdebstrap > /dev/null || { echo 'needs root and mmdebstrap' >&2; exit 77; }
    mkdir "$T/root" && chmod 755 "$T" "$T/root"
    mmdebstrap --quiet --variant=minbase --include=python3-venv bookworm "$T/root.tar" || { echo 'no new root of Debian can be made' >&2; exit 77; }
    tar -C "$T/root" -xf "$T/root.tar" && cp "$main" "$names" tests/wheel/sum.py "$T/root/root/" || fail 'the root cannot be filled'
    # shellcheck disable=SC2016 # of the inner shell
    unshare -m -u -i -p -n --fork --kill-child=SIGKILL tests/enter_root.sh "$T/root" env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin \
        bash -ec 'cd /root; ip link set lo up 2> /dev/null || :
            ! command -v gcc; python3 -m venv v; v/bin/pip install -q --no-index *.whl; . v/bin/activate
            hvdrun --check-build; horovodrun -np 2 python sum.py
            ! hvdrun --rendezvous pmix -np 2 true 2> pmix.err; sed "s/^/pmix: /" pmix.err' > "$T/out" 2>&1 || { cat "$T/out" >&2; fail 'the root fails'; }
    expect 'rank 1 of 2: 3\.0' "$T/out"
    local name
    for name in ssh auth tls gloo topology metrics yaml; do expect "\\[X\\] $name " "$T/out"; done
    expect '\[ \] hvd-pmix +.*libpmix' "$T/out"
    expect '^pmix: .*libpmix\.so' "$T/out" # the loader's own line, a sentence, a hint
    expect '^pmix: hvdrun: localhost: the PMIx server cannot start: ' "$T/out"
    expect '^pmix: hvdrun: hint: install libpmix2' "$T/out"
    [ "$(grep -c '^pmix: ' "$T/out")" = 3 ] || { cat "$T/out" >&2; fail 'a job that needs PMIx says more than that'; }
}

[ -e "$main" ] && [ -e "$names" ] || { echo "not ok - wheel: there are no wheels in $build/dist: make wheel"; exit 1; }
for name in $(compgen -A function case_); do
    [[ $name == *${CASE:-}* ]] || continue
    export T=$work/$name
    mkdir "$T"
    ("$name") > "$work/$name.out" 2>&1
    case $? in
    0) echo "ok - wheel: ${name#case_}" ;;
    77) echo "ok - wheel: ${name#case_} # SKIP $(tail -n 1 "$work/$name.out")" ;;
    *)
        failed=1
        echo "not ok - wheel: ${name#case_}"
        sed 's/^/    # /' "$work/$name.out" | tail -n 40
        ;;
    esac
    rm -rf --one-file-system "$T"
done
exit $failed
