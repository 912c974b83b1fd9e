# What the cases are written in. A case runs in its own directory $T; run() leaves $T/out, $T/err and $status.
# shellcheck shell=bash disable=SC2034,SC2154
#
# With hosts (KIND is ns or loop): $H1 ... $H4 are the hosts' names for -H, `hvd` adds the options that reach them, and
# `on NUMBER COMMAND` runs a command line there by ssh.

HVDRUN=${HVDRUN:-$BUILD/hvdrun}
TRAIN=$BUILD/examples/train
reach=()

case ${KIND:-local} in
ns)
    H1=node1 H2=node2 H3=node3 H4=node4
    ssh_command=(ssh -o BatchMode=yes -o KexAlgorithms=curve25519-sha256)
    ;;
loop)
    H1=127.0.0.2 H2=127.0.0.3 H3=127.0.0.4 H4=127.0.0.5
    reach=(-p "$(cat "$HOSTS_DIR/port")" -i "$HOSTS_DIR/id")
    export HOME=$HOSTS_DIR/home
    ssh_command=(ssh -F "$HOSTS_DIR/ssh_config")
    ;;
esac
export H1 H2 H3 H4

fail() {
    echo "$*"
    if [ -e "$T/err" ]; then
        echo "exit status ${status:-?}; stderr:"
        tail -n 8 "$T/err"
    fi
    exit 1
}

skip() {
    echo "$*"
    exit 77
}

# An sshd of a busy machine now and then leaves a connection hanging: that is tried again, so COMMAND may run twice.
on() { # NUMBER COMMAND
    local _ code
    for _ in 1 2 3; do
        timeout 8 "${ssh_command[@]}" "node$1" "$2"
        code=$?
        [ $code = 124 ] || break
    done
    return $code
}

needs_mounts() { # in mount namespaces of its own
    [ "$(id -u)" = 0 ] || skip "needs root"
    unshare -m true 2> /dev/null || skip "mount namespaces are not allowed here"
}

# Another user may be unable to enter the build, as in a clone below /root: $OPEN is a directory for everybody with programs of ours, and
# HVDRUN and CTL are those. It goes with the case.
open_to_others() {
    OPEN=$XDG_RUNTIME_DIR.open
    mkdir -m 777 "$OPEN" && cp -rL "$BUILD/hvdrun" "$BUILD/hvdagent" "$BUILD/hvdctl" "$BUILD/modules" "$OPEN" || fail "no copies of the programs"
    chmod -R a+rX "$OPEN"
    HVDRUN=$OPEN/hvdrun CTL=$OPEN/hvdctl
}

needs_kind() { # ns|loop
    [ "$KIND" = "$1" ] || skip "needs hosts in namespaces of their own: ${E2E_NO_NAMESPACES:-HOSTS=$KIND}"
}

# ---- running --------------------------------------------------------------------------------------------------------
# run COMMAND...: to its end. Input comes from $T/in when that exists.
run() {
    local input=/dev/null
    [ ! -e "$T/in" ] || input=$T/in
    "$@" < "$input" > "$T/out" 2> "$T/err"
    status=$?
}

hvd() { # ARGUMENTS of hvdrun
    run "$HVDRUN" "${reach[@]}" "$@"
}

# start ARGUMENTS of hvdrun: in the background; $pid is its process. stop_status waits for it and sets $status. What it says
# goes into $T/err, or, when $said is set, there.
start() {
    local input=/dev/null
    [ ! -e "$T/in" ] || input=$T/in
    : > "$T/out"
    # A shell without job control has its background commands ignore SIGINT.
    env --default-signal=INT,QUIT "$HVDRUN" "${reach[@]}" "$@" < "$input" > "$T/out" 2> "${said:-$T/err}" &
    pid=$!
}

stop_status() {
    wait "$pid"
    status=$?
}

# until_true SECONDS COMMAND...: tries again until it succeeds
until_true() {
    local end=$((${EPOCHREALTIME/./} + $1 * 1000000))
    shift
    until "$@"; do
        [ "${EPOCHREALTIME/./}" -lt $end ] || return 1
        sleep 0.02
    done
}

until_out() { # SECONDS REGEX [COUNT]: that many lines of output match
    until_true "$1" out_has "$2" "${3:-1}" || fail "no line (or fewer than ${3:-1}) like \"$2\" in the output within $1 s: $(head -c 400 "$T/out")"
}

out_has() { # REGEX COUNT
    [ "$(grep -cE -- "$1" "$T/out")" -ge "$2" ]
}

# ---- GPUs -------------------------------------------------------------------------------------------------------------
# gpus N: the ranks of this case find N GPUs: the test double's (tests/gpu/double/double.h), or, when tests/gpu/run says that there
# are REAL_GPU of them, the machine's. Programs are then started as `hvd -np N "${on_gpus[@]}" PROGRAM`: ranks that have to share a GPU
# are hosts of their own for NCCL. What else the double is to do (HVD_DOUBLE_FAIL ...) is exported before.
# shellcheck source=tests/gpu/limits.sh
. "$top/tests/gpu/limits.sh"
gpus() {
    local name
    on_gpus=()
    if [ -z "${REAL_GPU:-}" ]; then
        mkdir -p "$T/meet"
        export LD_LIBRARY_PATH=$BUILD/tests/gpu HVD_DOUBLE_GPUS=$1 HVD_DOUBLE_LOG=$T/misuse HVD_DOUBLE_TRACE=$T/gpu_calls \
            HVD_DOUBLE_DIR=$T/meet
    elif [ "$REAL_GPU" -lt "$1" ]; then
        # shellcheck disable=SC2016 # of the rank
        on_gpus=(sh -c 'NCCL_HOSTID=rank$HVD_RANK exec "$@"' sh)
    fi
    export HVDRUN_GRACE=$(($(free_s) + 4)) # for ranks that say how long a death has held them
    # Ranks are not given what begins with HVD_ by itself, nor anything on other hosts.
    for name in LD_LIBRARY_PATH REAL_GPU HVD_DOUBLE_{GPUS,LOG,TRACE,DIR,FAIL,SLOW,MEMORY,DELAY_US,SEED,LAZY,NCCL,PEERS,BLOCKS,IPC_EVENTS,REAL,HEARS}; do
        [ -z "${!name:-}" ] || reach+=(-x "$name")
    done
    # Loopback hosts are one machine, so that ranks of two of them would share a GPU.
    # shellcheck disable=SC2016 # of the rank
    [ "$KIND" != loop ] || [ ${#on_gpus[@]} != 0 ] || on_gpus=(sh -c 'NCCL_HOSTID=host$HVD_CROSS_RANK exec "$@"' sh)
}

nccl_was_called() { # FUNCTION: on the double, which alone tells
    [ -n "${REAL_GPU:-}" ] || [ "$(gpu_calls "$1")" -gt 0 ] || fail "NCCL did nothing"
}

free_s() { # how long a death may take to reach the other ranks
    echo $(($(gpu_limit free_ms) / 1000))
}

# Ranks that share a GPU take turns, too slowly for many; by the engine they go through host memory, where a rank that waits holds the host.
needs_a_gpu_each() { # RANKS
    [ -z "${REAL_GPU:-}" ] || [ "$REAL_GPU" -ge "$1" ] || skip "$1 ranks would share $REAL_GPU GPU"
}

gpu_calls() { # NAME: how often ranks on the double called it; host-sync is a wait of the host. Not on real GPUs
    grep -cE "^[0-9]+ $1( |\$)" "$HVD_DOUBLE_TRACE"
}

no_gpu_misuse() { # the double has nothing to say against what was called
    [ ! -s "${HVD_DOUBLE_LOG:-/dev/null}" ] || fail "CUDA or NCCL was misused: $(head -n 3 "$HVD_DOUBLE_LOG")"
}

gpu_options=() # more of hvdrun's
work_on_gpus() { # RANKS GPUS PROGRAM ARGUMENTS...: a worker of these tests, to its end
    gpus "$2"
    hvd -np "$1" "${gpu_options[@]}" "${on_gpus[@]}" "$BUILD/tests/$3" "${@:4}"
    no_gpu_misuse
}

# ---- processes --------------------------------------------------------------------------------------------------------
own_programs() { # PID: the agents below it, not their workers
    local child
    # shellcheck disable=SC2013 # words are what that file holds
    for child in $(cat "/proc/$1/task/"*/children 2>/dev/null); do
        case $(cat "/proc/$child/comm" 2>/dev/null) in hvd*) echo "$child"; own_programs "$child" ;; esac
    done
}

high_water() { # PID: the most memory that it ever held, in KiB
    sed -n "s/^VmHWM:[^0-9]*\([0-9]*\).*/\1/p" "/proc/$1/status" 2>/dev/null
}

# ---- expecting -------------------------------------------------------------------------------------------------------
expect_status() {
    [ "$status" = "$1" ] || fail "exit status is $status, not $1"
}

expect_out() { # REGEX: a line of stdout matches
    grep -qE -- "$1" "$T/out" || fail "no line of stdout is like \"$1\": $(head -c 400 "$T/out")"
}

expect_err() {
    grep -qE -- "$1" "$T/err" || fail "no line of stderr is like \"$1\""
}

# "HOSTS (WHAT): WHY REMEDY" in the list of faults, whose lines are put together again.
expect_fault() { # REGEX
    awk '/^hvdrun:   [^ ]/ { print line; line = substr($0, 11); next }
        /^hvdrun:    / { sub(/^hvdrun: +/, ""); line = line " " $0; next }
        { print line; line = "" } END { print line }' "$T/err" | grep -qE -- "^$1" || fail "no fault is like \"$1\""
    ! sed -n '/^hvdrun: what is wrong on/,$p' "$T/err" | grep -qE '^.{81}' || fail 'a line of the list is wider than 80 columns'
}

expect_no_err() {
    [ ! -s "$T/err" ] || fail "stderr is not empty"
}

expect_no() { # FILE REGEX
    ! grep -qE -- "$2" "$1" || fail "a line of $1 is like \"$2\""
}

expect_count() { # NUMBER REGEX FILE
    local found
    found=$(grep -cE -- "$2" "$3")
    [ "$found" = "$1" ] || fail "$found lines of $(basename "$3") are like \"$2\", not $1"
}

expect_same() { # WANTED FOUND WHAT
    [ "$1" = "$2" ] || fail "$3 is \"$2\", not \"$1\""
}

expect_sorted() { # the sorted lines of stdout are these arguments
    local found wanted
    found=$(sort "$T/out")
    wanted=$(printf '%s\n' "$@" | sort)
    [ "$found" = "$wanted" ] || fail "the output is not as wanted: $(diff <(echo "$wanted") <(echo "$found") | head -n 10)"
}

expect_within() { # SECONDS, of the time since $since
    local took=$(((${EPOCHREALTIME/./} - since) / 1000)) most
    [ -z "$E2E_SANITIZE" ] || return 0
    printf -v most %.0f "${1}e3"
    [ $took -le "$most" ] || fail "took $took ms, more than $1 s"
}

mark_time() {
    since=${EPOCHREALTIME/./}
}

# One clear line, and at most a hint line, exit status 2, and nothing started: bad_input REGEX ARGUMENTS of hvdrun. The
# regular expression is for the first line.
bad_input() {
    local wanted=$1 lines
    shift
    rm -f "$T/started"
    hvd "$@"
    [ "$status" = 2 ] || fail "hvdrun $*: exit status $status, not 2"
    one_clear_line "$wanted" "$*"
    [ ! -s "$T/out" ] || fail "hvdrun $*: wrote to stdout"
    [ ! -e "$T/started" ] || fail "hvdrun $*: the command was started"
}

one_clear_line() { # REGEX WHAT
    local lines
    lines=$(wc -l < "$T/err")
    [ "$lines" -ge 1 ] && [ "$lines" -le 2 ] || fail "$2: $lines lines on stderr, not one and a hint"
    head -n 1 "$T/err" | grep -qE -- "$1" || fail "$2: the first line is not like \"$1\""
}

# A host failed at run time: one line that names host and cause, at most a hint, exit status 125, within the time.
host_error() { # REGEX ARGUMENTS of hvdrun
    local wanted=$1
    shift
    rm -f "$T/started"
    mark_time
    hvd "$@"
    expect_status 125
    head -n 1 "$T/err" | grep -qE -- "$wanted" || fail "the first line is not like \"$wanted\""
    [ "$(wc -l < "$T/err")" -le 3 ] || fail "more than three lines on stderr"
    [ ! -e "$T/started" ] || fail "a command was started"
}

# ---- much output ------------------------------------------------------------------------------------------------------
SCRIBE=$BUILD/tests/scribe # its source says what it does

# RANKS BYTES SECONDS ARGUMENTS of hvdrun: all write that much through a reader that takes 1 MiB a second for so long
through_a_slow_reader() {
    local ranks=$1 bytes=$2 seconds=$3 agent=0 now figures until
    shift 3
    mkdir -p "$T/state"
    "$SCRIBE" peak "$T/kib" "$HVDRUN" "${reach[@]}" "$@" -np "$ranks" "$SCRIBE" write "$T/state" "$bytes" 2> "$T/err" < /dev/null | {
        "$SCRIBE" read 1048576 "$seconds"
    } > "$T/out" &
    pid=$!
    until_true 20 test -s "$T/out" || fail "nothing came within 20 s"
    # All pipes, credits and queues are full at the end of that time; on a busy machine the job may have ended by then.
    until=$((SECONDS + seconds))
    while [ "$SECONDS" -lt "$until" ]; do
        now=$(largest_agent)
        [ "${now:-0}" -le "$agent" ] || agent=$now
        sleep 0.2
    done
    stop_status
    expect_no_err
    figures=$("$SCRIBE" check "$T/state" < "$T/out" 2>&1) || fail "$figures"
    expect_same "$ranks ranks" "${figures%%,*}" 'who has written'
    [ "${figures##*, }" = '0 cut' ] || fail "lines were cut: $figures"
    echo "# $figures; peak KiB: hvdrun $(cat "$T/kib"), largest agent here $agent"
    [ -n "$E2E_SANITIZE" ] || [ "$(cat "$T/kib")" -le 32768 ] || fail "hvdrun grew to $(cat "$T/kib") KiB"
    [ -n "$E2E_SANITIZE" ] || { [ "$agent" -gt 0 ] && [ "$agent" -le 32768 ]; } || fail "an agent grew to $agent KiB"
}

# The most memory in KiB that an agent of this case ever held, of those that live, here and on hosts of our own.
largest_agent() {
    local k mark="HVD_TEST_CASE=$T" where=environ
    [ "$KIND" != loop ] || mark="$BUILD/hvdagent" where=cmdline # sshd passes no mark on, and agents hide their environment
    # shellcheck disable=SC2016
    local list='for comm in $(grep -l "^hvdagent" /proc/[0-9]*/comm); do
        dir=${comm%/comm}
        [ -z "$1" ] || tr "\0" "\n" < "$dir/$2" | grep -qxF "$1" || continue
        sed -n "s/^VmHWM:[^0-9]*\([0-9]*\).*/\1/p" "$dir/status"
    done 2>/dev/null'
    {
        echo 0
        bash -c "$list" bash "$mark" "$where"
        [ "${KIND:-local}" != ns ] || for k in $(seq "${E2E_HOSTS:-2}"); do on "$k" "set -- ''; $list"; done
    } | sort -n | tail -n 1
}

# ---- bad news ---------------------------------------------------------------------------------------------------------
MOURNER=$BUILD/tests/mourner # its source says what it does

# MILLISECONDS ARGUMENTS of hvdrun, 4 ranks: 20 times one of them kills itself; the median time until another is told must not be
# longer, and no rank may be told by anything but HVD_ERR_PEER. The longest time depends on what else the machine does: it is shown.
bad_news() {
    local most=$1 figures
    shift
    : > "$T/times"
    for _ in $(seq 20); do
        hvd --grace 5 "$@" "$MOURNER"
        expect_status 137
        expect_count 3 '^told [0-9]+$' "$T/out"
        awk '$1 == "died" {died = $2} $1 == "told" {told[++n] = $2} END {for (i = 1; i <= n; i++) printf "%.2f\n", (told[i] - died) / 1e6}' "$T/out" >> "$T/times"
    done
    figures=$(sort -n "$T/times" | awk '{t[NR] = $1} END {print t[int((NR + 1) / 2)], t[NR], NR}')
    # shellcheck disable=SC2086 # three words
    set -- $figures
    echo "# a worker's death to HVD_ERR_PEER, ms: median $1, max $2 of $3; wanted $most at most"
    awk -v a="$1" -v b="$most" 'BEGIN {exit !(a <= b)}' || fail "the median is $1 ms, more than $most"
}

# ---- nothing is left ----------------------------------------------------------------------------------------------------
each_host() ( # COMMAND LINE: here, and on every host that has processes of its own
    unset HVD_TEST_CASE # its own programs are not the job's
    bash -c "$1" | sed 's/^/here: /'
    [ "${KIND:-local}" = ns ] || return 0
    for k in $(seq "${E2E_HOSTS:-2}"); do inside "$k" "$1" | sed "s/^/node$k: /" & done
    wait
)

# As `on`, but without the cost of an ssh: the runner does it (serve_hosts), who sees all hosts.
inside() { # NUMBER COMMAND LINE
    local answer=$T/answer.$1.$BASHPID
    mkfifo "$answer"
    printf '%s\t%s\t%s\n' "$answer" "node$1" "$2" > "$HOSTS_DIR/ask"
    timeout 15 cat "$answer" || echo "no answer of the runner"
    rm "$answer"
}

leftover_processes() {
    each_host "bash '$top/tests/e2e/leftovers.sh' processes '$BUILD' '$T' '${KIND:-local}'"
}

snapshot() { # files that a job could leave
    each_host "bash '$top/tests/e2e/leftovers.sh' files '$BUILD' '$T' '${KIND:-local}'" | sort
    find "$T/tmp" "${XDG_RUNTIME_DIR:-$T/tmp}" -mindepth 1 | sed 's/^/tmp: /'
}

left_files() {
    snapshot | grep -vxF -f "$T/before"
}

no_processes() {
    [ -z "$(leftover_processes)" ]
}

# Left is what each look finds: jobs of other runs on this machine come and go in the same cgroup.
no_files() {
    local found
    found=$(left_files)
    [ -z "${left+set}" ] || found=$(grep -xF -f <(echo "$left") <<< "$found")
    left=$found
    [ -z "$left" ]
}

nothing_left() {
    until_true "$leave_within" no_processes || fail "processes were left: $(leftover_processes)"
    unset left
    until_true "$leave_within" no_files || fail "files were left: $left"
}

sweep() {
    each_host "bash '$top/tests/e2e/leftovers.sh' kill '$BUILD' '$T' '${KIND:-local}'"
}
