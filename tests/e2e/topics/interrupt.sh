# shellcheck shell=bash disable=SC2034,SC2154
# The tests themselves end at any moment, by ^C or otherwise: no process, directory, shared memory or cgroup of theirs stays.
# They see /tmp and /dev/shm as directories of the case when it can mount (root), and are in a cgroup of its own when it may make one,
# as others use these too.
limit=900
alone=1

# In the middle of what they do: jobs with engines, sessions with guards and cgroups, an sshd; hosts, and one with a systemd.
units='test_collectives test_session_deaths test_sets test_ssh_transport test_containment'
topics='signals two_hosts pty systemd_metrics'

# shellcheck disable=SC2016 # of the inner shell
hide='[ -z "$group" ] || echo $$ > "$group/cgroup.procs"
mount --make-rprivate / || exit
for dir in /tmp /dev/shm; do
    for inner in "$top" "$BUILD"; do
        case $inner/ in $dir/*) mkdir -p "$T/hidden$inner" && mount --rbind "$inner" "$T/hidden$inner" || exit ;; esac
    done
    mount --rbind "$T/hidden$dir" "$dir" || exit
done
exec "$@"'

prepare() {
    mkdir -p "$T/hidden/tmp" "$T/hidden/dev/shm"
    chmod 1777 "$T/hidden/tmp" "$T/hidden/dev/shm"
    hidden=() places=(/tmp /dev/shm)
    if unshare -m sh -c "$hide" sh true 2> /dev/null; then
        hidden=(unshare -m sh -c "$hide" sh)
        places=("$T/hidden/tmp" "$T/hidden/dev/shm")
    fi
    mkdir -p "$T/runtime"
    own_group
    files > "$T/files.before"
}

own_group() {
    local own dir
    export group=
    own=$(sed -n 's/^0:://p' /proc/self/cgroup)
    for dir in "/sys/fs/cgroup/unified${own%/}" "/sys/fs/cgroup${own%/}"; do
        [ -z "$group" ] && [ -w "$dir/cgroup.procs" ] && mkdir "$dir/hvd-interrupt.$$" && group=$dir/hvd-interrupt.$$
    done
    trap '[ ! -e "$group/cgroup.kill" ] || { echo 1 > "$group/cgroup.kill"; rmdir "$group"; }; rm -rf "$XDG_RUNTIME_DIR"' EXIT
}

files() {
    find "${places[@]}" -mindepth 1 -maxdepth 1 -user "$(id -u)"
    find "$T/runtime" "$BUILD" "$BUILD/e2e" -mindepth 1 -maxdepth 1 -type d
    [ -z "$group" ] || find "$group" -mindepth 1 -type d
    find /sys/fs/cgroup /sys/fs/cgroup/unified -maxdepth 1 -name 'hvd-[hs]*' | while read -r dir; do
        ! grep -qx 'populated 0' "$dir/cgroup.events" || echo "$dir"
    done
} 2> /dev/null

tested() { # COMMAND...: in a session of its own, as a terminal's foreground group; $pid is its first process
    WHOSE_TESTS=$T CHECK_LOG=$T/check.log XDG_RUNTIME_DIR=$T/runtime MAKEFLAGS='' \
        env --default-signal=INT,QUIT,HUP -u TMPDIR -u RUN_CONTAINED -u TEST_TIMES -u VERBOSE -u CASE -u HVD_TEST_CASE setsid "${hidden[@]}" "$@" > "$T/tests.out" 2>&1 < /dev/null &
    pid=$!
}

processes() {
    local environ
    grep -lzxF "WHOSE_TESTS=$T" /proc/[0-9]*/environ | while read -r environ; do
        environ=${environ%/environ}
        grep -q '^State:.Z' "$environ/status" || echo "${environ#/proc/} $(tr '\0' ' ' < "$environ/cmdline")"
    done
} 2> /dev/null

is_over() {
    ! kill -0 "$pid" 2> /dev/null
}

no_own_processes() {
    [ -z "$(processes)" ]
}

# Left is what each look finds: cgroups of other jobs on this machine come and go.
no_own_files() {
    local found
    found=$(files | grep -vxF -f "$T/files.before")
    [ -z "${left+set}" ] || found=$(grep -xF -f <(echo "$left") <<< "$found")
    left=$found
    [ -z "$left" ]
}

# No process may stay for longer than the runner itself, but for a program that make reads from while it reads its own files: that is
# not waited for, and ends by itself.
interrupted() { # SIGNAL group|process SECONDS COMMAND...: within these
    local signal=$1 whom=$2 ms=$((RANDOM % ($3 * 1000))) target began
    shift 3
    tested "$@"
    sleep "$(printf %d.%03d $((ms / 1000)) $((ms % 1000)))"
    target=$pid
    [ "$whom" = process ] || target=-$pid
    began=${EPOCHREALTIME/./}
    kill "-$signal" -- "$target" 2> /dev/null
    until_true 40 is_over || fail "after $ms ms, $signal: it still runs: $(processes)"
    wait "$pid" 2> /dev/null
    echo "# $signal after $ms ms: status $?, ended within $(((${EPOCHREALTIME/./} - began) / 1000)) ms"
    until_true 1 no_own_processes || fail "after $ms ms, $signal: processes are left: $(processes)"
    unset left
    until_true 3 no_own_files || fail "after $ms ms, $signal: files are left: $left"
}

unit_tests=(make --no-print-directory -C "$top" BUILD="$BUILD" SANITIZE="${E2E_SANITIZE:-}" TESTS="$units" unit)
all_tests=(env "TESTS=$units $topics" "BUILD=$BUILD" "$top/tests/run.sh" unit+e2e:hosts+e2e:local)

slow_an_interrupt_at_the_terminal() {
    prepare
    for _ in 1 2; do interrupted INT group 5 "${unit_tests[@]}"; done
    interrupted INT group 15 "${all_tests[@]}"
}

slow_make_is_terminated() {
    prepare
    for _ in 1 2; do interrupted TERM process 5 "${unit_tests[@]}"; done
}

slow_the_terminal_goes_away() {
    prepare
    interrupted HUP group 5 "${unit_tests[@]}"
    interrupted HUP group 15 "${all_tests[@]}"
}

case_all_tests_are_terminated() {
    prepare
    interrupted TERM process 15 "${all_tests[@]}"
}

slow_many_times() { # in the whole of what they do
    prepare
    for signal in INT TERM HUP INT TERM HUP INT TERM HUP INT TERM HUP; do
        interrupted $signal group 10 "${unit_tests[@]}"
        interrupted $signal group 60 "${all_tests[@]}"
    done
}
