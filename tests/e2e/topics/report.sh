# shellcheck shell=bash disable=SC2016,SC2034,SC2154
# --report FILE: how a job went, for programs.

needs_python() {
    command -v python3 > /dev/null || skip "no python3 here"
}

# report EXPRESSION: of the report r, in Python, must be true
report() {
    python3 -c 'import json, sys
r = json.load(open(sys.argv[1]))
assert eval(sys.argv[2]), sys.argv[2]' "$T/report.json" "$1" 2> "$T/python" || fail "$(tail -n 1 "$T/python"): $(cat "$T/report.json")"
}

case_a_good_job() {
    needs_python
    hvd --report "$T/report.json" -np 3 sh -c 'printf 12345; n=0; while [ $n -lt 100000 ]; do n=$((n + 1)); done' 'ä "q"'
    expect_status 0
    expect_no_err
    report 'r["exit_status"] == 0 and r["cause"] is None and r["size"] == 3'
    report 'r["command"][0] == "sh" and r["command"][3] == "ä \"q\""'
    report '[p["phase"] for p in r["phases"]] == ["connecting", "starting", "running", "ending"]'
    report 'all(a["end"] == b["start"] for a, b in zip(r["phases"], r["phases"][1:]))'
    report 'len(r["hosts"]) == 1 and r["hosts"][0]["ranks"] == 3 and r["hosts"][0]["error"] is None'
    report '[k["rank"] for k in r["ranks"]] == [0, 1, 2] and len({k["pid"] for k in r["ranks"]}) == 3'
    report 'all(0 < k["start"] < k["end"] <= r["took"] for k in r["ranks"])'
    report 'all(k["status"] == 0 and k["signal"] is None and k["output_bytes"] == 5 for k in r["ranks"])'
    report 'all(100 < k["peak_kib"] < 1000000 and 0.01 < k["user_time"] + k["system_time"] < 60 for k in r["ranks"])'
    [ "$(find "$T" -mindepth 1 -name 'report*' | wc -l)" = 1 ] || fail "a partial report was left"
}

case_a_failed_job() {
    needs_python
    echo old > "$T/report.json"
    hvd --report "$T/report.json" -np 3 sh -c '[ "$HOROVOD_RANK" = 1 ] || exec sleep 60; echo why >&2; sleep 0.2; kill -SEGV $$'
    expect_status 139
    report 'r["exit_status"] == 139'
    report 'r["cause"]["rank"] == 1 and r["cause"]["pid"] == r["ranks"][1]["pid"] and "signal 11" in r["cause"]["how"]'
    report '0.2 <= r["cause"]["after"] < 10 and r["cause"]["stderr"] == ["why"]'
    report 'r["ranks"][1]["signal"] == 11 and r["ranks"][1]["status"] is None and not r["ranks"][1]["by_us"]'
    report 'r["ranks"][0]["signal"] == 15 and r["ranks"][0]["by_us"] and r["ranks"][2]["by_us"]'
}

case_a_job_that_did_not_start() {
    needs_python
    hvd --report "$T/report.json" -np 2 no-such-command-anywhere
    expect_status 127
    report '"no-such-command-anywhere" in r["cause"]["text"] and "rank" not in r["cause"]'
    report '[p["phase"] for p in r["phases"]] == ["connecting", "ending"]'
    report 'all(k["pid"] is None and k["end"] is None for k in r["ranks"])'
}

case_a_report_that_cannot_be_written() {
    local wrong
    mkfifo "$T/pipe"
    for wrong in /no/such/directory/report "$T" "$T/pipe" /dev/null; do
        bad_input "^hvdrun: --report:? .*$wrong" --report "$wrong" touch "$T/started"
    done
    mkdir "$T/gone"
    hvd --report "$T/gone/report" -np 1 sh -c "rmdir '$T/gone'; exit 9"
    expect_status 9
    expect_count 1 "^hvdrun: error: --report: .*$T/gone/report" "$T/err"
    [ -p "$T/pipe" ] || fail "replaced a pipe"
    [ -c /dev/null ] || fail "replaced a device"
}

# In a memory cgroup of its own with a limit, of either version.
case_a_rank_without_memory() {
    local top=/sys/fs/cgroup/memory limit=memory.limit_in_bytes group
    if [ ! -d $top ]; then
        top=/sys/fs/cgroup limit=memory.max
    fi
    group=$top/hvdtest-$$
    mkdir "$group" 2> /dev/null || skip "the kernel, or this container, lets no cgroup be made here"
    # shellcheck disable=SC2064
    trap "rmdir '$group'; rm -rf '$XDG_RUNTIME_DIR'" EXIT
    { echo $((64 << 20)) > "$group/$limit"; } 2> /dev/null || skip "the kernel has no limit of memory for this cgroup"
    [ ! -e "$group/memory.swap.max" ] || echo 0 > "$group/memory.swap.max"
    run bash -c 'echo $$ > "$0/cgroup.procs" && exec "$@"' "$group" "$HVDRUN" --report "$T/report.json" -np 2 \
        sh -c '[ "$HOROVOD_RANK" = 1 ] || exec sleep 60; exec tail /dev/zero'
    expect_status 137
    expect_err '^hvdrun: rank 1 on .* failed first: killed by the kernel for lack of memory \(OOM\), '
    hvd -np 1 sh -c 'kill -KILL $$'
    expect_err 'killed by signal 9'
    command -v python3 > /dev/null || return 0
    report 'r["ranks"][1]["oom"] and r["ranks"][1]["signal"] == 9 and not r["ranks"][0]["oom"]'
}

case_a_job_that_cannot_be_placed() {
    needs_python
    hvd --report "$T/report.json" -np 5 -H localhost:2 true
    expect_status 2
    report 'r["exit_status"] == 2 and "-np 5" in r["cause"]["text"] and r["ranks"] == [] and r["hosts"] == []'
}

case_a_host_that_cannot_be_used() {
    needs_python
    hvd --report "$T/report.json" --agent-path /no/such/agent -np 1 true
    expect_status 125
    report 'r["exit_status"] == 125 and "/no/such/agent" in r["cause"]["text"] and r["hosts"][0]["error"]'
    report 'r["unreachable"] == [] and r["not_swept"] == [] and r["leftovers"] == []'
}

# The job had gone on after rank 1: both are told, and the limit decides.
case_a_limit_after_a_failure() {
    needs_python
    hvd --report "$T/report.json" --on-failure continue --timeout 0.7 -np 2 sh -c '[ "$HOROVOD_RANK" = 0 ] || exit 9; exec sleep 60'
    expect_status 124
    expect_err '^hvdrun: rank 1 on .* failed first: exit status 9'
    expect_err '^hvdrun: the job went on; the cause of its end: the time limit of 0.7 s'
    report 'r["exit_status"] == 124 and r["cause"]["rank"] == 1 and "--timeout" in r["ended_by"]'
}

case_a_signal_after_a_failure() {
    start --on-failure continue -np 2 sh -c '[ "$HOROVOD_RANK" = 0 ] || exit 9; echo ready; exec sleep 60'
    until_out 10 ready
    sleep 0.3
    kill -TERM $pid
    stop_status
    expect_status 9
    expect_err 'failed first: exit status 9'
    expect_err 'the cause of its end: ended by signal 15'
}

# Its agent begins late, and so its first answer says little of its clock, which is ours.
late_and_quick() { # ARGUMENTS of hvdrun: with a host of each kind
    # shellcheck disable=SC2016
    printf '#!/bin/sh\n[ "$1" = quick ] || sleep 0.8\nexec sh -c "$2"\n' > "$T/rsh"
    chmod 755 "$T/rsh"
    hvd --report "$T/report.json" --rsh "$T/rsh {host}" -H quick:1,late:1 "$@"
}

case_starts_on_a_host_that_answered_late() {
    needs_python
    late_and_quick sh -c 'exit 0'
    expect_status 0
    report 'r["hosts"][1]["host"] == "late" and r["phases"][0]["end"] >= 0.8'
    report 'all(r["phases"][1]["start"] <= k["start"] <= r["phases"][1]["end"] for k in r["ranks"])'
    report 'all(k["start"] <= k["end"] <= r["phases"][2]["end"] for k in r["ranks"])'
}

case_the_first_cause_when_a_host_answered_late() {
    needs_python
    late_and_quick --on-failure continue sh -c 'echo "$HOROVOD_RANK"; [ "$HOROVOD_RANK" = 1 ] || { sleep 0.3; exit 3; }; sleep 0.5; exit 4'
    expect_status 3
    expect_err '^hvdrun: rank 0 on quick .* failed first: exit status 3'
    report '0.1 <= r["ranks"][1]["end"] - r["ranks"][0]["end"]'
}
