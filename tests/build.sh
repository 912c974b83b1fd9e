#!/bin/bash
# Builds for the tests: build.sh MAKE [ARGUMENT]... TARGET. Make's lines `  CC   file` are counted and not shown; all others are shown
# as they come (VERBOSE=1 and V=1: all of them).
set -u -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2
[ -z "${VERBOSE:-}${V:-}" ] || exec "$@"
# shellcheck source=tests/progress.sh
. tests/progress.sh

# Make ends what it has started; started in the background, it does not hear of SIGINT itself.
make='' ended=''
trap 'ended=1; [ -z "$make" ] || kill -TERM "$make"' INT TERM HUP
pattern='  (CC|LINK|GEN|NVCC|SAME|C\+\+) +(.*)'
count=$("$1" -n "${@:2}" 2> /dev/null | grep -cE "^echo '$pattern")

show_build() {
    local line made=0
    trap '' INT TERM HUP # make ends first
    while IFS= read -r line; do
        if [[ $line =~ ^$pattern ]]; then
            made=$((made + 1))
            show_progress "[$made/$count] building ${BASH_REMATCH[2]}"
        else
            say "$line"
        fi
    done
    hide_progress
    [ $made = 0 ] || echo "built: $made files, $(as_time $SECONDS)"
}

[ -z "$ended" ] || exit 130
"$@" 2>&1 | show_build &
make=$(jobs -p)
[ -z "$ended" ] || kill -TERM "$make"
until wait %1; do
    status=$?
    ! kill -0 "$make" 2> /dev/null || continue
    wait $!
    exit $status
done
