# shellcheck shell=bash disable=SC2034,SC2154
# The output of a run of the tests (tests/run.sh), with unit tests that are scripts.

fake() { # NAME TEXT: the script's lines
    printf '#!/bin/sh\n%s\n' "$2" > "$T/build/tests/$1"
    chmod 755 "$T/build/tests/$1"
}

tests_run() { # [VARIABLE=VALUE]... [COMMAND of its own...]
    run env -u RUN_CONTAINED -u TEST_TIMES -u VERBOSE -u CHECK_LOG -u SANITIZE -u CASE TESTS='test_err test_hosts test_json' BUILD="$T/build" "$@"
}

prepare() { # they are in the order of their names
    mkdir -p "$T/build/tests"
    ln -s "$BUILD/tests/contain" "$T/build/tests/contain"
    # shellcheck disable=SC2016 # of the script
    fake test_err 'echo 1..4; for k in 1 2 3; do echo "ok $k - a.c:s:rounds: Passed"; done; echo "ok 4 - a.c:s:other: Passed"'
    fake test_hosts 'echo "ok 1 - a.c:s:good: Passed"; echo "not ok 2 - a.c:s:bad: 1 is not 2"; echo "what it said"; exit 1'
    fake test_json 'echo "no such thing here"; exit 77'
}

case_failures_skips_and_sums_are_shown_and_all_is_in_the_log() {
    prepare
    tests_run "$top/tests/run.sh" unit
    expect_status 1
    expect_same '3 passed, 1 failed, 1 skipped' "$(tail -n 1 "$T/out")" 'the last line'
    expect_no "$T/out" '^ok - '
    expect_no "$T/out" $'\r'
    expect_count 2 '^not ok - test_hosts: a.c:s:bad: 1 is not 2$' "$T/out" # at once, and in the end
    expect_out '^    # what it said$'
    expect_out '^   1  no such thing here \(test_json\)$'
    expect_out '^unit: 3 passed, 1 failed, 1 skipped, [0-9]+ s$'
    expect_out "^== .*; every line is in $T/build/check.log\$"
    expect_count 1 '^ok - test_err: a.c:s:rounds \(3 times\)$' "$T/build/check.log"
    expect_count 1 '^ok - test_hosts: a.c:s:good$' "$T/build/check.log"
    expect_count 1 '^ok - test_json # SKIP no such thing here$' "$T/build/check.log"

    tests_run VERBOSE=1 "$top/tests/run.sh" unit
    expect_count 1 '^ok - test_err: a.c:s:rounds \(3 times\)$' "$T/out"
    expect_count 1 '^ok - test_json # SKIP no such thing here$' "$T/out"
    expect_no "$T/out" '^# (begin|end|over)'
    expect_same '3 passed, 1 failed, 1 skipped' "$(tail -n 1 "$T/out")" 'the last line'
}

case_a_terminal_has_one_line_that_changes_and_says_what_is_left() {
    command -v script > /dev/null || skip 'no script here'
    prepare
    fake test_hosts 'sleep 2; echo "ok 1 - a.c:s:good: Passed"'
    tests_run script -qec "$top/tests/run.sh unit" /dev/null
    expect_status 0
    tr '\r' '\n' < "$T/out" > "$T/lines"
    grep -q '\[2/3\].*: test_hosts$' "$T/lines" || fail "it does not say what runs: $(cat -v "$T/out")"
    expect_no "$T/lines" 'left: '
    tests_run script -qec "$top/tests/run.sh unit" /dev/null
    tr '\r' '\n' < "$T/out" > "$T/lines"
    grep -qE '\[2/3\] [0-9] s, about [1-3] s left: test_hosts$' "$T/lines" || fail "it does not say what is left: $(cat -v "$T/out")"
    expect_same '3 passed, 0 failed, 1 skipped' "$(tr -d '\r' < "$T/out" | tail -n 1)" 'the last line'
}

# A target of a make of its own that makes nothing but says what it would.
case_a_build_shows_how_far_it_is_and_its_errors() {
    # shellcheck disable=SC2016
    printf '%s\n' 'all: a b' 'a b c:' "	@echo '  CC   obj/\$@.o'" '	@echo "warning: \$@"; sleep 1' 'bad: c' '	@false' > "$T/Makefile"
    sed -i 's/\\\$/$/g' "$T/Makefile"
    run env -u MAKELEVEL -u V MAKEFLAGS='' VERBOSE='' script -qec "$top/tests/build.sh make -f $T/Makefile all" /dev/null
    expect_status 0
    tr '\r' '\n' < "$T/out" > "$T/lines"
    expect_count 1 '\[2/2\] building obj/b.o' "$T/lines"
    expect_out 'warning: b'
    expect_out 'built: 2 files'
    run env -u MAKELEVEL -u V MAKEFLAGS='' VERBOSE='' "$top/tests/build.sh" make -f "$T/Makefile" bad
    expect_status 2
    expect_out '^warning: c$'
    expect_out '^make: \*\*\* .*bad'
    expect_no "$T/out" '  CC'
}
