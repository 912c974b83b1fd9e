# shellcheck shell=bash disable=SC2034,SC2154
# hvdctl trace: what the ranks of a running job do.
CULPRIT=$BUILD/tests/culprit CTL=$BUILD/hvdctl

# Python's parser knows `trace`, `events` (by phase), and `slices` of the ranks.
look_into() { # FILE PROGRAM
    python3 -c "import collections, json, sys
trace = json.load(open('$1'))
events = collections.defaultdict(list)
for event in trace['traceEvents']:
    events[event['ph']].append(event)
lanes = {(e['pid'], e['tid']): e['args']['name'] for e in events['M'] if e['name'] == 'thread_name'}
slices = lambda rank: [e for e in events['X'] if lanes[e['pid'], e['tid']].split(',')[0] == 'rank %d' % rank]
$2" > "$T/looked" 2>&1 || fail "the trace: $(cat "$T/looked")"
}

begin_job() { # hvdrun's ARGUMENTS
    start --job-name "t$$" "$@"
    until_true 10 running || fail "the job does not run"
}

running() {
    "$CTL" status "t$$" 2> /dev/null | grep -q 'allreduce'
}

trace_for() { # hvdctl's ARGUMENTS
    run "$CTL" trace "t$$" "$@"
}

case_what_the_ranks_do() {
    begin_job -np 3 "$CULPRIT" slow 1
    trace_for --seconds 1
    cp "$T/out" "$T/said"
    kill "$pid"
    wait "$pid"
    expect_status 0
    expect_count 1 "^t$$-[0-9a-f]+\.trace\.json: [0-9]+ operations of 3 ranks; ui\.perfetto\.dev opens it\$" "$T/said"
    look_into "$(echo "t$$"-*.trace.json)" "
assert [e['args']['name'] for e in events['M'] if e['name'] == 'process_name'] == ['localhost'], events['M']
assert set(lanes.values()) == {'rank 0', 'rank 1', 'rank 2'}, lanes
for rank in range(3):
    mine = slices(rank)
    assert 100 < len(mine) < 4000, len(mine)
    assert {e['name'] for e in mine} == {'layer.%d.weight' % i for i in range(4)}, mine[:4]
    assert all(a['ts'] + a['dur'] <= b['ts'] + 0.01 for a, b in zip(mine, mine[1:]))
    assert max(e['ts'] for e in mine) - min(e['ts'] for e in mine) > 700e3
    assert all(e['args']['bytes'] == 4 and e['args']['type'] == 'float32' and e['cat'] == 'allreduce' for e in mine)
busy = [e['args']['ranks'] for e in events['C'] if e['name'] == 'processors in use']
assert len(busy) >= 4 and 0.5 < max(busy) < 64, busy
# The slow rank comes last to most first layers, and each arrow ends in an operation that began before.
starts, ends = {e['id']: e for e in events['s']}, {e['id']: e for e in events['f']}
assert starts and starts.keys() == ends.keys()
late = collections.Counter(lanes[e['pid'], e['tid']] for e in starts.values() if e['ts'] - min(
    s['ts'] for r in range(3) for s in slices(r) if s['ts'] <= e['ts'] <= s['ts'] + s['dur'] + 0.01) > 500)
assert late.most_common(1)[0][0] == 'rank 1', late"
}

case_what_is_still_known() {
    begin_job -np 2 "$CULPRIT" loop 1
    sleep 0.3
    trace_for --seconds 0 --file -
    cp "$T/out" "$T/trace"
    trace_for --seconds 0 --file "$T/no/such"
    expect_status 1
    one_clear_line '^hvdctl: cannot write .*/no/such: No such file or directory$' 'a file'
    ln -s "$T/other" "$T/link"
    trace_for --seconds 0 --file "$T/link"
    expect_status 1
    [ ! -e "$T/other" ] || fail 'a symbolic link was followed'
    touch "$T/old"
    chmod 644 "$T/old"
    trace_for --seconds 0 --file "$T/old"
    expect_same 600 "$(stat -c %a "$T/old")" 'the mode of the file'
    kill "$pid"
    wait "$pid"
    look_into "$T/trace" "
assert min(e['ts'] for e in events['X']) == 0, min(e['ts'] for e in events['X'])
last = slices(0)[-1]
assert last['args'].get('pending') and last['dur'] > 200e3, last
assert not slices(1)[-1]['args'].get('pending')
assert slices(0)[0]['name'] == 'hvd.barrier', slices(0)[0]"
}

# Operations at one time do not hide each other.
case_operations_beside_each_other() {
    begin_job -np 2 "$CULPRIT" async 1
    trace_for --seconds 0 --file "$T/trace"
    kill "$pid"
    wait "$pid"
    look_into "$T/trace" "
assert 'rank 0, beside' in lanes.values(), lanes
for lane in lanes:
    mine = sorted((e['ts'], e['dur']) for e in events['X'] if (e['pid'], e['tid']) == lane)
    assert all(a + d <= b + 0.01 for (a, d), (b, _) in zip(mine, mine[1:])), lane"
}

case_jobs_without_operations() {
    start --job-name "t$$" -np 2 sleep 20
    until_true 10 "$CTL" status "t$$" > /dev/null 2>&1
    trace_for --seconds 0
    expect_status 1
    one_clear_line "^hvdctl: job t$$-[0-9a-f]+ has recorded no operations\$" 'no libhvd'
    ! compgen -G "t$$*.trace.json" > /dev/null || fail 'a trace was written'
    kill "$pid"
    wait "$pid"
    trace_for
    expect_status 1
    one_clear_line "^hvdctl: no job on this host is named t$$\$" 'no job'
}
