# shellcheck shell=bash disable=SC2034,SC2154
# What somebody on the network can do to the links of a job who has not its key.
hosts=3
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

# The links have used the key by then, at both ends and in both programs of each.
slow_core_files_hold_no_key() {
    [ -z "$E2E_SANITIZE" ] || skip "a sanitizer leaves no core files"
    needs_kind ns
    local option key keys='for p in $(pgrep "^hvdagent"); do gdb -q -batch -p $p -ex "x/32xb session_main::session.job.secrets->key" 2> /dev/null; done'
    command -v gdb > /dev/null || skip "no gdb here"
    for option in '' --encrypt; do
        # shellcheck disable=SC2086
        start $option -np 2 -H $H1:1,$H2:1 sh -c 'echo ready; exec "$0" 100000' "$BUILD/tests/steps"
        until_out 20 '^ready' 2
        until_true 10 on 2 'pgrep "^hvd-engine" > /dev/null' || fail 'there is no engine'
        sleep 1 # the links are there
        key=$(on 1 "$keys" | sed -n 's/^0x[^:]*:\t0x/0x/p' | tr -d '\n\t' | sed 's/0x//g')
        [ ${#key} = 64 ] || fail "the key is \"$key\""
        {
            on 1 "python3 '$top/tests/safe/copies.py' $key \$(pgrep '^hvd')"
            on 2 "python3 '$top/tests/safe/copies.py' $key \$(pgrep '^hvd')"
            # shellcheck disable=SC2046
            python3 "$top/tests/safe/copies.py" "$key" $(pgrep '^hvd')
        } > "$T/copies"
        echo "# copies of the key${option:+ ($option)}: $(paste -sd, "$T/copies")"
        expect_count 2 '^hvd-engine 0 [1-9]' "$T/copies"
        expect_count 2 '^hvdagent 0 [1-9]' "$T/copies"
        expect_count 1 '^hvdrun 0 [1-9]' "$T/copies"
        expect_no "$T/copies" ' [1-9][0-9]* [0-9]*$'
        kill -TERM "$pid"
        stop_status
    done
}

# What the third host sends to the first one is lost for some seconds. That one listens while the second one's handshake is played to it again, every byte of it, and what
# was said behind it.
slow_a_handshake_that_is_played_again() {
    needs_kind ns
    local option recorder lost ports=31110-31113
    command -v /usr/bin/python3 > /dev/null || skip "no python3 here"
    for option in '' --encrypt; do
        # shellcheck disable=SC2086
        hvd $option -np 3 -H $H1:1,$H2:1,$H3:1 "$BUILD/tests/steps" 200
        expect_status 0
        mv "$T/out" "$T/wanted"
        timeout 40 "${ssh_command[@]}" "$H1" "exec python3 '$top/tests/safe/stranger.py' replay ${ports/-/ }" > "$T/replayed" 2> "$T/replayed.err" &
        recorder=$!
        until_true 10 grep -q listening "$T/replayed" || fail "$(cat "$T/replayed.err")"
        lost=$(on 3 "getent ahostsv4 $H1" | awk '{print $1; exit}')
        on 3 "ip neigh replace $lost lladdr 02:00:00:00:ff:ff nud permanent dev eth0"
        # shellcheck disable=SC2086
        start $option --log-level debug --port-range $ports -np 3 -H $H1:1,$H2:1,$H3:1 "$BUILD/tests/steps" 200
        until_true 15 grep -q replayed "$T/replayed"
        on 3 "ip neigh del $lost dev eth0"
        stop_status
        kill $recorder
        expect_status 0
        expect_err "$H1.*a connection was closed: the peer does not have this job's key"
        expect_same "$(sort "$T/wanted")" "$(sort "$T/out")" 'what was reduced'
        echo "#${option:+ $option:} $(grep -c replayed "$T/replayed") times: $(grep replayed "$T/replayed" | sort -u | paste -sd';')"
        grep -qE '^replayed [1-9][0-9]* bytes, answered [1-9][0-9]*, closed$' "$T/replayed" || fail "nothing was replayed: $(cat "$T/replayed"; head -c 1500 "$T/replayed.err")"
        expect_no "$T/replayed" 'open$'
    done
}
