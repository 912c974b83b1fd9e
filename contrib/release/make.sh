#!/bin/bash
# make release: what is published of a version, in BUILD/release/VERSION: the source, packages, wheels, a bill of materials, sums.
#
#   contrib/release/make.sh BUILD VERSION
#   KEY=NAME      signs the sums with that key of gpg; without it nothing is signed
#   PARTS='deb rpm wheel'   the packages that are made
#
# All is built twice from the same commit, in two directories, and must be the same bit for bit. Times in it are those of the commit.
# Nothing is published, tagged or pushed.
set -euo pipefail
build=$(realpath -m "$1") version=$2
parts=${PARTS-deb rpm wheel}
work=$build/release out=$build/release/$version

refuse() {
    echo "make release: $1" >&2
    exit 1
}

[ -z "$(git status --porcelain)" ] || refuse "the tree differs from its commit: $(git status --porcelain | head -n 1)"
grep -qE "^## ${version//./\\.} \([0-9]{4}-[0-9]{2}-[0-9]{2}\)$" CHANGELOG.md || refuse "CHANGELOG.md has no section \"## $version (YYYY-MM-DD)\""
[ -z "${KEY:-}" ] || gpg --list-secret-keys "$KEY" > /dev/null 2>&1 || refuse "gpg has no secret key $KEY"
commit=$(git rev-parse HEAD)
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH LC_ALL=C TZ=UTC
umask 022
# A make that has called this script sets these. Each build here has a directory of its own.
unset BUILD MAKEFLAGS MFLAGS MAKELEVEL

build_once() { # DIRECTORY: the installation in its root, packages in its out
    local tree=$1/hvdrun-$version
    mkdir -p "$1/out"
    tar -xzf "$out/hvdrun-$version.tar.gz" -C "$1"
    # What the linker reads is said by the linker.
    make -C "$tree" -j"$(nproc)" -O all PREFIX=/usr V=1 LDFLAGS=-Wl,--trace > "$1/trace" 2> "$1/log" || { tail -n 20 "$1/log" >&2; refuse 'the build has failed'; }
    make -C "$tree" install PREFIX=/usr DESTDIR="$1/root" PYTHON_SITE=/usr/lib/python3/dist-packages LDFLAGS=-Wl,--trace >> "$1/log" 2>&1 ||
        refuse "make install has failed: $1/log"
    for part in $parts; do
        make -C "$tree" "$part" >> "$1/log" 2>&1 || { tail -n 20 "$1/log" >&2; refuse "make $part has failed"; }
    done
    find "$tree/build/deb" "$tree/build/rpm" "$tree/build/dist" -maxdepth 1 \( -name '*.deb' -o -name '*.rpm' -o -name '*.whl' \) ! -name '*-dbgsym_*' \
        -exec cp -p {} "$1/out" \; 2> /dev/null || :
}

rm -rf "$work"
mkdir -p "$out"
git archive --format=tar --prefix="hvdrun-$version/" "$commit" | gzip -n -9 > "$out/hvdrun-$version.tar.gz"
build_once "$work/one"
build_once "$work/another-directory"
for what in root out; do
    differ=$(cd "$work" && diff -rq "one/$what" "another-directory/$what") || refuse "two builds differ:
$differ"
done
cp -p "$work"/one/out/* "$out/" 2> /dev/null || :
python3 contrib/release/sbom.py "$version" "$commit" "$SOURCE_DATE_EPOCH" "$work/one/root" "$work/one/trace" > "$out/hvdrun-$version.spdx.json"
(cd "$out" && sha256sum -- *[!S] > SHA256SUMS)
[ -z "${KEY:-}" ] || gpg --batch --yes --local-user "$KEY" --armor --detach-sign --output "$out/SHA256SUMS.asc" "$out/SHA256SUMS"
echo "hvdrun $version, commit $commit: built twice, the same. In $out:"
ls "$out"
[ -n "${KEY:-}" ] || echo 'The sums are not signed: KEY=NAME signs them.'
