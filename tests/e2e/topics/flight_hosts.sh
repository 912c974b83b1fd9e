# shellcheck shell=bash disable=SC2034,SC2154
# The last operations of the ranks of several hosts, in one file on hvdrun's host.
hosts=2

case_the_ranks_of_two_hosts() {
    hvd -np 4 -H "$H1:2,$H2:2" --timeout 5 "$BUILD/tests/culprit" loop 2
    expect_status 124
    expect_count 1 "^hvdrun: the last operations of 4 ranks: $XDG_STATE_HOME/hvdrun/[^/ ]+\.flight\.json$" "$T/err"
    python3 -c "import glob, json, sys
job = json.load(open(glob.glob('$XDG_STATE_HOME/hvdrun/*.json')[0]))
ops = job['operations']
engines = [o for o in ops if o['rank'] is None]
assert {o['host'] for o in engines} == {'$H1', '$H2'} and engines[-1]['status'] in ('ok', 'pending'), engines[-1]
last = {rank: [o for o in ops if o['rank'] == rank][-1] for rank in range(4)}
assert [last[rank]['host'] for rank in range(4)] == ['$H1', '$H1', '$H2', '$H2'], last
# A rank of one host may hear of the end of the other host.
assert last[2]['status'] == 'ok' and all(last[rank]['status'] in ('pending', 'peer') for rank in (0, 1, 3)), last
assert last[0]['tensor'] == last[1]['tensor'] == last[3]['tensor'] != last[2]['tensor'], last
events = {host: [e for e in job['events'] if e['host'] == host] for host in ('$H1', '$H2')}
for host, own in events.items():
    assert 5 < len(own) <= 256 and own == sorted(own, key=lambda e: e['time']), own
    assert any('running' in e['text'].lower() for e in own), own
assert len(job['events']) == sum(map(len, events.values()))
# The operation before has ended on all hosts within a moment of one clock.
before = [[o for o in ops if o['rank'] == rank][last[2]['number'] - 1] for rank in range(4)]
assert len({o['tensor'] for o in before}) == 1, before
assert max(o['ended'] for o in before) - min(o['ended'] for o in before) < 0.5, before" > "$T/looked" 2>&1 || fail "the record: $(cat "$T/looked")"
}
