# shellcheck shell=bash disable=SC2034,SC2154
# What the managed agent tells Prometheus, as its unit runs it.
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
    ! grep -vE '^(# (HELP|TYPE) hvd_[a-z_]+ .+|hvd_[a-z_]+(\{([a-z]+="[^"]*",?)+\})? [0-9.e+]+)$' "$T/shown" || fail 'that is no line of the format'
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
