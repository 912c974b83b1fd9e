#!/bin/bash
# make release in a clone of this tree: BUILD=build tests/release.sh. Prints one TAP line a case. CASE=word keeps the cases with that word
# in their names; RELEASE_PARTS='deb rpm wheel' are the packages that are made and compared.
# shellcheck disable=SC2317,SC2329 # cases are called by their names
set -u

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2
work=$(mktemp -d) || exit 2
trap 'gpgconf --homedir "$work/gnupg" --kill all 2> /dev/null; rm -rf --one-file-system "$work"' EXIT
version=$(sed -n 's/^VERSION *:= *//p' Makefile)
clone=$work/clone
. tests/cases.sh

git_there() {
    git -C "$clone" -c user.name=test -c user.email=test@test.invalid "$@"
}

# A clone in which this version has a date in CHANGELOG.md.
make_clone() {
    git clone -q . "$clone" 2> "$work/why" && git_there checkout -q -b release || fail "$(cat "$work/why")"
    contrib/release/source.sh build 2> /dev/null | tar -x -C "$clone"
    sed -i -E "s/^## ${version//./\\.} .*/## $version (2026-01-02)/" "$clone/CHANGELOG.md"
    git_there add -A && git_there commit -q -m "release $version"
}

release() { # VARIABLES...
    (cd "$clone" && env "$@" contrib/release/make.sh "$clone/build" "$version") > "$T/said" 2>&1
}

case_a_tree_that_differs_is_refused() {
    echo more >> "$clone/README.md"
    ! release PARTS= || fail 'it was made'
    grep -q '^make release: the tree differs from its commit:  M README.md' "$T/said" || fail "$(cat "$T/said")"
    git_there checkout -q README.md
}

case_a_version_without_notes_is_refused() {
    sed -i "s/^## ${version//./\\.} .*/## $version (not released)/" "$clone/CHANGELOG.md"
    git_there commit -q -a -m 'no date'
    ! release PARTS= || fail 'it was made'
    grep -q "^make release: CHANGELOG.md has no section \"## $version (YYYY-MM-DD)\"" "$T/said" || fail "$(cat "$T/said")"
    git_there reset -q --hard HEAD~1
    ! release PARTS= KEY=nobody@nowhere.invalid || fail 'it was made with a key that is not there'
    grep -q '^make release: gpg has no secret key nobody@nowhere.invalid' "$T/said" || fail "$(cat "$T/said")"
}

case_built_twice_the_same_and_verified() {
    local out=$clone/build/release/$version
    command -v gpg > /dev/null || skip 'no gpg here'
    mkdir -m 700 "$work/gnupg"
    export GNUPGHOME=$work/gnupg
    gpg --batch --quiet --passphrase '' --quick-generate-key 'Test <test@test.invalid>' > "$T/gpg" 2>&1 || skip "$(cat "$T/gpg")"
    release PARTS="${RELEASE_PARTS-wheel}" KEY=test@test.invalid || fail "$(tail -n 20 "$T/said")"
    (cd "$out" && sha256sum --quiet -c SHA256SUMS) > "$T/sums" 2>&1 || fail "$(cat "$T/sums")"
    gpg --verify "$out/SHA256SUMS.asc" "$out/SHA256SUMS" > "$T/gpg" 2>&1 || fail "$(cat "$T/gpg")"
    [ "$(find "$out" -type f ! -name 'SHA256SUMS*' | wc -l)" = "$(wc -l < "$out/SHA256SUMS")" ] || fail "not all files have a sum: $(ls "$out")"
    # The bill of materials has every library that a program needs, and the archives that were taken into it.
    python3 - "$out/hvdrun-$version.spdx.json" "$clone/build/release/one/root" > "$T/sbom" 2>&1 << 'END' || fail "$(cat "$T/sbom")"
import json, os, subprocess, sys
sbom = json.load(open(sys.argv[1]))
assert sbom["spdxVersion"] == "SPDX-2.3" and sbom["packages"][0]["name"] == "hvdrun"
names = {p["name"] for p in sbom["packages"]}
assert {"hvdrun", "libc6"} <= names and any("libuv" in n for n in names) and any("protobuf-c" in n for n in names), names
files = {f["fileName"]: f for f in sbom["files"]}
for name in ("./usr/bin/hvdrun", "./usr/bin/hvdagent", "./usr/lib/hvd/ssh.so", "./usr/lib/libhvd.a"):
    assert name in files, sorted(files)
ids = {p["SPDXID"] for p in sbom["packages"]} | {f["SPDXID"] for f in sbom["files"]}
for r in sbom["relationships"]:
    assert r["spdxElementId"] in ids and r["relatedSpdxElement"] in ids, r
linked = [r for r in sbom["relationships"] if r["spdxElementId"] == files["./usr/lib/hvd/ssh.so"]["SPDXID"]]
assert any("libssh2" in r["relatedSpdxElement"] for r in linked), linked
assert any(r["relationshipType"] == "STATIC_LINK" and "libuv" in r["relatedSpdxElement"] for r in sbom["relationships"])
END
    # A file that was changed afterwards is seen.
    echo >> "$out/hvdrun-$version.tar.gz"
    ! (cd "$out" && sha256sum --quiet -c SHA256SUMS) > "$T/sums" 2>&1 || fail 'a changed file passes'
}

# A build that differs each time.
case_a_build_that_differs_is_refused() {
    sed -i 's/^CFLAGS_ALL = /CFLAGS_ALL = -DHVD_BUILT_IN="\\"$(CURDIR)\\"" /' "$clone/Makefile"
    echo 'const char hvd_built_in[] = HVD_BUILT_IN;' >> "$clone/common/base/err.c"
    git_there commit -q -a -m 'a path in a file'
    ! release PARTS= || fail 'it was made'
    grep -q 'make release: two builds differ:' "$T/said" || fail "$(tail -n 5 "$T/said")"
    grep -q 'hvdrun' "$T/said" || fail "$(tail -n 5 "$T/said")"
    git_there reset -q --hard HEAD~1
}

make_clone
run_cases release
