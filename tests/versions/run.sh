#!/bin/bash
# Programs of other releases beside those of this tree: what docs/upgrading.md promises. BUILD=build tests/versions/run.sh, or make
# check-versions. Prints one TAP line a test. CASE=word keeps the cases with that word in their names.
#
# The other releases are built from:
#   later      this tree with a later version number, each of whose messages has a field more at every depth (later.c)
#   broken     this tree, where a field that others need has another number: a job with it must fail
#   stranger   this tree with the next protocol alone: it is refused, and both versions are named
#   releases   the commits of the window, by version: releases.txt
#
# VERSIONS_KEEP=1 takes the builds of the run before.
#
# Hosts are directories with an installation each, and a command for --rsh that runs there what hvdrun would run on the host.
# shellcheck disable=SC2317,SC2329 # cases are called by their names
set -u

cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 2
here=tests/versions
build=$(realpath -m "${BUILD:-build}")
state=$build/versions
version=$(sed -n 's/^VERSION *:= *//p' Makefile)
. tests/cases.sh
export XDG_STATE_HOME=$state/state

# ---- builds ------------------------------------------------------------------------------------------------------------
copy_tree() { # TO [COMMIT]
    rm -rf "$1"
    mkdir -p "$1"
    if [ -n "${2:-}" ]; then
        git archive "$2" | tar -x -C "$1"
    else
        contrib/release/source.sh "$build" 2> /dev/null | tar -x -C "$1"
    fi
}

change() { # FILE SED: there must be something to change
    local before
    before=$(cat "$1")
    sed -i -E "$2" "$1"
    [ "$before" != "$(cat "$1")" ] || fail "$1 has nothing that $2 changes"
}

# Builds a release in its own tree. BUILD may name the directory of this tree.
make_there() { # TREE ARGUMENT...
    env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL make -s -j"$(nproc)" -C "$1" BUILD=build PYTHON_PACKAGE= "${@:2}"
}

make_release() { # NAME [COMMIT]
    local tree=$state/$1/tree flags=
    [ -z "${VERSIONS_KEEP:-}" ] || [ ! -x "$state/$1/usr/bin/hvdrun" ] || return 0
    copy_tree "$tree" "${2:-}" || return
    case $1 in
    later)
        change "$tree/Makefile" 's/^VERSION *:= .*/VERSION := 0.99.0/'
        cp "$here/later.c" "$tree/common/protocol/later.c"
        flags='-Wl,--wrap=protobuf_c_message_pack -Wl,--wrap=protobuf_c_message_get_packed_size'
        ;;
    broken) change "$tree/common/protocol/control.proto" 's/^(  string job = )3;/\19000;/' ;;
    stranger)
        change "$tree/Makefile" 's/^VERSION *:= .*/VERSION := 9.0.0/'
        change "$tree/common/protocol/message.h" 's/^(#define PROTOCOL_(VERSION|OLDEST) +)1/\12/'
        ;;
    esac
    make_there "$tree" all LDFLAGS="$flags" > "$state/$1/log" 2>&1 &&
        make_there "$tree" install PREFIX="$state/$1/usr" LDFLAGS="$flags" >> "$state/$1/log" 2>&1
}

# ---- jobs --------------------------------------------------------------------------------------------------------------
put_on_host() { # HOST RELEASE: its installation is a copy, so that an upgrade replaces it
    mkdir -p "$T/$1"
    cp -a "$state/$2/usr" "$T/$1/usr.new"
    rm -rf "$T/$1/usr.old"
    [ ! -e "$T/$1/usr" ] || mv "$T/$1/usr" "$T/$1/usr.old"
    mv "$T/$1/usr.new" "$T/$1/usr"
}

make_hosts() { # RELEASE OF a, OF b
    put_on_host a "$1"
    put_on_host b "$2"
    cat > "$T/rsh" << END
#!/bin/sh
# HOST COMMAND LINE
ON=\$1
export ON
shift
exec sh -c "\$*"
END
    printf '#!/bin/sh\nexec "%s/$ON/usr/bin/hvdagent" "$@"\n' "$T" > "$T/hvdagent"
    chmod +x "$T/rsh" "$T/hvdagent"
}

# A job of two ranks on each host that reduces, with the launcher of a release: its losses are those of this tree.
train() { # RELEASE OF HVDRUN ARGUMENTS
    timeout 60 "$state/$1/usr/bin/hvdrun" --rsh "$T/rsh" --agent-path "$T/hvdagent" -np 4 -H a:2,b:2 "${@:2}" "$state/this/tree/build/examples/train" --steps 3 \
        > "$T/out" 2> "$T/err" || { cat "$T/err" >&2; return 1; }
    sed 's/ chars.*//' "$T/out" > "$T/losses"
    cmp -s "$T/losses" "$state/losses" || { cat "$T/out" "$T/err" >&2; return 1; }
}

make_worker() {
    cc "$here/worker.c" -o "$T/worker" -I"$state/this/usr/include" -L"$state/this/usr/lib" -lhvd || fail 'the worker'
}

# A tensor of several pieces, from two ranks on each host.
move_large() { # RELEASE OF HVDRUN
    make_worker
    LD_LIBRARY_PATH=$state/this/usr/lib timeout 60 "$state/$1/usr/bin/hvdrun" --rsh "$T/rsh" --agent-path "$T/hvdagent" -np 4 -H a:2,b:2 "$T/worker" \
        > "$T/out" 2> "$T/err" || { cat "$T/err" >&2; return 1; }
    [ "$(sort -u "$T/out")" = 'the sum is 10' ]
}

# ---- cases, for each other release -------------------------------------------------------------------------------------
case_a_newer_or_older_launcher() {
    make_hosts this this
    train "$other" || fail "hvdrun of $other, agents of this tree"
    make_hosts "$other" "$other"
    train this || fail "hvdrun of this tree, agents of $other"
}

case_hosts_of_two_releases() {
    make_hosts this "$other"
    train this || fail 'the first host has this tree'
    move_large this || fail 'a large tensor, cut into pieces'
    move_large "$other" || fail 'likewise, with the other hvdrun'
    train "$other" || fail 'with the other hvdrun'
    train this --encrypt || fail 'encrypted'
    make_hosts "$other" this
    train this || fail 'the second host has this tree'
    move_large this || fail 'a large tensor, the other way round'
}

# The program is the same; libhvd.so.0 is that of another release than the engine.
case_workers_with_another_libhvd() {
    local one two
    make_worker
    for one in this "$other"; do
        for two in this "$other"; do
            LD_LIBRARY_PATH=$state/$one/usr/lib timeout 30 "$state/$two/usr/bin/hvdrun" -np 3 "$T/worker" > "$T/out" 2> "$T/err" || fail "$(cat "$T/err")"
            [ "$(sort "$T/out" | uniq -c | sed 's/^ *//')" = '3 the sum is 6' ] || fail "libhvd of $one, engine of $two: $(cat "$T/out")"
        done
    done
}

# Ranks that are alone on their hosts exchange small tensors themselves, where all engines and all libhvd.so.0 can.
case_hosts_of_one_rank() {
    local engines libraries number
    make_worker
    printf '#!/bin/sh\nLD_LIBRARY_PATH=%s/lib$HVD_RANK exec %s/worker 200\n' "$T" "$T" > "$T/start"
    chmod +x "$T/start"
    while read -r engines libraries; do
        make_hosts "${engines%-*}" "${engines#*-}"
        put_on_host c "${engines%-*}"
        ln -sfn "$state/${libraries%-*}/usr/lib" "$T/lib0"
        ln -sfn "$state/${libraries#*-}/usr/lib" "$T/lib1"
        ln -sfn "$state/${libraries%-*}/usr/lib" "$T/lib2"
        for number in 2 3; do
            timeout 60 "$state/this/usr/bin/hvdrun" --rsh "$T/rsh" --agent-path "$T/hvdagent" -np "$number" -H a:1,b:1,c:1 "$T/start" < /dev/null > "$T/out" 2> "$T/err" ||
                fail "$number hosts, engines $engines, libhvd $libraries: $(cat "$T/err")"
            [ "$(sort "$T/out" | uniq -c | sed 's/^ *//')" = "$number the sum is $((number * (number + 1) / 2))" ] || fail "$number hosts, engines $engines, libhvd $libraries: $(cat "$T/out")"
        done
    done << END
this-this this-this
this-$other this-this
$other-this $other-$other
this-this this-$other
this-this $other-this
$other-$other this-$other
END
}

ask() { # RELEASE PATTERN ARGUMENTS OF HVDCTL
    "$state/$1/usr/bin/hvdctl" "${@:3}" > "$T/said" 2>&1 || fail "hvdctl of $1, ${*:3}: $(cat "$T/said")"
    grep -qE "$2" "$T/said" || [ -z "$2" ] || fail "hvdctl of $1, ${*:3}, does not say $2: $(cat "$T/said")"
}

case_hvdctl_of_another_release() {
    local ctl run name
    for ctl in this "$other"; do
        for run in this "$other"; do
            name=${ctl//./-}-under-${run//./-}-$$
            timeout 60 "$state/$run/usr/bin/hvdrun" --job-name "$name" -np 2 "$state/this/tree/build/examples/train" --steps 100000 > "$T/out" 2> "$T/err" &
            for _ in $(seq 100); do grep -q 'step 2 ' "$T/out" && break; sleep 0.1; done
            ask "$ctl" "^$name.* 2/2 running" ps
            ask "$ctl" '"ranks":' status "$name" --json
            ask "$ctl" '^the job goes on' why "$name"
            ask "$ctl" 'operations' trace "$name" --seconds 0.3 --file "$T/trace"
            python3 -m json.tool "$T/trace" > /dev/null || fail 'the trace is no JSON'
            ask "$ctl" '' kill "$name"
            wait
        done
    done
}

# Hosts are upgraded one after the other, then the launcher. The job that began before goes on to its end, and each job that is started
# meanwhile runs.
case_an_upgrade_under_load() {
    local lasting host
    make_hosts this this
    "$state/this/usr/bin/hvdrun" --rsh "$T/rsh" --agent-path "$T/hvdagent" -np 4 -H a:2,b:2 "$state/this/tree/build/examples/train" --steps 100000 > "$T/lasting" 2>&1 &
    lasting=$!
    for _ in $(seq 100); do grep -q 'step 2 ' "$T/lasting" && break; sleep 0.1; done
    for host in b a; do
        put_on_host "$host" "$other"
        train this || fail "host $host has the other release, hvdrun has not"
    done
    train "$other" || fail 'all of it is the other release'
    put_on_host a this # and back
    train "$other" || fail 'host a was rolled back'
    local before after
    before=$(grep -c '^step' "$T/lasting")
    sleep 1
    after=$(grep -c '^step' "$T/lasting")
    kill "$lasting"
    wait "$lasting" 2> /dev/null
    [ "$after" -gt "$before" ] || fail "the job that began before has stopped: $(tail -n 3 "$T/lasting")"
}

# ---- all of them -------------------------------------------------------------------------------------------------------
run_case() { # RELEASE CASE
    local name=${2#case_} status
    other=$1
    T=$state/run/$1.$name
    mkdir -p "$T"
    (set +u; "$2") > "$T/why" 2>&1
    status=$?
    say_result versions "$status" "$1: ${name//_/ }" "$T/why"
}

is_refused() {
    local status
    make_hosts stranger this
    timeout 60 "$state/this/usr/bin/hvdrun" --rsh "$T/rsh" --agent-path "$T/hvdagent" -np 2 -H a:1,b:1 true > "$T/out" 2> "$T/err"
    status=$?
    [ "$status" = 125 ] || fail "exit status $status: $(cat "$T/err")"
    grep -q "hvdagent there is version 9.0.0 (protocol 2), this hvdrun is $version (protocol 1)" "$T/err" || fail "$(cat "$T/err")"
}

is_seen() {
    make_hosts broken this
    ! train this || fail 'a host whose messages have other numbers passes'
    ! grep -q 'no hvdagent' "$T/err" || fail "$(cat "$T/err")"
    cat "$T/err"
}

rm -rf "$state/run"
mkdir -p "$state/run"
window=$(sed -n 's/^\([0-9][^ ]*\) \([0-9a-f]*\).*/\1:\2/p' "$here/releases.txt")
for one in this later broken stranger $window; do
    make_release "${one%%:*}" "$(case $one in *:*) echo "${one#*:}" ;; esac)" || { say_result versions 1 "build of $one" "$state/${one%%:*}/log"; exit 1; }
done
T=$state/run/alone
mkdir -p "$T"
make_hosts this this
: > "$state/losses"
train this 2> /dev/null
sed 's/ chars.*//' "$T/out" > "$state/losses"
for one in later $window; do
    for case in $(list_cases); do
        run_case "${one%%:*}" "$case"
    done
done
for one in is_refused is_seen; do
    T=$state/run/$one
    mkdir -p "$T"
    ("$one") > "$T/why" 2>&1
    say_result versions $? "$(case $one in is_refused) echo 'another protocol is refused, and both versions are named' ;; *) echo 'a broken field is seen' ;; esac)" "$T/why"
done
exit "$failed"
