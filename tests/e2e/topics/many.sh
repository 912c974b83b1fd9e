# shellcheck shell=bash disable=SC2034,SC2154
# A thousand ranks on one machine, and what is said beforehand when descriptors or processes are too few for them.
limit=100

# The most memory that process $pid and the agents below it ever held, in KiB: "HVDRUN LARGEST-AGENT".
peak_memory() {
    local child agent=0 kib
    for child in $(own_programs "$pid"); do
        kib=$(high_water "$child")
        [ "${kib:-0}" -le "$agent" ] || agent=$kib
    done
    echo "$(high_water "$pid") $agent"
}

# Each rank says that it is up, then all wait for one word.
thousand() { # RANKS ARGUMENTS of hvdrun
    local ranks=$1 memory
    shift
    mkfifo "$T/go"
    exec 6<> "$T/go"
    mark_time
    # shellcheck disable=SC2016
    start -np "$ranks" "$@" sh -c 'echo up; read -r _ < "$1"' sh "$T/go"
    until_true 60 out_has '^up$' "$ranks" || fail "not all of $ranks ranks came up: $(grep -c up "$T/out")"
    memory=$(peak_memory)
    yes 2>/dev/null | head -n "$ranks" >&6
    stop_status
    exec 6>&-
    expect_status 0
    expect_no_err
    echo "# $ranks ranks: $(((${EPOCHREALTIME/./} - since) / 1000)) ms; peak KiB of hvdrun and its largest agent here: $memory"
    [ -n "$E2E_SANITIZE" ] || [ "${memory% *}" -le 32768 ] || fail "hvdrun grew to ${memory% *} KiB"
}

case_ranks_beyond_64_may_all_call_hvd_init_at_once() {
    hvd -np 130 "$BUILD/bench/hvd_bench" --bytes 4 --iterations 3 --warmup 1 --json
    expect_status 0
    expect_out '"ranks":130'
}

slow_a_thousand_ranks() {
    thousand 1000
}

slow_three_thousand_ranks() {
    thousand 3000
}

slow_a_thousand_ranks_use_collectives() {
    hvd -np 1000 "$BUILD/bench/hvd_bench" --bytes 4 --iterations 2 --warmup 1 --json
    expect_status 0
    expect_out '"ranks":1000'
}

# ---- many hosts, all of them here ---------------------------------------------------------------------------------------
# A session, an engine and a rank for each; sets $fan to the options.
fan_out() { # HOSTS
    # shellcheck disable=SC2016
    printf '#!/bin/sh\nexec sh -c "$2"\n' > "$T/rsh"
    chmod 755 "$T/rsh"
    fan=(--rsh "$T/rsh {host}" -np "$1" -H "$(seq -f 'fan%g:1' -s , "$1")")
}

case_ranks_that_end_together_are_told_together() {
    local told
    fan_out 16
    hvd --log-level debug "${fan[@]}" "$BUILD/bench/hvd_bench" --bytes 4 --iterations 2 --warmup 1 --json
    expect_status 0
    expect_out '"ranks":16'
    told=$(grep -c 'are told of [0-9]* ranks that ended' "$T/err")
    [ "$told" -le 8 ] || fail "the hosts were told $told times of 16 ranks"
}

slow_256_hosts_with_engines() {
    fan_out 256
    mark_time
    hvd "${fan[@]}" "$BUILD/bench/hvd_bench" --bytes 4 --iterations 2 --warmup 1 --json
    expect_status 0
    expect_no_err
    expect_out '"ranks":256'
    echo "# 256 hosts: $(((${EPOCHREALTIME/./} - since) / 1000)) ms"
    leave_within=5
}

# The word that ends the job reaches the agent 10 s late, after all ranks have ended with 0.
slow_a_good_job_is_not_failed_by_a_slow_agent() {
    command -v python3 > /dev/null || skip "no python3 here"
    cat > "$T/rsh" <<'EOT'
#!/usr/bin/env python3
import os, select, subprocess, sys, time
agent = subprocess.Popen(["sh", "-c", sys.argv[2]], stdin=subprocess.PIPE)
late = False
while True:
    select.select([0], [], [])  # the agent makes what it shares with us non-blocking
    piece = os.read(0, 65536)
    if not piece:
        break
    if not late and os.path.exists(os.path.dirname(sys.argv[0]) + "/ended"):
        late = True
        time.sleep(10)
    try:
        os.write(agent.stdin.fileno(), piece)
    except BrokenPipeError:
        break
agent.stdin.close()
sys.exit(agent.wait())
EOT
    chmod 755 "$T/rsh"
    mark_time
    hvd --rsh "$T/rsh {host}" -H slow:1 sh -c ': > "$0/ended"; echo done' "$T"
    expect_status 0
    expect_out '^done$'
    expect_no_err
    [ "${EPOCHREALTIME/./}" -ge $((since + 9000000)) ] || fail "nothing was late"
}

# ---- too few of something: one line beforehand, with the limit's name, 125, and nothing started -------------------------
refused() { # REGEX COMMAND...: the last word makes a file, $T/started, if it ever runs
    local wanted=$1
    shift
    rm -f "$T/started"
    run "$@"
    expect_status 125
    one_clear_line "$wanted" "$*"
    [ ! -e "$T/started" ] || fail "a worker was started"
}

as_user() { # COMMAND LINE: as a user without privileges, who has no other processes
    setpriv --reuid 10093 --regid 10093 --clear-groups -- env -C "$OPEN" "HOME=$OPEN" TMPDIR=/tmp XDG_RUNTIME_DIR= bash -c "$1"
}

case_too_few_descriptors_for_the_pipes() {
    # shellcheck disable=SC2016
    refused '^hvdrun: localhost: 300 ranks need about 6[0-9]{2} descriptors, but the limit is 400 \(RLIMIT_NOFILE, ulimit -Hn\)$' \
        bash -c 'ulimit -n 400; "$@"' bash "$HVDRUN" -np 300 touch "$T/started"
    # A low soft limit is raised.
    # shellcheck disable=SC2016
    run bash -c 'ulimit -Sn 100; "$@"' bash "$HVDRUN" -np 100 true
    expect_status 0
}

case_too_few_descriptors_for_output_files() {
    # shellcheck disable=SC2016
    refused '^hvdrun: 1 hosts and 400 output files need about 4[0-9]{2} descriptors here, but the limit is 300 \(RLIMIT_NOFILE' \
        bash -c 'ulimit -n 300; "$@"' bash "$HVDRUN" -np 200 --output-filename "$T/logs" touch "$T/started"
    [ ! -e "$T/logs" ] || fail "files were made"
}

case_too_few_descriptors_to_begin_with() {
    local few
    for few in 4 5 7 9 12; do
        # shellcheck disable=SC2016
        refused '^hvdrun: .*(RLIMIT_NOFILE|Too many open files)' \
            bash -c 'ulimit -n "$1"; shift; exec "$@"' bash $few "$HVDRUN" -np 1 touch "$T/started"
    done
}

case_too_few_processes_for_the_user() {
    [ "$(id -u)" = 0 ] || skip "needs root, to become a user without processes"
    open_to_others
    # shellcheck disable=SC2016
    refused '^hvdrun: localhost: 200 ranks need as many processes, but [0-9]+ are in use and the limit is 100 \(RLIMIT_NPROC, ulimit -u\)$' \
        as_user "ulimit -u 100; exec '$HVDRUN' -np 200 touch '$OPEN/started'"
    [ ! -e "$OPEN/started" ] || fail "a worker was started"
    run as_user "ulimit -u 100; exec '$HVDRUN' -np 60 true"
    expect_status 0
}

case_too_few_processes_in_a_cgroup() {
    local group=/sys/fs/cgroup/pids/hvd-test.$$
    mkdir -p "$group/inner" 2>/dev/null && [ -e "$group/pids.max" ] || skip "the kernel gives no pids cgroup (v1) of our own here"
    echo 80 > "$group/pids.max" # above our own
    # shellcheck disable=SC2016
    refused "^hvdrun: localhost: 100 ranks need as many processes, but [0-9]+ are in use and the limit is 80 \(pids.max of cgroup $group\)\$" \
        bash -c 'echo $$ > "$1/inner/cgroup.procs"; shift; exec "$@"' bash "$group" "$HVDRUN" -np 100 touch "$T/started"
    # shellcheck disable=SC2016
    run bash -c 'echo $$ > "$1/inner/cgroup.procs"; shift; exec "$@"' bash "$group" "$HVDRUN" -np 50 true
    rmdir "$group/inner" "$group"
    expect_status 0
}
