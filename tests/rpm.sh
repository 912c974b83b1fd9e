#!/bin/bash
# Looks at the packages of `make rpm`, as far as the tools of this system can: BUILD=build tests/rpm.sh. `make check-rpm` makes the
# packages first. CASE=word keeps the cases with that word in their names. They were never installed on Fedora or RHEL.
#
# The files of the packages are also installed in a root of Debian that has the libraries, by rpm without its own dependencies:
# scriptlets, upgrade and removal run there. Needs root for that. Prints one TAP line a case.
# shellcheck disable=SC2046,SC2317,SC2329 # names of packages have no blanks; cases are called by their names
set -u

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2
build=$(realpath -m "${BUILD:-build}")
rpms=$build/rpm
work=$(mktemp -d) || exit 2
trap 'rm -rf --one-file-system "$work"' EXIT
. tests/cases.sh

package() { # NAME: its file
    find "$rpms" -maxdepth 1 -name "$1-[0-9]*.rpm"
}

query() { # NAME OPTION...: what rpm says of the package
    rpm -qp "${@:2}" "$(package "$1")" 2> /dev/null
}

case_each_file_is_in_one_package() {
    local name
    for name in hvdrun hvdrun-agent libhvd libhvd-devel python3-hvdrun hvdrun-doc; do
        [ -n "$(package "$name")" ] || fail "there is no $name"
        query "$name" -l > "$T/$name"
    done
    expect '^/usr/bin/horovodrun$' "$T/hvdrun"
    expect '^/usr/lib/systemd/system/hvdagent.socket$' "$T/hvdrun-agent"
    expect '^/usr/lib64/libhvd.so.0$' "$T/libhvd"
    expect '^/usr/lib64/libhvd.so$' "$T/libhvd-devel"
    expect '^/usr/include/hvd.h$' "$T/libhvd-devel"
    expect '/site-packages/horovod/torch/__init__.py$' "$T/python3-hvdrun"
    grep -hvE '^/usr/lib/hvd$|^/usr/lib/.build-id|^/usr/share/licenses' "$T"/* | sort | uniq -d > "$T/twice"
    [ ! -s "$T/twice" ] || fail "in two packages: $(cat "$T/twice")"
    expect '^/etc/hvd/agent.conf$' <(query hvdrun-agent -c)
    # Links are whole in their package, and nothing belongs to anybody but root.
    query hvdrun-agent --qf '[%{FILEUSERNAME}:%{FILEGROUPNAME} %{FILENAMES}\n]' | grep -v '^root:root ' > "$T/foreign"
    [ ! -s "$T/foreign" ] || fail "not of root: $(cat "$T/foreign")"
}

case_dependencies() {
    query hvdrun -R > "$T/needs"
    expect '^hvdrun-agent.* = 0' "$T/needs"
    expect '^libssh2.so.1\(\)' "$T/needs"
    query libhvd-devel -R > "$T/needs"
    expect '^libhvd(\(|-|.).* = 0' "$T/needs"
    query libhvd -P > "$T/gives"
    expect '^libhvd.so.0\(\)' "$T/gives"
    query hvdrun-agent -P > "$T/gives"
    ! grep -E '(auth|tls|gloo)\.so' "$T/gives" >&2 || fail 'modules are offered as libraries'
}

in_root() { # COMMAND LINE
    timeout 300 unshare -m -u -i -p --fork --kill-child=SIGKILL tests/enter_root.sh "$T/root" env -i HOME=/root TERM=dumb LANG=C.UTF-8 \
        PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin bash -c "$1" > "$T/out" 2>&1 ||
        { tail -n 30 "$T/out" >&2; fail "in the root: $1"; }
}

# The packages again, as a later release.
make_later_release() {
    local top=$rpms/top
    unset BUILD MAKEFLAGS MFLAGS MAKELEVEL
    mkdir -p "$T/later"
    sed -E 's/^Release:.*/Release: 2/' "$top/SPECS/hvdrun.spec" > "$T/later.spec"
    rpmbuild --nodeps --quiet -bb --define "_topdir $top" --define "hvd_version $1" --define '_libdir /usr/lib64' --define "_rpmdir $T/later" \
        --define '_rpmfilename %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm' "$T/later.spec" > "$T/later.log" 2>&1 || { tail "$T/later.log" >&2; fail 'rpmbuild'; }
}

case_installed_upgraded_and_removed() {
    local release version
    command -v mmdebstrap > /dev/null || skip 'no mmdebstrap here'
    [ "$(id -u)" = 0 ] || skip 'not root'
    release=$(. /etc/os-release && echo "$VERSION_CODENAME")
    version=$(query hvdrun --qf '%{VERSION}')
    make_later_release "$version"
    mmdebstrap --quiet --variant=apt --include=rpm,hostname,mount,libuv1,libprotobuf-c1,libssl3,libhwloc15,libyaml-0-2,libssh2-1,libmicrohttpd12,libpmix2,libsystemd0,gcc,libc6-dev,pkg-config \
        "$release" "$T/root" > "$T/out" 2>&1 || { tail "$T/out" >&2; fail 'mmdebstrap'; }
    mkdir "$T/root/first" "$T/root/second"
    cp $(find "$rpms" -maxdepth 1 -name '*.rpm') "$T/root/first"
    cp "$T"/later/*.rpm "$T/root/second"
    in_root 'rpm -i --nodeps /first/*.rpm && ldconfig /usr/lib64'
    in_root 'getent group hvd && hvdrun -np 2 hostname'
    [ "$(grep -c '^fresh$' "$T/out")" = 2 ] || fail "$(cat "$T/out")"
    in_root 'printf "%s\n" "#include <hvd.h>" "#include <stdio.h>" "int main(void) { float x = 1; if (hvd_init() || hvd_allreduce(\"x\", &x, &x, 1, HVD_FLOAT32, HVD_SUM, NULL)) return 1; printf(\"%g\\n\", x); return hvd_shutdown(); }" > w.c && PKG_CONFIG_PATH=/usr/lib64/pkgconfig && export PKG_CONFIG_PATH && gcc w.c -o w $(pkg-config --cflags --libs hvd) && hvdrun -np 2 ./w'
    [ "$(grep -c '^2$' "$T/out")" = 2 ] || fail "$(cat "$T/out")"
    in_root 'rpm -V --nodeps hvdrun hvdrun-agent libhvd libhvd-devel python3-hvdrun hvdrun-doc'
    # What was changed in the configuration outlives an upgrade, and a removal keeps it aside.
    in_root 'echo "# changed" >> /etc/hvd/agent.conf; rpm -U --nodeps /second/*.rpm && grep "# changed" /etc/hvd/agent.conf && rpm -q hvdrun | grep -e -2'
    in_root 'hvdrun -np 2 sh -c "sleep 100" & for i in $(seq 100); do hvdctl ps | grep -q 2/2 && break; sleep 0.1; done; rpm -e --nodeps hvdrun-agent hvdrun && kill %1; wait'
    expect "^hvdrun-agent: 1 of this host's jobs are running, and go on until they end$" "$T/out"
    in_root 'rpm -e --nodeps libhvd-devel python3-hvdrun libhvd hvdrun-doc; grep "# changed" /etc/hvd/agent.conf.rpmsave'
    (cd "$T/root" && find etc usr -name '*hvd*' ! -path 'etc/hvd*' ! -path '*/__pycache__/*') > "$T/after"
    [ ! -s "$T/after" ] || fail "files are left: $(cat "$T/after")"
}

# ---- all of them -------------------------------------------------------------------------------------------------------
ls "$rpms"/*.rpm > /dev/null 2>&1 || fail "there are no packages in $rpms: make rpm"
run_cases rpm
