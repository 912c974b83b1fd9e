#!/bin/bash
# Runs suites of tests and ends in one line: N passed, N failed, N skipped. Exit status 1 when something failed.
#
#   BUILD=build tests/run.sh SUITE,SUITE...+SUITE... ...
#
# The suites: unit sim structure e2e e2e-all faults-quick faults soak countdown countdown-all lint asan tsan fuzz fuzz-programs fresh;
# e2e:LANE and e2e-all:LANE are a part of the topics (tests/e2e/run.sh). Arguments are run one after the other. One with `+` in it is
# lanes beside one another, as most of the tests' time is waiting; what is measured in milliseconds stands in a lane alone.
# Their output comes lane by lane.
#
# Each suite prints lines in the form of TAP: `ok - NAME`, `not ok - NAME`, `ok - NAME # SKIP why`; other lines are for the
# reader. TESTS="word word" keeps the unit tests and end-to-end topics whose names contain one of the words.
set -u

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2
build=$(realpath -m "${BUILD:-build}")
work=$(mktemp -d "${TMPDIR:-/tmp}/hvd-check.XXXXXX") || exit 2
lanes=()
# shellcheck disable=SC2317,SC2329 # called by the trap
stop_lanes() { # and wait until they have taken down their hosts
    local lane
    for lane in "${lanes[@]}"; do kill -TERM -- "-$lane"; done
    for lane in "${lanes[@]}"; do while kill -0 -- "-$lane"; do sleep 0.1; done; done
} 2> /dev/null
trap 'rm -rf "$work"' EXIT
trap 'stop_lanes; exit 130' INT TERM
export BUILD=$build TEST_TIMES=$work/times # lines: milliseconds, name
unset HVD_RANK HVD_SIZE CK_FORK CK_RUN_CASE CK_RUN_SUITE

if [ -n "${SANITIZE:-}" ]; then
    export CK_TIMEOUT_MULTIPLIER=6
    export ASAN_OPTIONS="${ASAN_OPTIONS:-handle_segv=0:handle_abort=0:detect_leaks=1}"
    export LSAN_OPTIONS="${LSAN_OPTIONS:-suppressions=$PWD/tests/leaks.txt:print_suppressions=0}"
    export UBSAN_OPTIONS="${UBSAN_OPTIONS:-halt_on_error=1:print_stacktrace=1}"
    export TSAN_OPTIONS="${TSAN_OPTIONS:-halt_on_error=1:second_deadlock_stack=1:die_after_fork=0}"
fi

wanted() { # NAME
    local word
    [ -n "${TESTS:-}" ] || return 0
    for word in $TESTS; do
        case $1 in *"$word"*) return 0 ;; esac
    done
    return 1
}

# A Check program's own list of results (its TAP file), or its standard output when it prints TAP itself.
print_tap() { # NAME TAPFILE
    sed -nE "s/^(not )?ok [0-9]+ -? ?(.*)/\1ok - $1: \2/p" "$2" | sed -E '/^ok/s/: Passed$//'
}

unit_program() { # NAME
    local name=$1 status tap=$work/$1.tap out=$work/$1.out limit=120 began=${EPOCHREALTIME/./}
    [ -z "${SANITIZE:-}" ] || limit=400
    if [ ! -x "$build/tests/$name" ]; then
        echo "not ok - $name: not built"
        return
    fi
    # Tests of GPUs get the doubles of CUDA and NCCL, but for tests/gpu/run, which has them run with the real ones.
    local libraries=${LD_LIBRARY_PATH:-}
    case $name in test_gpu_*) [ -n "${REAL_GPU:-}" ] || libraries=$build/tests/gpu${libraries:+:$libraries} ;; esac
    LD_LIBRARY_PATH=$libraries CK_TAP_LOG_FILE_NAME=$tap timeout -k 5 "$limit" "$build/tests/$name" > "$out" 2>&1 < /dev/null
    status=$?
    echo "$(((${EPOCHREALTIME/./} - began) / 1000)) $name" >> "$TEST_TIMES"
    if [ "$status" = 77 ]; then
        echo "ok - $name # SKIP $(tail -n 1 "$out")"
        return
    fi
    [ -s "$tap" ] || tap=$out
    print_tap "$name" "$tap" > "$work/$name.results"
    cat "$work/$name.results"
    if [ "$status" != 0 ] && ! grep -q '^not ok' "$work/$name.results"; then
        if [ "$status" = 124 ]; then
            echo "not ok - $name: still running after $limit s"
        else
            echo "not ok - $name: exit status $status"
        fi
    elif [ "$status" = 0 ] && ! [ -s "$work/$name.results" ]; then
        echo "not ok - $name: no test ran"
    fi
    if [ "$status" != 0 ]; then sed 's/^/    # /' "$out" | tail -n 60; fi
}

suite_unit() {
    local file name
    for file in tests/unit/test_*.c; do
        name=$(basename "$file" .c)
        ! wanted "$name" || unit_program "$name"
    done
}

# Thousands of runs of the collectives under a simulated clock and network (tests/sim).
suite_sim() {
    echo "# what fails: $build/tests/sim --seed N --verbose"
    timeout -k 5 600 "$build/tests/sim" --seeds "${SEEDS:-1..1000}" | sed -E 's/^((not )?ok - )/\1simulation: /'
    return "${PIPESTATUS[0]}"
}

suite_structure() {
    "$build/tests/structure" --self-test tests/structure/samples && "$build/tests/structure" --build "$build" .
}

# A suite that is a make target of its own (sanitizers, fuzzers, lint): its lines, and a failure when make itself fails.
suite_make() { # TARGET
    make --no-print-directory BUILD="$build" -j"$(nproc)" "$1" > "$work/make.out" 2>&1
    local status=$?
    grep -E '^(not )?ok - ' "$work/make.out" | sed -E "s/^((not )?ok - )/\1$1: /"
    if [ $status != 0 ] && ! grep -q '^not ok - ' "$work/make.out"; then
        echo "not ok - $1: make failed"
    elif ! grep -qE '^(not )?ok - ' "$work/make.out"; then
        echo "not ok - $1: no test ran"
    fi
    [ $status = 0 ] || tail -n 40 "$work/make.out" | grep -vE '^(not )?ok - ' | sed 's/^/    # /'
}

suite_countdown() {
    local words
    read -ra words <<< "${SERIES:-}"
    "$build/tests/countdown-run" "$build" 1 "${LANES:-4}" "${words[@]}"
}

suite() { # NAME
    case $1 in
    unit) suite_unit ;;
    sim) suite_sim ;;
    structure) suite_structure ;;
    e2e) tests/e2e/run.sh quick ;;
    e2e:*) LANE=${1#*:} tests/e2e/run.sh quick ;;
    e2e-all) tests/e2e/run.sh all ;;
    e2e-all:*) LANE=${1#*:} tests/e2e/run.sh all ;;
    faults-quick) tests/faults/run.sh quick ;;
    faults) tests/faults/run.sh all ;;
    countdown) "$build/tests/countdown-run" "$build" 3 4 'io, malloc of hvdrun' 'io, malloc of session' ;;
    countdown-all) suite_countdown ;;
    soak) tests/soak.sh ;;
    fresh) tests/fresh.sh ;;
    fuzz-programs) tests/fuzz/run.sh ;;
    lint) suite_make lint-run ;;
    asan | tsan | fuzz) suite_make "$1-run" ;;
    *) echo "not ok - unknown suite $1" ;;
    esac
}

lane() { # SUITE,SUITE...
    local name status began
    for name in ${1//,/ }; do
        began=$SECONDS
        echo "== $name"
        suite "$name" 2>&1 | tee "$work/$name.suite"
        status=${PIPESTATUS[0]}
        # 1 is also the status of a suite that has said so in its lines; others are a crash, a time-out or a misuse.
        if [ "$status" -gt 1 ] || { [ "$status" = 1 ] && ! grep -q '^not ok - ' "$work/$name.suite"; }; then
            echo "not ok - $name: the suite itself failed (exit status $status)"
        fi
        echo "# $name: $((SECONDS - began)) s"
    done
}

beside() { # LANE+LANE...
    local words word k
    IFS=+ read -ra words <<< "$1"
    lanes=()
    set -m # each lane is a process group, which can be ended
    for word in "${words[@]}"; do
        : > "$work/lane${#lanes[@]}"
        lane "$word" > "$work/lane${#lanes[@]}" 2>&1 < /dev/null &
        lanes+=($!)
    done
    set +m
    for k in "${!lanes[@]}"; do
        tail -n +1 -s 0.2 -f --pid "${lanes[k]}" "$work/lane$k" &
        wait $!
        unset "lanes[k]" # its number may be another's soon
        cat "$work/lane$k" >> "$work/all"
    done
}

started=$SECONDS
: > "$work/all"
: > "$TEST_TIMES"
for argument in "${@:-unit}"; do
    beside "$argument"
done

echo '== the slowest, in ms'
sort -rn "$TEST_TIMES" | head -n 15
skipped=$(grep -cE '^ok - .* # SKIP' "$work/all")
passed=$(($(grep -cE '^ok - ' "$work/all") - skipped))
failed=$(grep -cE '^not ok - ' "$work/all")
if [ "$failed" != 0 ]; then
    echo "== failed"
    grep -E '^not ok - ' "$work/all"
fi
echo "== $((SECONDS - started)) s"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ] && [ "$passed" != 0 ]
