#!/bin/bash
# The tests of the Python package, its jobs on two hosts and its examples, with the newest frameworks: a venv in BUILD/frameworks gets what
# frameworks.txt names. Prints TAP lines; exit status 1 when one of them is "not ok".
#
#   BUILD=build python/tests/frameworks.sh
#   PIP_INDEX_URL and pip's other settings choose where packages come from
set -u

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
BUILD=$(realpath -m "${BUILD:-$top/build}")
export BUILD
venv=$BUILD/frameworks
log=$BUILD/frameworks.log
failed=0

install() {
    [ -x "$venv/bin/pip" ] || "${PYTHON:-/usr/bin/python3}" -m venv "$venv" || return
    "$venv/bin/pip" install --upgrade -r "$top/python/tests/frameworks.txt"
}

if ! install > "$log" 2>&1; then
    echo "not ok - frameworks: pip cannot install what python/tests/frameworks.txt names"
    tail -n 10 "$log" | sed 's/^/    # /'
    exit 1
fi
"$venv/bin/pip" list --format=freeze 2> /dev/null | grep -iE "^($(grep -v '^#' "$top/python/tests/frameworks.txt" | paste -sd'|'))=" |
    sed 's/^/    # /'
export PYTHON=$venv/bin/python
"$top/python/tests/run.sh" all || failed=1
TESTS='python_hosts examples_python' "$top/tests/e2e/run.sh" all || failed=1
exit $failed
