#!/bin/sh
# make deb: Debian packages of the files of this tree, in BUILD/deb.
#
#   contrib/debian/make.sh BUILD VERSION
#
# The packages are built from a copy, so that the tree stays as it is. What the build needs is named by dpkg-checkbuilddeps.
set -eu
build=$1 version=$2
source=$build/deb/hvdrun-$version
unset BUILD MAKEFLAGS MFLAGS MAKELEVEL # of a make that has called this one

rm -rf "$build/deb"
mkdir -p "$source"
contrib/release/source.sh "$build" | tar --extract --file=- --directory="$source"
cp -r contrib/debian "$source/debian"
rm "$source/debian/make.sh" "$source/debian/deb.mk"
[ "$(cd "$source" && dpkg-parsechangelog -S Version)" = "$version" ] || {
    echo "make deb: contrib/debian/changelog is not about version $version" >&2
    exit 1
}
(cd "$source" && dpkg-buildpackage --build=binary --no-sign) > "$build/deb/build.log" 2>&1 || {
    tail -n 30 "$build/deb/build.log" >&2
    echo "make deb: the build has failed; all of it is in $build/deb/build.log" >&2
    exit 1
}
ls "$build"/deb/*.deb
