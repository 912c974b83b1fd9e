# shellcheck shell=bash disable=SC2034,SC2154
# The last operations of each rank of a job that has ended: --flight-record, and what is kept of a job that has failed.
CULPRIT=$BUILD/tests/culprit

# What Python's parser makes of the only record in a directory. PROGRAM knows `job`, `ops` and `of(rank)`.
look_into() { # DIRECTORY PROGRAM
    python3 -c "import glob, json, sys
files = glob.glob('$1/*.flight.json')
assert len(files) == 1, files
job = json.load(open(files[0]))
ops = job['operations']
of = lambda rank: [o for o in ops if o['rank'] == rank]
$2" > "$T/looked" 2>&1 || fail "the record: $(cat "$T/looked")"
}

find_engine() { # its process
    local one
    for one in $(own_programs "$pid"); do
        [ "$(cat "/proc/$one/comm" 2> /dev/null)" != hvd-engine ] || { echo "$one" && return; }
    done
    return 1
}

case_a_job_that_failed() {
    hvd -np 3 --timeout 4 "$CULPRIT" loop 1
    expect_status 124
    expect_count 1 "^hvdrun: the last operations of 3 ranks: $XDG_STATE_HOME/hvdrun/[^/ ]+\.flight\.json$" "$T/err"
    look_into "$XDG_STATE_HOME/hvdrun" "
assert job['failed'] and job['ranks'] == 3 and 'time limit' in job['cause'], job['cause']
for rank in (0, 2):
    last = of(rank)[-1]
    assert last['status'] == 'pending' and last['ended'] is None and last['tensor'].startswith('layer.'), last
    assert last['kind'] == 'allreduce' and last['type'] == 'float32' and last['bytes'] == 4, last
    assert 2 < 4.5 - last['began'] < 5, last
late = of(1)[-1]
assert late['status'] == 'ok', late
assert late['number'] == of(0)[-1]['number'] - 1, (late, of(0)[-1])
for rank in range(3):
    mine = of(rank)
    assert [o['number'] for o in mine] == list(range(1, len(mine) + 1))
    assert mine[0]['tensor'] == 'hvd.barrier' and mine[0]['kind'] == 'barrier', mine[0]
    assert all(o['began'] <= o['ended'] for o in mine if o['ended']), mine
    assert all(a['ended'] <= b['began'] for a, b in zip(mine, mine[1:])), mine"
    [ "$(stat -c %a "$XDG_STATE_HOME"/hvdrun/*.json)" = 600 ] || fail "others may read the record"
}

# What the dead rank has recorded is there, and the others say why they have ended.
case_a_rank_that_was_killed() {
    # shellcheck disable=SC2016 # of the rank
    start -np 2 sh -c 'echo "pid $$"; exec "$@"' sh "$CULPRIT" healthy 0
    until_out 10 '^pid ' 2
    sleep 1
    kill -9 "$(sed -n '1s/pid //p' "$T/out")"
    stop_status
    expect_err '^hvdrun: the last operations of 2 ranks: '
    look_into "$XDG_STATE_HOME/hvdrun" "
assert {'peer'} <= {of(0)[-1]['status'], of(1)[-1]['status']}, (of(0)[-1], of(1)[-1])
assert len(of(0)) > 10 and len(of(1)) > 10, (len(of(0)), len(of(1)))
assert len({o['pid'] for o in ops}) == 2"
}

# The newest of a job with more operations than there is room for. The directory is made, and the job went well.
case_a_directory_that_is_named() {
    hvd -np 2 --flight-record "$T/records" "$BUILD/examples/train" --steps 400
    expect_status 0
    expect_count 1 "^hvdrun: the last operations of 2 ranks: $T/records/[^/ ]+\.flight\.json$" "$T/err"
    look_into "$T/records" "
assert not job['failed'] and job['cause'] == '', job['cause']
for rank in range(2):
    mine = of(rank)
    assert 200 < len(mine) <= 512, len(mine)
    assert mine[-1]['kind'] == 'shutdown' and mine[-1]['status'] == 'ok', mine[-1]
    assert all(o['tensor'] for o in mine), mine
    assert mine[-2]['ended'] > mine[0]['began'] > 0"
    [ ! -e "$XDG_STATE_HOME/hvdrun" ] || fail "another record was written"
}

case_a_directory_that_cannot_be() {
    touch "$T/file"
    hvd -np 2 --flight-record "$T/file" sh -c "touch $T/started"
    one_clear_line '^hvdrun: --flight-record: cannot write into .*/file: Not a directory$' 'a file'
    hvd -np 2 --flight-record "$T/no/such" sh -c "touch $T/started"
    one_clear_line '^hvdrun: --flight-record: cannot write into .*/no/such: No such file or directory$' 'a directory without its parent'
    [ ! -e "$T/started" ] || fail "a worker was started"
}

# No operations, or nobody wants to know: not a word, and no file.
case_jobs_without_a_record() {
    hvd -np 2 sh -c 'exit 3'
    expect_status 3
    expect_no "$T/err" 'last operations'
    hvd -np 2 "$BUILD/examples/train" --steps 3
    expect_status 0
    expect_no "$T/err" 'last operations'
    start -np 2 "$CULPRIT" loop 1
    sleep 1.5
    kill -INT "$pid"
    stop_status
    expect_no "$T/err" 'last operations'
    [ -z "$(find "$XDG_STATE_HOME" -name '*.json' 2> /dev/null)" ] || fail "a record was written"
}

case_the_oldest_go() {
    local i
    mkdir -p "$XDG_STATE_HOME/hvdrun"
    for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22; do
        touch -d "2020-01-01 00:00:$i" "$XDG_STATE_HOME/hvdrun/job$i.flight.json"
    done
    touch -d 2019-01-01 "$XDG_STATE_HOME/hvdrun/notes.txt"
    hvd -np 2 --timeout 2 "$CULPRIT" loop 1
    expect_err '^hvdrun: the last operations of 2 ranks: '
    [ "$(find "$XDG_STATE_HOME/hvdrun" -name '*.json' | wc -l)" = 20 ] || fail "not 20 records: $(ls "$XDG_STATE_HOME/hvdrun")"
    [ ! -e "$XDG_STATE_HOME/hvdrun/job3.flight.json" ] || fail "an old one is still there"
    [ -e "$XDG_STATE_HOME/hvdrun/job4.flight.json" ] || fail "a newer one was removed"
    [ -e "$XDG_STATE_HOME/hvdrun/notes.txt" ] || fail "another file was removed"
}

# The directory of states cannot be written: the job ends as it does, without a word.
case_no_place_for_a_record() {
    local was=$XDG_STATE_HOME
    touch "$T/file"
    export XDG_STATE_HOME=$T/file
    hvd -np 2 --timeout 2 "$CULPRIT" loop 1
    XDG_STATE_HOME=$was
    expect_status 124
    expect_no "$T/err" 'last operations|state'
}

# The engine's memory has gone with the engine; the record is the session's.
case_an_engine_that_was_killed() {
    start -np 2 "$CULPRIT" healthy 0
    until_true 10 find_engine > "$T/engine" || fail 'there is no engine'
    sleep 1
    kill -9 "$(find_engine)"
    stop_status
    expect_status 125
    expect_err '^hvdrun: the last operations of 2 ranks: '
    look_into "$XDG_STATE_HOME/hvdrun" "
assert len(of(0)) > 10 and len(of(1)) > 10, (len(of(0)), len(of(1)))
assert all(o['tensor'].startswith(('layer.', 'hvd.barrier')) for o in ops)"
}
