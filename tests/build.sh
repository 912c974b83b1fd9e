#!/bin/bash
# Builds for the tests: build.sh MAKE [ARGUMENT]... TARGET. Of make's lines `  CC   file` only how many there are and will be is shown,
# all others as they come (VERBOSE=1 and V=1: all of them).
set -u -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2
[ -z "${VERBOSE:-}${V:-}" ] || exec "$@"
# shellcheck source=tests/progress.sh
. tests/progress.sh

trap 'exit 130' INT TERM HUP # once that has ended
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

"$@" 2>&1 | show_build &
make=$(jobs -p)
trap 'kill -TERM "$make"' INT TERM HUP # it ends what it started; started like this, it does not hear of INT itself
until wait %1; do
    status=$?
    ! kill -0 "$make" 2> /dev/null || continue
    wait $!
    exit $status
done
