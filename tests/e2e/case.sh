#!/bin/bash
# Runs one case: case.sh FILE FUNCTION DIRECTORY KIND. Exit status 0 passed, 77 skipped (last line of output says why), else failed.
# After the case, whatever its outcome, nothing of the job may be left; that is checked here so that no case can forget it.
set -u

file=$1 function=$2
export T=$3 KIND=$4
export HVD_TEST_CASE=$T
cd "$T" || exit 1
mkdir -p tmp
export TMPDIR=$T/tmp
# Of this case alone. Where the run's directory is not to be seen, /tmp is the host's own and ends with it.
mkdir -p "$E2E_RUNTIME" && XDG_RUNTIME_DIR=$(mktemp -d "$E2E_RUNTIME/XXXXXX") || exit 1
export XDG_RUNTIME_DIR XDG_STATE_HOME=$T/state
trap 'rm -rf "$XDG_RUNTIME_DIR" "$XDG_RUNTIME_DIR.open"' EXIT
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck disable=SC1090
. "$file"

leave_within=2
snapshot > "$T/before"
"$function"
status=$?
[ $status = 0 ] || exit $status
nothing_left
