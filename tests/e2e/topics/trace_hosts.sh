# shellcheck shell=bash disable=SC2034,SC2154
# hvdctl trace of a job of two hosts.
hosts=2
CULPRIT=$BUILD/tests/culprit CTL=$BUILD/hvdctl

case_one_clock_and_the_traffic() {
    start --job-name both -np 4 -H "$H1:2,$H2:2" "$CULPRIT" slow 3
    until_out 15 ready 4
    "$CTL" trace both --seconds 1.5 --file "$T/trace" > "$T/shown" 2>&1 || fail "$(cat "$T/shown")"
    "$CTL" kill both > /dev/null
    stop_status
    python3 -c "import collections, json
trace = json.load(open('$T/trace'))
events = collections.defaultdict(list)
for event in trace['traceEvents']:
    events[event['ph']].append(event)
names = {e['pid']: e['args']['name'] for e in events['M'] if e['name'] == 'process_name'}
assert names == {0: '$H1', 1: '$H2'}, names
lanes = {(e['pid'], e['tid']): e['args']['name'] for e in events['M'] if e['name'] == 'thread_name'}
assert sorted(lanes.values()) == ['engine', 'engine', 'rank 0', 'rank 1', 'rank 2', 'rank 3'], lanes
# An operation of all hosts ends on all of them within a moment.
ends = collections.defaultdict(list)
for e in events['X']:
    if not e['args'].get('pending') and lanes[e['pid'], e['tid']] != 'engine':
        ends[e['name'], e['args']['operation']].append(e['ts'] + e['dur'])
all_four = [times for times in ends.values() if len(times) == 4]
assert len(all_four) > 20, len(all_four)
spreads = sorted(max(times) - min(times) for times in all_four)
assert spreads[len(spreads) // 2] < 20000, spreads
# The engines' operations lie within those of their ranks.
began = {(e['pid'], e['name'], e['args']['operation']): e['ts'] for e in events['X'] if lanes[e['pid'], e['tid']] in ('rank 1', 'rank 3')}
engines = [e for e in events['X'] if lanes[e['pid'], e['tid']] == 'engine']
assert len(engines) > 100 and {e['cat'] for e in engines} >= {'allreduce'}, len(engines)
inside = [began[key] <= e['ts'] + 200 for e in engines for key in [(e['pid'], e['name'], e['args']['operation'])] if key in began]
assert len(inside) > 20 and sum(inside) > 0.95 * len(inside), (len(inside), sum(inside))
late = collections.Counter(lanes[e['pid'], e['tid']] for e in events['s'])
assert late['rank 3'] > 10, late
traffic = [e['args']['sent'] for e in events['C'] if e['name'] == 'MiB/s between hosts']
assert len(traffic) > 4 and max(traffic) > 0, traffic" > "$T/looked" 2>&1 || fail "$(cat "$T/looked")"
}
