#!/bin/bash
# Installs the packages of `make deb` as an administrator does, and runs jobs from them: BUILD=build tests/deb.sh. `make check-deb` makes
# the packages first. CASE=word keeps the cases with that word in their names.
#
# One case has a bare root of Debian (mmdebstrap), the others a host with systemd as PID 1 (tests/hosts/systemd.sh). Needs root. Prints
# one TAP line a case.
# shellcheck disable=SC2046,SC2317,SC2329 # names of packages have no blanks; cases are called by their names
set -u

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2
build=$(realpath -m "${BUILD:-build}")
debs=$build/deb
machine=$PWD/tests/hosts/systemd.sh
work=$(mktemp -d) || exit 2
trap '[ ! -e "$work/host" ] || SYSTEMD_DIR=$work/host "$machine" down; rm -rf --one-file-system "$work"' EXIT
. tests/cases.sh

# Without symbols for debuggers.
packages() {
    find "$debs" -name '*.deb' ! -name '*-dbgsym_*' | sort
}

# ---- lintian -----------------------------------------------------------------------------------------------------------
case_lintian_finds_nothing() {
    command -v lintian > /dev/null || skip 'no lintian here'
    lintian --fail-on error,warning --suppress-tags bogus-mail-host,initial-upload-closes-no-bugs "$debs"/*.deb > "$T/lintian" 2>&1 ||
        { cat "$T/lintian" >&2; fail 'lintian finds something'; }
}

# ---- a bare root -------------------------------------------------------------------------------------------------------
in_root() { # COMMAND LINE
    timeout 300 unshare -m -u -i -p --fork --kill-child=SIGKILL tests/enter_root.sh "$T/root" env -i HOME=/root TERM=dumb LANG=C.UTF-8 \
        DEBIAN_FRONTEND=noninteractive PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin bash -c "$1" > "$T/out" 2>&1 ||
        { tail -n 30 "$T/out" >&2; fail "in the root: $1"; }
}

case_a_bare_root() {
    local release package
    command -v mmdebstrap > /dev/null || skip 'no mmdebstrap here'
    [ "$(id -u)" = 0 ] || skip 'not root'
    release=$(. /etc/os-release && echo "$VERSION_CODENAME")
    mmdebstrap --quiet --variant=apt --include=ca-certificates,mount,hostname "$release" "$T/root" > "$T/out" 2>&1 || { tail "$T/out" >&2; fail 'mmdebstrap'; }
    cp --remove-destination -L /etc/resolv.conf "$T/root/etc/"
    mkdir "$T/root/debs" && cp $(packages) "$T/root/debs"
    (cd "$T/root" && find etc usr -type f | grep hvd) > "$T/before"
    in_root 'apt-get -qq update && apt-get -qq install --no-install-recommends -y /debs/*.deb gcc libc6-dev pkg-config'
    in_root 'hvdrun --check-build'
    for package in ssh hvdagent hvd-engine auth tls gloo topology metrics yaml systemd; do expect "\\[X\\] $package " "$T/out"; done
    in_root 'hvdrun -np 2 hostname'
    expect_lines 2 '^fresh$'
    # Workers in Python, and in C with the package for development.
    cp tests/wheel/sum.py "$T/root/"
    in_root 'horovodrun -np 2 python3 /sum.py'
    expect_lines 2 'rank [01] of 2: 3\.0$'
    in_root 'printf "%s\n" "#include <hvd.h>" "#include <stdio.h>" "int main(void) { float x = 1; if (hvd_init() || hvd_allreduce(\"x\", &x, &x, 1, HVD_FLOAT32, HVD_SUM, NULL)) return 1; printf(\"%g\\n\", x); return hvd_shutdown(); }" > w.c && gcc w.c -o w $(pkg-config --cflags --libs hvd) && hvdrun -np 2 ./w'
    expect_lines 2 '^2$'
    in_root 'man -w hvdrun hvdctl hvdagent hvd_allreduce 2>&1 || ls /usr/share/man/man1/hvdrun.1.gz /usr/share/man/man3/hvd_allreduce.3.gz'
    in_root 'dpkg --verify hvdrun hvdrun-agent libhvd0 libhvd-dev python3-hvdrun hvdrun-doc'
    [ ! -s "$T/out" ] || fail "files differ: $(cat "$T/out")"
    # What was changed in the configuration stays until it is purged.
    in_root 'echo "# changed" >> /etc/hvd/agent.conf; apt-get -qq remove -y hvdrun hvdrun-agent libhvd0 libhvd-dev python3-hvdrun hvdrun-doc'
    in_root 'grep "# changed" /etc/hvd/agent.conf; ! command -v hvdrun hvdagent hvdctl horovodrun'
    in_root 'dpkg --purge hvdrun-agent'
    (cd "$T/root" && find etc usr -name '*hvd*' | grep -v '^usr/share/doc-base') > "$T/after"
    [ ! -s "$T/after" ] || fail "files are left: $(cat "$T/after")"
}

expect_lines() { # NUMBER PATTERN
    [ "$(grep -cE -- "$2" "$T/out")" = "$1" ] || { cat "$T/out" >&2; fail "not $1 lines match $2"; }
}

# ---- a host with systemd -----------------------------------------------------------------------------------------------
there() { # COMMAND...
    timeout 120 "$machine" exec "$@"
}

# The packages again, as a later version.
make_later_version() {
    local deb
    mkdir -p "$T/later"
    for deb in $(packages); do
        rm -rf "$T/unpacked"
        dpkg-deb -R "$deb" "$T/unpacked" || fail "dpkg-deb -R $deb"
        sed -i -E 's/^(Version: .*)/\1+later/; s/\(= ([^)]*)\)/(= \1+later)/g' "$T/unpacked/DEBIAN/control"
        dpkg-deb --root-owner-group -b "$T/unpacked" "$T/later" > /dev/null || fail "dpkg-deb -b"
    done
}

case_an_upgrade_leaves_jobs_alone() {
    local why agent pid
    why=$("$machine" can) || skip "no systemd host: $why"
    export SYSTEMD_DIR=$work/host SYSTEMD_BIND="$T $debs" DEBIAN_FRONTEND=noninteractive
    make_later_version
    timeout 30 "$machine" up || fail 'it does not boot'
    there rm -f /usr/sbin/policy-rc.d # of containers: it forbids services to start
    there dpkg -i $(packages) > "$T/out" 2>&1 || { tail "$T/out" >&2; fail 'dpkg -i'; }
    there systemctl is-enabled hvdagent.socket > "$T/out" 2>&1
    expect '^disabled$' "$T/out"
    there sh -c 'echo "slots: 4" > /etc/hvd/agent.conf && systemctl enable --now hvdagent.socket' > "$T/out" 2>&1 || { cat "$T/out" >&2; fail 'the service'; }
    "$machine" as alice /usr/bin/hvdrun --job-name lasting --agent managed -np 2 sh -c 'echo ready; for i in $(seq 300); do sleep 0.1; [ ! -e '"$T"'/end ] || exit 0; done; exit 3' < /dev/null > "$T/job" 2>&1 &
    pid=$!
    for _ in $(seq 100); do [ "$(grep -c ready "$T/job")" != 2 ] || break; sleep 0.1; done
    expect ready "$T/job"
    agent=$(there systemctl show -p MainPID --value hvdagent.service)
    there sh -c "dpkg --force-confold -i $T/later/*.deb" > "$T/out" 2>&1 || { tail "$T/out" >&2; fail 'the upgrade'; }
    there hvdctl ps > "$T/out"
    expect '^lasting.* alice .* 2/2 running' "$T/out"
    [ "$(there systemctl show -p MainPID --value hvdagent.service)" != "$agent" ] || fail 'the agent was not replaced'
    there hvdctl node > "$T/out" 2>&1
    expect 'alice' "$T/out"
    there grep -q 'slots: 4' /etc/hvd/agent.conf || fail 'the configuration was replaced'
    # Removal says that a job runs, and the job goes on to its end.
    there dpkg -r hvdrun python3-hvdrun hvdrun-agent > "$T/out" 2>&1 || { tail "$T/out" >&2; fail 'dpkg -r'; }
    expect "^hvdrun-agent: 1 of this host's jobs are running, and go on until they end$" "$T/out"
    : > "$T/end"
    wait "$pid" || { cat "$T/job" >&2; fail "the job ended with $?"; }
    there sh -c 'ls /etc/hvd/agent.conf && dpkg -P hvdrun-agent && ! ls /etc/hvd' > "$T/out" 2>&1 || { cat "$T/out" >&2; fail 'purge'; }
    "$machine" down
}

# ---- all of them -------------------------------------------------------------------------------------------------------
ls "$debs"/*.deb > /dev/null 2>&1 || fail "there are no packages in $debs: make deb"
run_cases deb
