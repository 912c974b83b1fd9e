# shellcheck shell=bash disable=SC2034,SC2154
# What the managed agent tells Prometheus, and the journal of jobs, as its unit runs it.
needs_root=1
limit=60
# shellcheck source=tests/e2e/systemd_host.sh
. "$top/tests/e2e/systemd_host.sh"

metrics() { # PATH [OPTION of curl...]: the body in $T/shown, the status in $status
    local path=$1
    shift
    status=$(there curl -s -m 5 -D - -o /proc/self/fd/3 "$@" --unix-socket /run/hvd/metrics.sock "http://localhost$path" 3> "$T/shown" > "$T/head" && sed -n '1s/^HTTP.* \([0-9]*\) .*/\1/p' "$T/head" | tr -d '\r')
}

expect_metric() { # LINE
    expect_count 1 "^$1\$" "$T/shown"
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
    ! grep -vE '^(# (HELP|TYPE) hvd_[a-z_]+ .+|hvd_[a-z_]+(\{([a-z]+="[^"]*",?)+\})? [0-9.e+-]+)$' "$T/shown" || fail 'that is no line of the format'
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
