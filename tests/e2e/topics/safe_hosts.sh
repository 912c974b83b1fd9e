# shellcheck shell=bash disable=SC2034,SC2154
# What somebody on the network can do to the links of a job who has not its key.
hosts=2
limit=100

# A stranger takes all the connections that he gets, from before the job starts until it ends.
under_a_flood() { # NUMBER PORTS STEPS
    local flood low=${2%-*} high=${2#*-}
    command -v /usr/bin/python3 > /dev/null || skip "no python3 here"
    hvd -np 2 -H $H1:1,$H2:1 "$BUILD/tests/steps" "$3"
    expect_status 0
    mv "$T/out" "$T/wanted"
    /usr/bin/python3 "$top/tests/safe/stranger.py" flood $H1 "$low" "$high" "$1" > "$T/flood" 2> "$T/flood.err" &
    flood=$!
    mark_time
    hvd --port-range "$2" -np 2 -H $H1:1,$H2:1 "$BUILD/tests/steps" "$3"
    kill $flood
    expect_status 0
    expect_same "$(sort "$T/wanted")" "$(sort "$T/out")" 'what was reduced'
    [ -s "$T/flood" ] || fail "the stranger found nothing: $(cat "$T/flood.err")"
    echo "# $(tail -n 1 "$T/flood") of a stranger to one host during $(((${EPOCHREALTIME/./} - since) / 1000)) ms"
}

slow_strangers_join_no_ring() {
    needs_kind ns
    under_a_flood 10000 31100-31103 400
}
