#!/bin/bash
# Runs a unit test N times beside other work, and ends in one line: how often it passed. Exit status 1 when it did not each time.
#
#   tests/often.sh N PROGRAM [CASE...]      tests/often.sh 200 test_links no_link_without_the_key
#
# Each CASE is a test function of the program; without any all are run. Failures are shown.
# BUILD=build; LOAD=4 processes that compute beside it (0: none), from stress-ng where there is one.
set -u

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2
[[ ${1:-} =~ ^[1-9][0-9]*$ && ${2:-} ]] || { sed -n '4s/^# *//p' "$0" >&2; exit 2; }
times=$1 program=$(realpath -m "${BUILD:-build}")/tests/$2
shift 2
[ -x "$program" ] || { echo "$program is not built" >&2; exit 2; }
work=$(mktemp -d "${TMPDIR:-/tmp}/hvd-often.XXXXXX") || exit 2
load=()
# shellcheck disable=SC2317,SC2329 # called by the trap
finish() {
    [ ${#load[@]} = 0 ] || kill "${load[@]}"
    wait
    rm -rf "$work"
} 2> /dev/null
trap finish EXIT
trap 'exit 130' INT TERM

if [ "${LOAD:-4}" != 0 ] && command -v stress-ng > /dev/null; then
    stress-ng --quiet --cpu "${LOAD:-4}" &
    load+=($!)
else
    for ((i = 0; i < ${LOAD:-4}; i++)); do
        (while :; do :; done) &
        load+=($!)
    done
fi

passed=0
export CK_FORK=yes
[ $# = 0 ] || export CK_RUN_TEST="$*"
began=$SECONDS
for ((i = 1; i <= times; i++)); do
    if "$program" > "$work/out" 2>&1 < /dev/null && grep -q 'Checks: [1-9]' "$work/out"; then
        passed=$((passed + 1))
    else
        sed "s/^/run $i: /" "$work/out" | tail -n 20
        grep -q 'Checks: 0' "$work/out" && { echo "no such test: ${CK_RUN_TEST:-}" >&2; exit 2; }
    fi
done
echo "$(basename "$program")${*:+ $*}: $passed of $times passed beside ${LOAD:-4} that compute, in $((SECONDS - began)) s"
[ "$passed" = "$times" ]
