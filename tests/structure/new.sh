#!/bin/bash
# new.sh MEASURE [COMMIT]: the places behind a measure's figure that COMMIT did not have. Without COMMIT: the last commit,
# or the one before it when nothing has been changed since the last.
set -eu
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
[ $# != 0 ] || { echo "usage: new.sh MEASURE [COMMIT]" >&2; exit 2; }
commit=${2:-HEAD}
if [ $# = 1 ] && [ -z "$(git status --porcelain)" ]; then
    commit=HEAD~1
fi
older=$(mktemp -d)
trap 'rm -rf "$older"' EXIT
git archive "$commit" | tar -x -C "$older"
"${BUILD:-build}/tests/structure" --list "$1" . "$older"
