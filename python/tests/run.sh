#!/bin/bash
# The tests of the Python package: each module test_NAME.py runs as a job of 1, 2 and 4 ranks, all in one process each. Prints one TAP
# line a job; exit status 1 when one of them is "not ok".
#
#   BUILD=build python/tests/run.sh quick|all
#   TESTS="arrays handles"  keeps modules that have one of the words in their names
#   PYTHON=/usr/bin/python3 runs them, with the package in BUILD/python
#   SANITIZE=address,undefined  BUILD has such an extension: the ranks load the sanitizers' libraries first
#
# A module may say, in comments at the beginning of lines:
#   # RANKS = 2 4    numbers of ranks (1 2 4); 0 is without hvdrun: the module starts jobs itself
#   # LIMIT = 60     seconds for a job (30)
#   # SLOW = True    left out of `quick`
set -u

mode=${1:-quick}
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
BUILD=$(realpath -m "${BUILD:-$top/build}")
PYTHON=${PYTHON:-/usr/bin/python3}
failed=0
out=$(mktemp) || exit 2
trap 'rm -f "$out"' EXIT
export BUILD PYTHON PYTHONPATH=$BUILD/python PYTHONDONTWRITEBYTECODE=1 PYTHONFAULTHANDLER=1

setting() { # FILE NAME DEFAULT
    local value
    value=$(sed -n "s/^# $2 = //p" "$1" | head -n 1)
    echo "${value:-$3}"
}

wanted() { # NAME
    local word
    [ -n "${TESTS:-}" ] || return 0
    for word in $TESTS; do
        case $1 in *"$word"*) return 0 ;; esac
    done
    return 1
}

# A Python that was not built with sanitizers needs their libraries before all others. It has leaks of its own.
python=("$PYTHON")
if [ -n "${SANITIZE:-}" ]; then
    libraries=$(gcc -print-file-name=libasan.so):$(gcc -print-file-name=libubsan.so)
    python=(env "LD_PRELOAD=$libraries" ASAN_OPTIONS=detect_leaks=0:handle_segv=0:allocator_may_return_null=1
        PYTHONMALLOC=malloc "$PYTHON")
    LIMIT_FACTOR=5
fi

run_job() { # FILE RANKS LIMIT
    local status name start=()
    name=$(basename "$1" .py)
    [ "$2" = 0 ] || start=("$BUILD/hvdrun" -np "$2")
    "$BUILD/tests/contain" "$3" 5 "${start[@]}" "${python[@]}" "$top/python/tests/job.py" "$1" \
        > "$out" 2>&1 < /dev/null
    status=$?
    case $status in
    0) echo "ok - python: $name with $2 ranks: $(sed -n 's/^ran //p' "$out" | head -n 1)" ;;
    77) echo "ok - python: $name with $2 ranks # SKIP $(sed -n 's/^skip //p' "$out" | head -n 1)" ;;
    *)
        failed=1
        echo "not ok - python: $name with $2 ranks: exit status $status"
        { grep -m 3 -E 'ERROR: AddressSanitizer|runtime error:' "$out"; tail -n 30 "$out"; } | sed 's/^/    # /'
        ;;
    esac
}

if [ ! -e "$BUILD/python/hvdrun/_hvd.abi3.so" ]; then
    echo "ok - python # SKIP the Python package was left out of this build (python3-dev)"
    exit 0
fi
for file in "$top"/python/tests/test_*.py; do
    wanted "$(basename "$file" .py)" || continue
    [ "$mode" = all ] || [ "$(setting "$file" SLOW False)" = False ] || continue
    for ranks in $(setting "$file" RANKS '1 2 4'); do
        run_job "$file" "$ranks" "$(($(setting "$file" LIMIT 30) * ${LIMIT_FACTOR:-1}))"
    done
done
exit $failed
