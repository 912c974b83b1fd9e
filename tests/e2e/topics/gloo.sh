# shellcheck shell=bash disable=SC2034,SC2154
# The Gloo contract of stock Horovod workers: a client with the exact protocol, on one host and on four; bad clients.
hosts=4
limit=60

CLIENT=$BUILD/tests/gloo-client

all_met() { # RANKS
    expect_status 0
    expect_count "$1" '^rank [0-9]+ met all: ' "$T/out"
    expect_no_err
}

case_one_host() {
    hvd -np 8 -H localhost:8 "$CLIENT" --rounds 3
    all_met 8
}

case_one_rank() {
    hvd -np 1 -H localhost:1 "$CLIENT"
    all_met 1
}

# 64 clients, every value checked at every rank; each value crosses to a host once.
case_four_hosts() {
    needs_kind ns
    local values messages bytes
    hvd --log-level debug -np 64 -H $H1:16,$H2:16,$H3:16,$H4:16 "$CLIENT"
    expect_status 0
    expect_count 64 '^rank [0-9]+ met all: ' "$T/out"
    # Of the 64 ranks, 3 scopes less the local one: global 64 x (63 x 136 B), cross 64 x (3 x 136 B), the names and the ends.
    # Host 0 is the root of a tree: all that the others say goes through it, to three hosts each.
    values=$((64 * 63 * 136 + 64 * 3 * 136))
    expect_count 4 'Gloo rendezvous: [0-9]+ requests' "$T/err"
    # shellcheck disable=SC2013
    for bytes in $(sed -n 's/.* messages and \([0-9]*\) bytes sent to other hosts.*/\1/p' "$T/err"); do
        [ "$bytes" -le $((values * 3 + 100000)) ] || fail "a host has sent $bytes bytes for $values bytes of values"
        messages=$((${messages:-0} + bytes))
    done
    [ "$messages" -ge $((values * 3)) ] || fail "only $messages bytes were sent to other hosts"
    [ "$messages" -le $((values * 3 + 100000)) ] || fail "$messages bytes were sent for $values bytes of values to three hosts"
    echo "# $values bytes of values, $messages bytes sent among the hosts"
}

case_uneven_hosts() {
    hvd -np 6 -H $H1:3,$H2:1,$H3:2 "$CLIENT" --rounds 2
    all_met 6
}

case_bad_clients() {
    hvd -np 1 -H localhost:1 "$BUILD/tests/gloo-bad"
    expect_status 0
    expect_out '^all as it should be$'
}

# Others go on as if nothing was.
slow_bad_clients_disturb_nobody() {
    # shellcheck disable=SC2016
    hvd -np 4 -H localhost:4 bash -c '
        if [ $HOROVOD_RANK = 0 ]; then "$1"/gloo-bad > "$2/bad" & fi
        "$1"/gloo-client --rounds 20; status=$?; wait; exit $status' bash "$BUILD/tests" "$T"
    all_met 4
    expect_same 'all as it should be' "$(cat "$T/bad")" 'what the bad client says'
}

# One GET, answered when the value comes; but a rank's name may be missing, so nobody waits for that.
case_a_get_waits_for_the_value() {
    # shellcheck disable=SC2016
    hvd -np 2 -H localhost:2 bash -c '
        ask() { exec 3<> /dev/tcp/127.0.0.1/$HOROVOD_GLOO_RENDEZVOUS_PORT
                printf "$1 /global/$2 HTTP/1.1\r\nHost: x\r\nContent-Length: ${#3}\r\n\r\n$3" >&3; sed "1p;\$!d" <&3; echo; }
        if [ $HOROVOD_RANK = 1 ]; then sleep 0.5; ask PUT rank_1 name; ask PUT 1 worth-it; else ask GET rank_1 ""; ask GET 1 ""; fi'
    expect_status 0
    expect_count 1 '^HTTP/1.1 404 Not Found' "$T/out"
    expect_count 3 '^HTTP/1.1 200 OK' "$T/out"
    expect_out '^worth-it$'
}

case_a_dead_rank_ends_the_job() {
    mark_time
    hvd -np 4 -H $H1:2,$H2:2 "$CLIENT" --leave 3
    expect_status 7
    expect_within 10
    expect_err 'rank 3.*exit status 7'
}

case_another_user_is_refused() {
    [ "$(id -u)" = 0 ] || skip "needs root"
    # shellcheck disable=SC2016
    hvd -np 1 -H localhost:1 bash -c '
        ask() { exec 3<> /dev/tcp/127.0.0.1/$HOROVOD_GLOO_RENDEZVOUS_PORT
                printf "GET /a/b HTTP/1.1\r\nHost: x\r\n\r\n" >&3; head -n 1 <&3; }
        export -f ask
        echo "own: $(ask)"
        for i in 1 2 3; do echo "other: $(setpriv --reuid nobody --clear-groups bash -c ask 2> /dev/null)"; done'
    expect_status 0
    expect_out '^own: HTTP/1.1 404 Not Found'
    expect_count 3 '^other: $' "$T/out"
    expect_count 1 'a connection to the rendezvous was closed: user [0-9]* is not' "$T/err"
}

case_variables() {
    hvd -np 1 -H localhost:1 env
    expect_out '^HOROVOD_GLOO_RENDEZVOUS_ADDR=127\.0\.0\.1$'
    expect_out '^HOROVOD_GLOO_RENDEZVOUS_PORT=[0-9]+$'
    expect_out '^HOROVOD_CONTROLLER=gloo$'
    expect_out '^HOROVOD_CPU_OPERATIONS=gloo$'
    expect_out '^HOROVOD_GLOO_IFACE=lo$'
    expect_out '^GLOO_SOCKET_IFNAME=lo$'
    expect_no "$T/out" '^NCCL_SOCKET_IFNAME='
    hvd -np 1 -H localhost:1 -x HOROVOD_CONTROLLER=mpi -x GLOO_SOCKET_IFNAME=mine env
    expect_out '^HOROVOD_CONTROLLER=mpi$'
    expect_out '^GLOO_SOCKET_IFNAME=mine$'
    hvd -np 1 -H localhost:1 --rendezvous env env
    expect_no "$T/out" '^HOROVOD_(GLOO|CONTROLLER|CPU)'
    hvd -np 1 -H localhost:1 --network-interfaces lo env
    expect_out '^NCCL_SOCKET_IFNAME=lo$'
}

case_the_interface_of_each_host() {
    needs_kind ns
    # shellcheck disable=SC2016
    on 2 'ip link add second type veth peer name other && ip addr add 10.92.0.2/16 dev second && ip link set second up'
    # shellcheck disable=SC2016
    hvd -np 2 -H $H1:1,$H2:1 sh -c 'echo $HOROVOD_RANK $HOROVOD_GLOO_IFACE $GLOO_SOCKET_IFNAME .$NCCL_SOCKET_IFNAME'
    expect_status 0
    expect_sorted '0 eth0 eth0 .' '1 eth0 eth0 .'
    # shellcheck disable=SC2016
    hvd --network-interfaces '10.91.0.0/16' -np 2 -H $H1:1,$H2:1 sh -c 'echo $HOROVOD_RANK $HOROVOD_GLOO_IFACE .$NCCL_SOCKET_IFNAME'
    expect_sorted '0 eth0 .eth0' '1 eth0 .eth0'
    on 2 'ip link del second'
}

# Built without libmicrohttpd: nothing is offered, and who asks for it is told.
case_without_the_module() {
    mkdir -p "$T/bin/modules"
    cp "$BUILD/hvdrun" "$BUILD/hvdagent" "$T/bin"
    cp "$BUILD/modules/hvd-engine" "$T/bin/modules"
    run "$T/bin/hvdrun" -np 1 -H localhost:1 env
    expect_status 0
    expect_no "$T/out" '^HOROVOD_(GLOO|CONTROLLER|CPU)'
    run "$T/bin/hvdrun" --rendezvous gloo -np 1 -H localhost:1 env
    expect_status 125
    expect_err '--rendezvous gloo.*gloo\.so'
}
