# shellcheck shell=bash disable=SC2034,SC2154
# What the managed agent tells Prometheus, and the journal of jobs, as its unit runs it.
needs_root=1
limit=60
# shellcheck source=tests/e2e/systemd_host.sh
. "$top/tests/e2e/systemd_host.sh"

metrics() { # PATH [OPTION of curl...]: the body in $T/shown, the status in $status
    local path=$1
    shift
    status=$(there curl -s -m 5 -D - -o /proc/self/fd/3 "$@" --unix-socket /run/hvd/metrics.sock "http://localhost$path" 3> "$T/body" > "$T/head" && mv "$T/body" "$T/shown" && sed -n '1s/^HTTP.* \([0-9]*\) .*/\1/p' "$T/head" | tr -d '\r')
}

expect_metric() { # LINE
    expect_count 1 "^$1\$" "$T/shown"
}

well_formed() { # FILE [FILE-BEFORE]
    python3 "$top/tests/e2e/exposition.py" "$@" 2> "$T/why" || fail "$(cat "$T/why")"
}

shows() { # LINE: in what is told now, which is nowhere less than before; false when nobody tells anything
    local before=()
    [ ! -e "$T/shown" ] || { cp "$T/shown" "$T/before"; before=("$T/before"); }
    metrics /metrics
    [ "$status" = 200 ] || return 1
    well_formed "$T/shown" "${before[@]}"
    grep -qE "^$1\$" "$T/shown"
}

until_shown() { # LINE
    until_true 10 shows "$1" || fail "no $1 in $(grep -v "^#\| 0$" "$T/shown")"
}

agent_runs() {
    [ "$(agent_pid)" != 0 ]
}

failures() { # CAUSE COUNT
    until_shown "hvd_node_failures_total\{cause=\"$1\"\} $2"
}

case_metrics_are_told_when_asked_for() {
    command -v curl > /dev/null || skip "no curl here"
    boot
    as alice -np 1 true
    there test ! -e /run/hvd/metrics.sock || fail 'metrics that nobody asked for'
    conf 'slots: 4' 'metrics: yes'
    there systemctl reload hvdagent
    # shellcheck disable=SC2016
    start_as alice --agent managed -np 3 sh -c 'echo ready; until [ -e '"$T"'/go ]; do sleep 0.05; done'
    until_job '^ready' 3
    as bob --agent managed -np 3 true
    expect_status 125
    metrics /metrics
    expect_same 200 "$status" 'GET /metrics'
    expect_count 1 'Content-Type: text/plain; version=0.0.4' "$T/head"
    expect_metric 'hvd_node_slots 4'
    expect_metric 'hvd_node_slots_leased 3'
    expect_metric 'hvd_node_drained 0'
    expect_metric 'hvd_node_jobs\{user="alice"\} 1'
    expect_metric 'hvd_node_slots_of_user\{user="alice"\} 3'
    expect_metric 'hvd_agent_leases_given_total 2'
    expect_metric 'hvd_agent_leases_ended_total 1'
    expect_metric 'hvd_agent_requests_refused_total 1'
    well_formed "$T/shown"
    expect_metric 'hvd_node_jobs_running 1'
    expect_metric 'hvd_node_jobs_ended_total\{outcome="done"\} 1'
    until_shown 'hvd_node_workers 3'
    expect_metric 'hvd_node_workers_started_total 4'
    there hvdctl metrics > "$T/ctl"
    well_formed "$T/ctl"
    expect_count 1 '^hvd_node_workers_started_total 4$' "$T/ctl"
    metrics /
    expect_same 404 "$status" 'GET /'
    metrics /metrics -X POST
    expect_same 405 "$status" 'POST'
    touch "$T/go"
    stop_job
    conf 'slots: 4'
    there systemctl reload hvdagent
    there test ! -e /run/hvd/metrics.sock || fail 'the socket stays'
    all_over
    shut
}

case_the_journal_knows_jobs_by_their_fields() {
    command -v python3 > /dev/null || skip "no python3 here"
    boot
    as alice --agent managed -np 2 true
    expect_status 0
    all_over
    there journalctl -o json JOB_USER=alice > "$T/journal"
    there hostname > "$T/name"
    python3 -c 'import json, sys
lines = [json.loads(l) for l in open(sys.argv[1])]
host = open(sys.argv[2]).read().strip()
assert len(lines) == 2, lines
for l, end in zip(lines, ["gets 2 slots", "has given its slots back"]):
    assert l["MESSAGE"] == "%s: job %s of alice %s" % (l["HVD_UNIT"], l["JOB"], end), l
    assert l["HVD_UNIT"] == "hvd-%s.service" % l["JOB"] and l["SLOTS"] == "2" and l["PRIORITY"] == "6", l
    assert l["HOST"] == host and l["SYSLOG_IDENTIFIER"] == "hvdagent" and l["_UID"] == "0", l' "$T/journal" "$T/name" 2> "$T/python" || fail "$(cat "$T/python")"
    shut
}

# What the sessions of a node say of their ends comes to its metrics, by cause, and nothing is lost when the agent is killed in between.
slow_failures_are_counted_by_their_causes() {
    command -v python3 > /dev/null || skip "no python3 here"
    boot 'metrics: yes'
    as alice -np 2 true
    until_shown 'hvd_node_jobs_ended_total\{outcome="done"\} 1'
    as alice -np 2 sh -c 'exit 3'
    failures exit_status 1
    # shellcheck disable=SC2016
    as bob -np 1 sh -c 'kill -9 $$'
    failures signal 1
    as bob -np 1 --timeout 1 sleep 30
    failures timeout 1
    as alice -np 1 --max-restarts 2 sh -c 'exit 4'
    until_shown 'hvd_node_restarts_total 2'
    failures exit_status 4
    start_job
    there hvdctl kill "$(unit_of_the_job | sed 's/^hvd-//; s/.service$//')"
    stop_job
    failures cancelled 1
    start_job
    there pkill -KILL -x hvdrun
    stop_job
    failures launcher_lost 1
    start_job
    there pkill -KILL -P "$(there systemctl show -p MainPID --value "$(unit_of_the_job)")"
    stop_job
    failures session_lost 1
    expect_metric 'hvd_node_jobs_ended_total\{outcome="lost"\} 1'
    expect_metric 'hvd_node_jobs_ended_total\{outcome="cancelled"\} 1'
    start_job
    until_shown 'hvd_node_workers 1'
    there systemctl kill -s KILL hvdagent
    until_true 10 agent_started 1 || fail 'it was not started again'
    until_shown 'hvd_node_workers 1'
    there systemctl stop hvdagent.service 2> /dev/null
    touch "$T/go"
    stop_job
    expect_status 0
    until_true 10 agent_runs || fail 'the last report does not start the agent'
    until_shown 'hvd_node_jobs_ended_total\{outcome="done"\} 2'
    failures session_lost 1
    all_over
    shut
}

# Operations, bytes and time of the ranks, also of those that have ended before anybody could ask them.
slow_collectives_are_counted() {
    command -v python3 > /dev/null || skip "no python3 here"
    boot 'metrics: yes'
    local count
    mkdir -p "$T/bin/tests"
    cp "$BUILD/tests/steps" "$T/bin/tests"
    cp -P "$BUILD"/libhvd.so* "$T/bin"
    as alice -np 2 "$T/bin/tests/steps" 20
    expect_status 0
    until_shown 'hvd_node_jobs_ended_total\{outcome="done"\} 1'
    count=$(sed -n 's/^hvd_node_collective_operations_total{kind="allreduce"} //p' "$T/shown")
    [ "$count" -ge 40 ] || fail "$count operations of two ranks in 20 steps"
    ! grep -qE '^hvd_node_collective_(bytes|seconds)_total\{kind="allreduce"\} 0$' "$T/shown" || fail "no bytes or no time: $(cat "$T/shown")"
    shut
}
