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

# The files of ranks on hosts that share no directory with hvdrun stay there, and the user is told.
case_files_that_are_elsewhere() {
    needs_kind ns
    for host in 1 2; do on $host 'mkdir -p /tmp/hvdt.here'; done
    hvd -H $H1:2,$H2:1 --timeline-filename /tmp/hvdt.here/t.json "$LAGGARD" 50 2
    for host in 1 2; do on $host 'ls /tmp/hvdt.here; rm -r /tmp/hvdt.here' > "$T/there.$host"; done
    expect_status 0
    expect_err "^hvdrun: the timelines of ranks 0-1 lie on $H1: /tmp/hvdt.here/t.RANK.json$"
    expect_err "^hvdrun: the timeline of rank 2 lies on $H2: /tmp/hvdt.here/t.RANK.json$"
    expect_same 't.0.json t.1.json t.engine' "$(tr '\n' ' ' < "$T/there.1" | sed 's/\.'"$H1"'.*//')" 'the files of the first host'
}
