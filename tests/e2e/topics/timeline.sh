# shellcheck shell=bash disable=SC2034,SC2154
# The timeline's files: strict JSON, complete, and every event that began has ended.
LAGGARD=$BUILD/tests/laggard

# events [cut | killed] FILE...: strict JSON (a cut one after adding the bracket); prints "PID PHASE LANE NAME" of
# every event, pairs checked. The events of a killed worker 0 may be open.
events() {
    /usr/bin/python3 - "$@" << 'END' > "$T/events" 2> "$T/why" || fail "$* $(tail -n 1 "$T/why")"
import json, sys
files = sys.argv[1:]
cut = files[0] == 'cut'
killed = files[0] == 'killed'
for file in files[cut or killed:]:
    text = open(file).read()
    events = json.loads(text + ']' if cut else text, parse_constant=None)
    lanes, open_ = {}, {}
    for e in events:
        if e['ph'] == 'M' and e['name'] == 'thread_name':
            lanes[e['pid'], e['tid']] = e['args']['name']
    for e in sorted((e for e in events if 'ts' in e), key=lambda e: e['ts']):
        stack = open_.setdefault((e['pid'], e['tid']), [])
        if e['ph'] == 'B':
            stack.append(e['name'])
        elif e['ph'] == 'E':
            assert stack and stack.pop() == e['name'], 'unbalanced: %s' % e
        print(e['pid'], e['ph'], lanes[e['pid'], e['tid']], e['name'])
    left = [lane for lane, names in open_.items() if names and not (killed and lane[0] == 0)]
    assert cut or not left, 'open: %s' % left
END
}

needs_python() {
    /usr/bin/python3 -c '' 2> /dev/null || skip "no python3 here"
}

expect_event() { # COUNT LINE
    expect_count "$1" "^$2\$" "$T/events"
}

case_every_rank_writes_a_file() {
    needs_python
    cd "$T" || fail "no directory"
    hvd -np 2 --timeline-filename t.%r.json "$LAGGARD" 100 1
    expect_status 0
    expect_no_err
    expect_same 't.0.json t.1.json t.engine.localhost.json' "$(echo t.*)" 'the files'
    events t.0.json t.1.json t.engine.localhost.json
    expect_event 2 '0 B grad.3 NEGOTIATE_ALLREDUCE'
    expect_event 2 '1 E grad.3 ALLREDUCE'
    expect_event 1 '1 X large "1" MEMCPY_OUT'
    expect_event 1 '0 X large "1" MEMCPY_IN'
    expect_event 0 '.* CYCLE_START'
}

# Without %r they become one at the end; an older file of that name is another job's.
case_one_file_for_all() {
    needs_python
    cd "$T" || fail "no directory"
    echo '[]' > t.7.json
    touch -d '1 hour ago' t.7.json
    hvd -np 2 --timeline-filename t.json "$LAGGARD" 100 1
    expect_status 0
    one_clear_line "^hvdrun: the timeline is $T/t.json \(3 processes\)$" 'the place'
    expect_same 't.7.json t.json' "$(echo t.*)" 'the files'
    events t.json
    grep -q '"engine of localhost"' t.json || fail 'the engine is left out'
    expect_same '0 1' "$(cut -d' ' -f1 "$T/events" | sort -un | tr '\n' ' ' | sed 's/ $//')" 'the processes'
    expect_event 2 '0 B grad.3 NEGOTIATE_ALLREDUCE'
    expect_event 2 '1 E grad.3 ALLREDUCE'
    hvd -np 2 --timeline-filename "$T/none.json" true # no libhvd, no timeline
    expect_no_err
    [ ! -e none.json ] || fail 'a timeline of nothing'
}

# Ranks change their numbers, and workers do not: each has one file, with all memberships.
case_an_elastic_job() {
    needs_python
    cd "$T" || fail "no directory"
    TRAINEE=0:20:kill hvd -np 3 --min-np 1 --blacklist-cooldown-range 1 2 --timeline-filename t.json "$BUILD/tests/trainee" 300
    expect_status 0
    expect_out '^enter 3 [0-9]+ 2 3 3 0$'
    expect_err "^hvdrun: the timeline is $T/t.json \(5 processes\)$"
    expect_same 't.json' "$(echo t.*)" 'the files'
    events killed t.json
    for worker in 0 1 2 3; do
        grep -q "\"worker $worker\"" t.json || fail "worker $worker is left out"
    done
    sums=$(grep -c '^1 B .* NEGOTIATE_ALLREDUCE' "$T/events")
    [ "$sums" -ge 300 ] || fail "worker 1 took 300 steps, and its timeline has $sums"
}

case_the_variables_and_marks() {
    needs_python
    export HOROVOD_TIMELINE=$T/%r/t HOROVOD_TIMELINE_MARK_CYCLES=1
    mkdir "$T/0" "$T/engine.localhost"
    hvd -np 1 "$LAGGARD" 0
    expect_status 0
    events "$T/0/t" "$T/engine.localhost/t"
    grep -q '^0 i cycles CYCLE_START' "$T/events" || fail "no marks"
    hvd -np 1 --no-timeline-mark-cycles "$LAGGARD" 0
    events "$T/0/t"
    expect_event 0 '.* CYCLE_START'
}

case_a_file_that_cannot_be_written_is_named() {
    hvd -np 1 --timeline-filename "$T/no/such" "$LAGGARD" 0
    expect_status 1
    expect_err 'hvd_init: HVD_ERR_[A-Z]*; cannot write the timeline .*/no/such.0: No such file'
}

case_killed_ranks_leave_files_that_load() {
    needs_python
    start -np 2 --timeline-filename "$T/t.%r.json" "$TRAIN" --steps 1000000
    until_out 20 'loss='
    sleep 0.3
    kill -KILL "$(pgrep -P "$(pgrep -P "$pid" -x hvdagent | head -n 1)" -x train | head -n 1)" 2> /dev/null || kill -KILL "$pid"
    stop_status
    leave_within=8
    [ "$(head -c 1 "$T/t.0.json")" = '[' ] || fail "no file"
    events cut "$T"/t.[01].json
    grep -q '^0 E .* ALLREDUCE' "$T/events" || fail "there is nothing in it"
}
