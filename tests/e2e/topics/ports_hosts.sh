# shellcheck shell=bash disable=SC2034,SC2154
# --port-range: what others on the network reach listens within it, several jobs share it, and what does not suffice is
# said in a line that names host and range.
hosts=2
limit=45

CLIENT=$BUILD/tests/gloo-client

# Connections and listeners of that host which others reach, but SSH's: "local peer".
sockets() { # NUMBER
    on "$1" 'ss -Htan state established state listening' |
        awk '{l = $(NF - 1); r = $NF} l !~ /^(127\.|\[::1\])/ && l !~ /:22$/ && r !~ /:22$/ {print l, r}'
}

outside() { # LOW HIGH: which have neither end in the range
    awk -v low="$1" -v high="$2" '{
        inside = 0
        for (i = 1; i <= 2; i++) {port = $i; sub(/.*:/, "", port); inside += port >= low && port <= high}
        if (!inside) print}'
}

# Engines (collectives) and sessions (the store of Gloo) have links of their own, and so have the ranks, when names have come often.
case_every_link_is_within_the_range() {
    needs_kind ns
    local k found
    # shellcheck disable=SC2016
    start --port-range 31000-31003 -np 2 -H $H1:1,$H2:1 bash -c '"$1" --rounds 3 && touch "$2/$HOROVOD_RANK" && exec "$3" --steps 100000' \
        bash "$CLIENT" "$T" "$TRAIN"
    until_true 20 test -e "$T/0" -a -e "$T/1" || fail 'the store was not used'
    until_out 20 'step'
    all_are_there() { [ "$(sockets 1 | wc -l)" = 3 ] && [ "$(sockets 2 | wc -l)" = 3 ]; }
    until_true 20 all_are_there || fail "$(sockets 1) $(sockets 2)"
    for k in 1 2; do
        found=$(sockets $k)
        expect_same 3 "$(wc -l <<< "$found")" "the number of sockets of node$k ($found)"
        expect_same '' "$(outside 31000 31003 <<< "$found")" "what is outside of the range on node$k"
    done
    kill -INT $pid
    stop_status
}

case_what_workers_are_told_is_within_the_range() {
    # shellcheck disable=SC2016
    hvd --port-range 31010-31013 --rendezvous auto,tf -np 2 -H $H1:2 sh -c 'echo $MASTER_PORT $JAX_COORDINATOR_ADDRESS $TF_CONFIG'
    expect_status 0
    expect_count 2 '^31010 .*:31011 .*:31012",".*:31013"' "$T/out"
}

# Each takes three ports at once on the first host, so the second job gets others, and the third none.
case_jobs_on_one_host_share_a_range() {
    local held='echo $MASTER_PORT; exec sleep 60' first
    start --port-range 31020-31023 -np 1 -H $H1:1 sh -c "$held"
    first=$pid
    until_out 10 '^31020$'
    # shellcheck disable=SC2016
    hvd --port-range 31020-31023 -np 1 -H $H1:1 sh -c 'echo $MASTER_PORT $JAX_COORDINATOR_ADDRESS'
    expect_status 0
    expect_out '^31022 .*:31023$'
    host_error "^hvdrun: $H1: hello: --port-range 31020-31021: 1 port wanted on this host, 0 of 2 free .2 taken" \
        --port-range 31020-31021 -np 1 -H $H1:1 touch "$T/started"
    kill -INT "$first"
    wait "$first"
    hvd --port-range 31020 -np 1 -H $H1:1 sh -c 'echo $MASTER_PORT'
    expect_out '^31020$'
}

case_one_port_is_enough_for_collectives() {
    needs_kind ns # hosts on one machine share its ports
    hvd --port-range 31030 -np 4 -H $H1:2,$H2:2 "$TRAIN" --steps 3
    expect_status 0
    expect_no_err
}

case_two_jobs_of_two_hosts_at_once() {
    local one range=31040-31045
    [ "$KIND" != loop ] || range=31040-31051 # loopback hosts share their ports
    start --port-range $range -np 2 -H $H1:1,$H2:1 "$TRAIN" --steps 300
    one=$pid
    run "$HVDRUN" "${reach[@]}" --port-range $range -np 2 -H $H1:1,$H2:1 "$TRAIN" --steps 20
    expect_status 0
    pid=$one
    stop_status
    expect_status 0
}

# Somebody else has the ports of the second host when its engine wants one.
case_a_range_that_is_in_use() {
    needs_kind ns
    on 2 "setsid python3 -c '
import socket, time
held = [socket.create_server((\"\", 31050)), socket.create_server((\"\", 31051))]
open(\"$T/held\", \"w\").close()
time.sleep(30)' < /dev/null > /dev/null 2>&1 & echo \$! > $T/holder"
    until_true 5 test -e "$T/held" || fail 'the ports were not taken'
    hvd --port-range 31050-31051 -np 2 -H $H1:1,$H2:1 "$TRAIN" --steps 3
    on 2 "kill $(cat "$T/holder")"
    expect_status 125
    expect_err "^hvdrun: .*$H2.*--port-range 31050-31051: 1 port wanted on this host, 0 of 2 free .2 taken"
}

case_ports_for_root_only() {
    needs_kind ns
    on 1 "install -m 755 $BUILD/hvdagent /usr/local/bin/hvdagent"
    host_error "^hvdrun: $H1: hello: --port-range 80-81: 1 port wanted on this host, 0 of 2 free .2 only for root" \
        --port-range 80-81 -np 1 -H hvduser@$H1:1 touch "$T/started"
    on 1 'rm /usr/local/bin/hvdagent'
    # shellcheck disable=SC2016
    hvd --port-range 80-81 -np 1 -H $H1:1 sh -c 'echo $MASTER_PORT'
    expect_out '^80$'
}
