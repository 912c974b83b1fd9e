#!/bin/sh
# The files of this tree as a tar on stdout, as they are now: what git knows or would take, or all but BUILD where the tree is no
# checkout. Further arguments are those of tar.
#
#   contrib/release/source.sh BUILD [--transform=...]
set -eu
build=$1
shift
if [ "$(git rev-parse --show-toplevel 2> /dev/null)" = "$(pwd -P)" ]; then
    git ls-files -z --cached --others --exclude-standard
else
    find . -path "./${build#./}" -prune -o -type f -print0 | LC_ALL=C sort -z
fi | tar --null --files-from=- "$@" --create --file=-
