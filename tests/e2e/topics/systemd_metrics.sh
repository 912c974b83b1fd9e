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
    [ ! -e "$T/shown" ] || { cp "$T/shown" "$T/shown.before"; before=("$T/shown.before"); }
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

both_ready() {
    [ "$(grep -c ready "$T/job.out")" = 2 ]
}

slow_a_silent_launcher_and_a_lost_host_are_causes() {
    command -v python3 > /dev/null || skip "no python3 here"
    boot 'metrics: yes'
    start_as alice -np 1 --heartbeat-timeout 1 sh -c 'echo ready; exec sleep 60'
    until_job '^ready'
    there pkill -STOP -x hvdrun
    failures heartbeat 1
    there pkill -KILL -x hvdrun
    kill -CONT $pid # nsenter stopped with it
    stop_job
    all_over
    shut
    two_nodes 'slots: 2' 'metrics: yes'
    on_nodes job --heartbeat-timeout 2 -np 2 -H n1:1,n2:1 sh -c 'echo ready; exec sleep 60'
    until_true 20 both_ready || fail "it did not start: $(cat "$T/job.err")"
    SYSTEMD_DIR=$T/node2 "$machine" down
    ended job 125
    rm "$T/shown" # of another node
    export SYSTEMD_DIR=$T/node1
    failures host_lost 1
    expect_metric 'hvd_node_jobs_ended_total\{outcome="failed"\} 1'
    unset SYSTEMD_DIR
    all_down
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

journal() { # FIELD=VALUE...: its lines
    there journalctl -o cat "$@"
}

# bob's job floods the journal, alice's fails at the same time: what her session says of her ranks is there, and of his no more than the
# journal takes of one unit in its time.
slow_a_flood_of_one_job_hides_nothing_of_another() {
    local job
    cat > "$T/flood.py" << 'END'
import socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.connect("/run/systemd/journal/socket")
for i in range(20000):
    s.send(b"MESSAGE=flood %d\nPRIORITY=6\nFLOOD=1\n" % i)
print("flooded", flush=True)
sys.stdin.read()
END
    command -v /usr/bin/python3 > /dev/null || skip "no python3 here"
    boot
    conf 'slots: 200'
    start_as bob -np 1 /usr/bin/python3 "$T/flood.py"
    as alice -np 2 sh -c '[ $HOROVOD_RANK = 0 ] && exit 3; exec sleep 20'
    expect_status 3
    until_job flooded
    stop_job
    job=$(there journalctl -o json --output-fields=JOB JOB_USER=alice | sed -n '1s/.*"JOB":"\([^"]*\)".*/\1/p')
    until_true 5 has_rank_lines "$job" || fail "$(journal "JOB=$job")"
    expect_same 1 "$(journal "JOB=$job" RANK=0 PRIORITY=4 | grep -c "^rank 0 (pid [0-9]*) of job $job ended: exit status 3$")" 'lines that say why'
    expect_same 1 "$(journal "JOB=$job" RANK=1 | grep -c ', with its job$')" 'lines of the other'
    expect_same 20001 "$(there id -u alice)" 'her number'
    [ "$(journal "JOB=$job" _UID=20001 HOST="$(there hostname)" | wc -l)" -ge 4 ] || fail "her session's lines: $(journal "JOB=$job")"
    [ "$(journal FLOOD=1 | wc -l)" -lt 10000 ] || fail "$(journal FLOOD=1 | wc -l) lines of a flood"
    as alice -np 150 true
    expect_status 0
    job=$(there journalctl -o json --output-fields=JOB JOB_USER=alice | sed -n '$s/.*"JOB":"\([^"]*\)".*/\1/p')
    [ "$(journal "JOB=$job" _UID=20001 | wc -l)" -le 200 ] || fail 'a session has no limit of its own'
    shut
}

has_rank_lines() { # JOB
    [ "$(journal "JOB=$1" RANK=0 | wc -l)" = 2 ] && [ "$(journal "JOB=$1" RANK=1 | wc -l)" = 2 ]
}
