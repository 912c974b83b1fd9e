# shellcheck shell=bash disable=SC2034,SC2154
# The page of a job of two hosts.
hosts=2
CULPRIT=$BUILD/tests/culprit CTL=$BUILD/hvdctl

knows_traffic() { # of both hosts
    "$CTL" page pages --json > "$T/report" && [ "$(grep -o 'received_kib_per_second": "[0-9 -]*[1-9]' "$T/report" | wc -l)" -ge 2 ]
}

case_all_hosts_are_in_it() {
    start --job-name pages -np 4 -H "$H1:2,$H2:2" "$CULPRIT" healthy 0
    until_out 15 ready 4
    until_true 15 knows_traffic || fail "no traffic is known: $(cat "$T/report")"
    on 2 "$CTL page pages" > "$T/shown" 2> "$T/shown.err"
    expect_same 1 $? 'the status on the other host'
    grep -qE '^hvdctl: job pages-[0-9a-f]+-?[0-9]*: hvdrun alone has the report: ask on the host where hvdrun runs$' "$T/shown.err" || fail "$(cat "$T/shown.err")"
    "$CTL" kill pages > /dev/null
    stop_status
    python3 -c "import json
report = json.load(open('$T/report'))
assert [host['host'] for host in report['history']['hosts']] == ['$H1', '$H2'], report['history']
assert all(host['received_kib_per_second'] for host in report['history']['hosts']), report['history']
assert all(rank['history']['waiting_percent'] for rank in report['ranks']), report['ranks']" > "$T/looked" 2>&1 || fail "$(cat "$T/looked")"
}
