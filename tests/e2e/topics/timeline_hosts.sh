# shellcheck shell=bash disable=SC2034,SC2154
# The timelines of several hosts: the engines' files show what they do for their ranks.
hosts=2
limit=30
LAGGARD=$BUILD/tests/laggard

case_engines_write_their_part() {
    /usr/bin/python3 -c '' 2> /dev/null || skip "no python3 here"
    hvd -H $H1:2,$H2:1 --timeline-filename /tmp/timeline.json --timeline-mark-cycles "$LAGGARD" 200 2
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
