#!/bin/bash
# Runs suites of tests and ends in one line: N passed, N failed, N skipped. Exit status 1 when something failed.
#
#   BUILD=build tests/run.sh SUITE,SUITE...+SUITE... ...
#
# The suites: unit sim structure e2e e2e-all faults-quick faults soak countdown countdown-all lint asan tsan fuzz fuzz-programs
# compatible gpu-bundle fresh python python-all frameworks wheel deb rpm release versions cross; e2e:LANE and e2e-all:LANE are a part of the topics (tests/e2e/run.sh). Arguments are
# run one after the other. One with `+` in it is lanes beside one another, as most of the tests' time is waiting; what is measured in
# milliseconds stands in a lane alone.
#
# Each suite prints lines in the form of TAP: `ok - NAME`, `not ok - NAME`, `ok - NAME # SKIP why`; other lines are for the
# reader. Shown are failures with what follows them, how far the tests are, and sums (tests/progress.sh); all lines are in CHECK_LOG
# (BUILD/check.log). VERBOSE=1 shows them all, lane by lane. TESTS="word word" keeps the unit tests and end-to-end topics whose names
# contain one of the words.
#
# ^C, SIGTERM, SIGHUP and the end of make end this program and everything below it (tests/contain.c).
set -u

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2
build=$(realpath -m "${BUILD:-build}")
contain=$build/tests/contain
[ -x "$contain" ] || { echo "run.sh: there is no $contain: run make first" >&2; exit 2; }
[ -n "${RUN_CONTAINED:-}" ] || RUN_CONTAINED=1 exec "$contain" 0 60 tests/run.sh "$@"
trap 'exit 130' INT TERM HUP
trap 'rm -rf "${work:-}"' EXIT
# Paths of sockets are short: this is not below TMPDIR.
work=$(mktemp -d /tmp/hvdc.XXXXXX) || exit 2
log=${CHECK_LOG:-$build/check.log}
mkdir "$work/t" && mkdir -m 700 "$work/run" || exit 2
# shellcheck source=tests/progress.sh
. tests/progress.sh
# shellcheck source=tests/gpu/limits.sh
. tests/gpu/limits.sh

# Cgroups of jobs whose guard and session a test had killed when it was ended itself. That of a job that lives is locked.
# shellcheck disable=SC2317,SC2329 # called by the trap
remove_cgroups() {
    local dir own
    own=$(sed -n 's/^0:://p' /proc/self/cgroup)
    for dir in "/sys/fs/cgroup$own"/hvdjob-* "/sys/fs/cgroup/unified$own"/hvdjob-*; do
        [ ! "$dir" -nt "$work/run" ] || flock -n "$dir" find "$dir" -depth -type d -exec rmdir {} \;
    done
    # And that of a test that keeps its jobs apart: the name ends with its process. What is left of its jobs is killed.
    for dir in "/sys/fs/cgroup$own"/test-apart-* "/sys/fs/cgroup/unified$own"/test-apart-*; do
        if [ "$dir" -nt "$work/run" ] && [ ! -e "/proc/${dir##*-}" ]; then
            echo 1 > "$dir/cgroup.kill"
            for _ in 1 2 3 4 5 6 7 8 9 10; do
                ! grep -qx 'populated 0' "$dir/cgroup.events" || break
                sleep 0.2
            done
            find "$dir" -depth -type d -exec rmdir {} \;
        fi
    done
}

# Lanes and what they run have got the signal as well.
# shellcheck disable=SC2317,SC2329 # called by the trap
stop() {
    trap '' INT TERM HUP
    local until=$((SECONDS + 15)) lanes
    while lanes=$(jobs -rp) && [ -n "$lanes" ]; do
        read -r -t 0.2 -u 7 _ || :
        # A lane that was between two programs may have missed the signal; one that still takes its hosts down needs seconds.
        # shellcheck disable=SC2086 # words
        [ $SECONDS -lt $until ] || kill $lanes
        # shellcheck disable=SC2086
        [ $SECONDS -lt $((until + 10)) ] || kill -KILL $lanes
    done
    remove_cgroups
    # One test has programs of its own beside those of the build.
    find "$build/tests" -mindepth 1 -maxdepth 1 -type d -name 'hostile-??????' -newer "$work/run" -exec rm -rf {} +
    cat "$work"/lane? >> "$log"
    say "interrupted: $passed passed, $failed failed, $skipped skipped; every line is in $log"
    exit 130
} 2> /dev/null
trap stop INT TERM HUP
export BUILD=$build TMPDIR=$work/t TEST_TIMES=$work/times # lines: milliseconds, name
export TEMP=$TMPDIR # of Check: a test program that a signal ends may not have removed its file yet
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

# A Check program's own list of results (its TAP file), or its standard output when it prints TAP itself. The rounds of a loop test
# are one line.
print_tap() { # NAME TAPFILE
    sed -nE "s/^(not )?ok [0-9]+ -? ?(.*)/\1ok - $1: \2/p" "$2" | sed -E '/^ok/s/: Passed$//' |
        awk 'function put() { if (n) print last (n > 1 ? " (" n " times)" : "") }
            { if ($0 != last) { put(); n = 0; last = $0 } n++ }
            END { put() }'
}

unit_program() { # NAME
    local name=$1 status tap=$work/$1.tap out=$work/$1.out limit=240 began=${EPOCHREALTIME/./} # each test has its own limit
    case $name in test_gpu_*) limit=$(gpu_limit program_s) ;; esac
    [ -z "${SANITIZE:-}" ] || limit=400
    [ "$name" != test_names ] || [ -z "${NAMES:-}" ] || limit=3600
    if [ ! -x "$build/tests/$name" ]; then
        echo "not ok - $name: not built"
        return
    fi
    # Tests of GPUs get the doubles of CUDA and NCCL, but for tests/gpu/run, which has them run with the real ones.
    local libraries=${LD_LIBRARY_PATH:-}
    case $name in test_gpu_*) [ -n "${REAL_GPU:-}" ] || libraries=$build/tests/gpu${libraries:+:$libraries} ;; esac
    LD_LIBRARY_PATH=$libraries CK_TAP_LOG_FILE_NAME=$tap XDG_RUNTIME_DIR=$work/run \
        "$contain" "$limit" 5 "$build/tests/$name" > "$out" 2>&1 < /dev/null
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
    for file in $(find tests/unit -name 'test_*.c' | sort); do
        name=$(basename "$file" .c)
        wanted "$name" || continue
        echo "# begin $name"
        unit_program "$name"
        echo "# end $name"
    done
}

# Thousands of runs of the collectives under a simulated clock and network (tests/sim).
suite_sim() {
    echo "# what fails: $build/tests/sim --seed N --verbose"
    {
        "$contain" 600 5 "$build/tests/sim" --seeds "${SEEDS:-1..1000}" &&
            "$contain" 600 5 "$build/tests/sim" --elastic --seeds "${SEEDS:-1..600}" &&
            for hosts in 4 16 64 128; do "$contain" 60 5 "$build/tests/sim-many" --agreement "$hosts" || exit 1; done
    } | sed -E 's/^((not )?ok - )/\1simulation: /'
    return "${PIPESTATUS[0]}"
}

suite_structure() {
    "$build/tests/structure" --self-test tests/structure/samples && "$build/tests/structure" --build "$build" .
}

# A suite that is a make target of its own (sanitizers, fuzzers, lint): its lines, and a failure when make itself fails.
suite_make() { # TARGET
    VERBOSE=1 make --no-print-directory BUILD="$build" -j"$(nproc)" "$1" 2>&1 | tee "$work/make.out" |
        grep --line-buffered -E '^(not )?ok - |^    # ' | sed -uE "s/^((not )?ok - )/\1$1: /"
    local status=${PIPESTATUS[0]}
    if [ "$status" != 0 ] && ! grep -q '^not ok - ' "$work/make.out"; then
        echo "not ok - $1: make failed"
        tail -n 40 "$work/make.out" | sed 's/^/    # /'
    elif ! grep -qE '^(not )?ok - ' "$work/make.out"; then
        echo "not ok - $1: no test ran"
    fi
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
    fresh-clang) tests/fresh.sh clang ;;
    gpu-bundle) tests/gpu/bare.sh ;;
    python) python/tests/run.sh quick ;;
    python-all) python/tests/run.sh all ;;
    frameworks) python/tests/frameworks.sh ;;
    wheel) tests/wheel.sh ;;
    deb) tests/deb.sh ;;
    rpm) tests/rpm.sh ;;
    release) tests/release.sh ;;
    cross) tests/cross.sh ;;
    versions) tests/versions/run.sh ;;
    fuzz-programs) tests/fuzz/run.sh ;;
    compatible) tests/compatible/run.sh ;;
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
        suite "$name" 2>&1 | tee "$work/${name//:/.}.suite"
        status=${PIPESTATUS[0]}
        # 1 is also the status of a suite that has said so in its lines; others are a crash, a time-out or a misuse.
        if [ "$status" -gt 1 ] || { [ "$status" = 1 ] && ! grep -q '^not ok - ' "$work/${name//:/.}.suite"; }; then
            echo "not ok - $name: the suite itself failed (exit status $status)"
            tail -n 20 "$work/${name//:/.}.suite" | sed 's/^/    # /'
        fi
        case $name in unit | e2e*) ;; *) echo "# end $name" ;; esac
        echo "# $name: $((SECONDS - began)) s"
    done
    echo '# over'
}

# A lane's lines, to its file and to who shows them. It ends when the lane has ended.
pass_on() { # LANE
    local line
    trap '' INT TERM HUP
    while IFS= read -r line; do
        printf '%s\n' "$line" >> "$work/lane$1"
        printf '%s\t%s\n' "$1" "${line:0:1000}" >&7 # in one write: other lanes do so too
    done
}

beside() { # LANE+LANE...
    local words word line part='' rest='' lanes=0 over=0
    IFS=+ read -ra words <<< "$1"
    new_lanes
    for word in "${words[@]}"; do
        : > "$work/lane$lanes"
        lane "$word" 2>&1 < /dev/null | pass_on $lanes &
        lanes=$((lanes + 1))
    done
    while [ $over -lt $lanes ]; do
        # A time-out in the middle of a line leaves its beginning, which must not be lost.
        if IFS= read -r -t 1 -u 7 part; then
            line=$rest$part
            rest=
            [ "${line#*$'\t'}" != '# over' ] || over=$((over + 1))
            take_line "${line%%$'\t'*}" "${line#*$'\t'}"
        else
            rest=$rest$part
        fi
        show_tests
    done
    wait
    cat "$work"/lane? >> "$log"
    rm "$work"/lane?
}

count_topics() { # SUITE: cases of the end-to-end tests in a lane
    awk -v suite="$1" -v words="${TESTS:-.sh}" -v part="${CASE:-}" '
        function finish(k) {
            if (suite ~ /:/ && suite !~ ":" (alone ? "alone" : hosts ? "hosts" : "local") "$") return
            for (k in word) if (index(topic, word[k])) { count += cases; return }
        }
        BEGIN { split(words, word) }
        FNR == 1 { finish(); cases = hosts = alone = 0; topic = FILENAME; sub(".*/", "", topic) }
        /^([a-z_]+=[^ ]* )*hosts=[1-9]/ { hosts = 1 }
        /^([a-z_]+=[^ ]* )*alone=1/ { alone = 1 }
        /^(case|slow)_[a-z0-9_]*\(\)/ && index($1, part) && (suite ~ /^e2e-all/ || !/^slow/) { cases++ }
        END { finish(); print count + 0 }' tests/e2e/topics/*.sh
}

count_steps() { # LANE+LANE...
    local suite file
    for suite in ${1//[,+]/ }; do
        case $suite in
        unit) for file in $(find tests/unit -name 'test_*.c' | sort); do ! wanted "$(basename "$file" .c)" || steps=$((steps + 1)); done ;;
        e2e*) steps=$((steps + $(count_topics "$suite"))) ;;
        *) steps=$((steps + 1)) ;;
        esac
    done
}

[ $# != 0 ] || set -- unit
for argument in "$@"; do count_steps "$argument"; done
last_run=$build/check.past.$(cksum <<< "$* ${TESTS:-} ${CASE:-}" | cut -d' ' -f1)
[ ! -e "$last_run" ] || mapfile -t past < "$last_run"
: > "$log"
: > "$TEST_TIMES"
mkfifo "$work/lines" && exec 7<> "$work/lines" || exit 2
for argument in "$@"; do beside "$argument"; done
printf '%s\n' "${step_times[@]}" "$(run_ms)" > "$last_run"
say_the_sum "$TEST_TIMES" "$log" | tee -a "$log"
[ "$failed" = 0 ] && [ "$passed" != 0 ]
