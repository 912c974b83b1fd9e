#!/bin/bash
# The tests of the Python package: each module test_NAME.py runs as a job of 1, 2 and 4 ranks. Prints one TAP line a job; exit status 1
# when one of them is "not ok".
#
#   BUILD=build python/tests/run.sh quick|all
#   TESTS="arrays handles"  keeps modules that have one of the words in their names
#   PYTHON, SANITIZE        see interpreter.sh
#
# `all` also runs the jobs of 2 ranks with Python's debug allocator, which finds writes beyond a block and uses after its end.
#
# A module may say, in comments at the beginning of lines:
#   # RANKS = 2 4    numbers of ranks (1 2 4); 0 is without hvdrun: the module starts jobs itself
#   # LIMIT = 60     seconds for a job (60); then hvdrun prints where each rank is
#   # SLOW = True    left out of `quick`
#   # JOB = torch    runs in one job with the others of that word: what they import takes long
# And a test may be left out of `quick`, which the ranks see in HVD_QUICK_TESTS.
set -u

mode=${1:-quick}
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
BUILD=$(realpath -m "${BUILD:-$top/build}")
failed=0
out=$(mktemp) || exit 2
trap 'rm -f "$out"' EXIT
export BUILD HVD_QUICK_TESTS=
[ "$mode" != quick ] || HVD_QUICK_TESTS=1
# shellcheck source=python/tests/interpreter.sh
. "$top/python/tests/interpreter.sh"
factor=1
[ -z "${SANITIZE:-}" ] || factor=5

setting() { # FILE NAME DEFAULT
    local value
    value=$(sed -n "s/^# $2 = //p" "$1" | head -n 1)
    echo "${value:-$3}"
}

wanted() { # FILE
    local word
    [ "$mode" = all ] || [ "$(setting "$1" SLOW False)" = False ] || return 1
    [ -n "${TESTS:-}" ] || return 0
    for word in $TESTS; do
        case $(basename "$1") in *"$word"*) return 0 ;; esac
    done
    return 1
}

run_job() { # NAME RANKS LIMIT VARIABLE... -- FILE...
    local name="$1 with $2 ranks" limit=$3 status start=() variables=()
    limit=$((limit * factor))
    [ "$2" = 0 ] || start=("$BUILD/hvdrun" --timeout "$limit" -np "$2")
    shift 3
    for (( ; $# > 0; )); do
        [ "$1" != -- ] || break
        variables+=("$1")
        shift
    done
    shift
    [ ${#variables[@]} = 0 ] || name+=" and ${variables[*]}"
    "$BUILD/tests/contain" $((limit + 20)) 5 "${start[@]}" env "${variables[@]}" "${python[@]}" "$top/python/tests/job.py" "$@" \
        > "$out" 2>&1 < /dev/null
    status=$?
    case $status in
    0)
        echo "ok - python: $name: $(sed -n 's/^ran //p' "$out" | head -n 1)"
        grep '^# ' "$out" | sed 's/^/    /' # figures
        ;;
    77) echo "ok - python: $name # SKIP $(sed -n 's/^skip //p' "$out" | head -n 1)" ;;
    *)
        failed=1
        echo "not ok - python: $name: exit status $status"
        { grep -m 3 -E 'ERROR: AddressSanitizer|runtime error:' "$out"; tail -n 30 "$out"; } | sed 's/^/    # /'
        ;;
    esac
}

run_jobs() { # NAME FILE...: one for each number of ranks
    local name=$1 ranks file limit=0
    shift
    for file; do limit=$((limit + $(setting "$file" LIMIT 60))); done
    for ranks in $(setting "$1" RANKS '1 2 4'); do
        run_job "$name" "$ranks" "$limit" -- "$@"
        [ "$mode" != all ] || [ "$ranks" != 2 ] || [ -n "${SANITIZE:-}" ] || run_job "$name" 2 "$((limit * 2))" PYTHONMALLOC=debug -- "$@"
    done
}

if [ ! -e "$BUILD/python/hvdrun/_hvd.abi3.so" ]; then
    echo "ok - python # SKIP the Python package was left out of this build (python3-dev)"
    exit 0
fi
declare -A shared # the files of each word of JOB
for file in "$top"/python/tests/test_*.py; do
    wanted "$file" || continue
    job=$(setting "$file" JOB '')
    if [ -n "$job" ]; then
        shared[$job]+="$file "
    else
        run_jobs "$(basename "$file" .py)" "$file"
    fi
done
for job in "${!shared[@]}"; do
    read -ra files <<< "${shared[$job]}"
    run_jobs "tests of $job" "${files[@]}"
done
exit $failed
