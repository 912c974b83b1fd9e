# shellcheck shell=bash disable=SC2034,SC2154
# The timelines of several hosts: the engines' files show what they do for their ranks.
hosts=2
limit=30
LAGGARD=$BUILD/tests/laggard

case_engines_write_their_part() {
    /usr/bin/python3 -c '' 2> /dev/null || skip "no python3 here"
    hvd -H $H1:2,$H2:1 --timeline-filename /tmp/timeline.%r.json --timeline-mark-cycles "$LAGGARD" 200 2
    expect_status 0
    expect_no_err
    on 1 'cat "$(ls /tmp/timeline.engine.*.json | head -n 1)"' > "$T/engine" || fail "no file of an engine" # loopback hosts share /tmp
    on 2 'cat /tmp/timeline.2.json' > "$T/rank" || fail "no file of rank 2"
    on 1 'rm /tmp/timeline.*'
    on 2 'rm -f /tmp/timeline.*'
    for file in engine rank; do
        /usr/bin/python3 -m json.tool "$T/$file" > /dev/null || fail "$file is no JSON"
    done
    for name in NEGOTIATE_ALLREDUCE ALLREDUCE QUEUE REDUCE NETWORK MEMCPY_OUT CYCLE_START; do
        grep -q "\"name\":\"$name\"" "$T/engine" || fail "no $name in the engine's file"
    done
    grep -q '"name":"NEGOTIATE_ALLREDUCE","ph":"E".*"pid":2,' "$T/rank" || fail "rank 2 has not seen the negotiation's end"
}

here=/tmp/hvdt.here # of each host, and of hvdrun's

merged() { # EVENTS: processes in the one file
    /usr/bin/python3 -c 'import json, sys
events = json.load(open(sys.argv[1]))
names = sorted(e["args"]["name"] for e in events if e["name"] == "process_name")
assert len(names) == int(sys.argv[2]), names
assert sum(1 for n in names if n.startswith("engine of ")) == int(sys.argv[3]), names
for rank in range(int(sys.argv[2]) - int(sys.argv[3])):
    assert any(e["pid"] == rank and e["name"] == "NEGOTIATE_ALLREDUCE" for e in events), rank' "$@" 2> "$T/python" || fail "$(tail -n 1 "$T/python")"
}

# Hosts that share no directory with hvdrun send their files.
case_files_come_from_the_hosts() {
    needs_kind ns
    /usr/bin/python3 -c '' 2> /dev/null || skip "no python3 here"
    for host in 1 2; do on $host "mkdir -p $here"; done
    mkdir -p $here
    hvd -H $H1:2,$H2:1 --timeline-filename $here/t.json "$LAGGARD" 50 2
    for host in 1 2; do on $host "ls $here; rm -r $here" > "$T/there.$host"; done
    expect_status 0
    expect_err "^hvdrun: the timeline is $here/t.json \(5 processes\)$"
    expect_same t.json "$(ls $here)" 'the files beside the timeline'
    merged $here/t.json 5 2
    rm -r $here
    expect_same '' "$(cat "$T/there.1" "$T/there.2")" 'what is left on the hosts'
}

# hvdrun's host has no such directory: the files stay there, and the user is told.
case_files_that_are_elsewhere() {
    needs_kind ns
    for host in 1 2; do on $host 'mkdir -p /tmp/hvdt.there'; done
    hvd -H $H1:2,$H2:1 --timeline-filename /tmp/hvdt.there/t.json "$LAGGARD" 50 2
    for host in 1 2; do on $host 'ls /tmp/hvdt.there; rm -r /tmp/hvdt.there' > "$T/there.$host"; done
    expect_status 0
    expect_err "^hvdrun: the timelines of ranks 0-1 lie on $H1: /tmp/hvdt.there/t.RANK.json$"
    expect_err "^hvdrun: the timeline of rank 2 lies on $H2: /tmp/hvdt.there/t.RANK.json$"
    expect_same 't.0.json t.1.json t.engine' "$(tr '\n' ' ' < "$T/there.1" | sed 's/\.'"$H1"'.*//')" 'the files of the first host'
}

case_programs_that_write_none() {
    hvd -H $H1:1,$H2:1 --timeline-filename /tmp/t.json true
    expect_status 0
    expect_no_err
    cd "$T" || return
    hvd -H $H1:1,$H2:1 --timeline-filename DYNAMIC true
    expect_status 0
    expect_no_err
    expect_same '' "$(find "$T" -name 'DYNAMIC*')" 'files of that name'
}

# A host that hvdrun loses cannot tell whether it has a part.
slow_a_lost_host_may_have_parts() {
    needs_kind ns
    start -H $H1:1,$H2:1 --timeline-filename /tmp/hvdt.lost.json --heartbeat-timeout 3 sh -c 'echo ready; sleep 60'
    until_out 10 ready 2
    ip link set v2 down
    stop_status
    ip link set v2 up
    expect_err "^hvdrun: the timeline of rank 1 may lie on $H2: /tmp/hvdt.lost.RANK.json$"
}

# A part of 60 MB, over a link that needs half a minute for it; the user does not wait for so long.
begin_long_transfer() {
    needs_kind ns
    on 2 "mkdir -p $here"
    mkdir -p $here
    # shellcheck disable=SC2016
    start -H $H2:1 --timeline-filename $here/t.json \
        sh -c 'echo ready; sleep 1; printf "[{}" > $0/t.0.json; head -c 60000000 /dev/zero | tr "\0" " " >> $0/t.0.json; echo "]" >> $0/t.0.json' $here
    until_out 10 ready
    inside 2 'tc qdisc add dev eth0 root tbf rate 16mbit burst 32k latency 400ms'
    until_true 10 [ -s $here/t.0.json ] || fail "nothing is sent: $(ls $here)"
}

end_long_transfer() {
    inside 2 'tc qdisc del dev eth0 root'
    on 2 "ls $here; rm -r $here" > "$T/there"
    ls $here > "$T/here"
    rm -r $here
    expect_same t.0.json "$(cat "$T/there")" 'what is left on the host'
}

case_a_transfer_is_cut_short() {
    begin_long_transfer
    mark_time
    kill -INT $pid
    sleep 0.3
    kill -INT $pid
    stop_status
    expect_within 5
    end_long_transfer
    expect_same '' "$(cat "$T/here")" "what is left on hvdrun's host"
    expect_err "^hvdrun: $H2 sends its timeline, 57 MiB; \^C twice leaves it there$"
    expect_err "^hvdrun: the timeline of rank 0 lies on $H2: $here/t.RANK.json$"
}

case_hvdrun_dies_in_a_transfer() {
    begin_long_transfer
    kill -KILL $pid
    stop_status
    end_long_transfer
    leave_within=12
}

# The parts are more than the place has room for.
case_no_room_for_what_hosts_send() {
    needs_kind ns
    on 2 "mkdir -p $here"
    mkdir -p $here
    mount -t tmpfs -o size=1m t $here || skip "nothing can be mounted here"
    # shellcheck disable=SC2016
    hvd -H $H2:2 --timeline-filename $here/t.json \
        sh -c 'f=$0/t.$HOROVOD_RANK.json; printf "[{}" > $f; [ $HOROVOD_RANK = 0 ] || head -c 3000000 /dev/zero | tr "\0" " " >> $f; echo "]" >> $f' $here
    ls $here > "$T/here"
    umount $here
    on 2 "ls $here; rm -r $here" > "$T/there"
    rm -r $here
    expect_status 0
    expect_err "^hvdrun: warning: --timeline-filename: cannot write $here/t.1.json: No space left on device$"
    expect_err "^hvdrun: the timeline is $here/t.json \(1 processes\)$"
    expect_err "^hvdrun: the timeline of rank 1 lies on $H2: $here/t.RANK.json$"
    expect_same t.json "$(cat "$T/here")" "what is left on hvdrun's host"
    expect_same 't.0.json t.1.json ' "$(tr '\n' ' ' < "$T/there")" 'what is left on the host'
}
