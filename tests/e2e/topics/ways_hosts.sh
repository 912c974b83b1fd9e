# shellcheck shell=bash disable=SC2034,SC2154
# Hosts with interfaces that lead nowhere: links find their way by connecting, --verbose says which, and what workers are
# told leads there too.
hosts=3
limit=40

# On a host: a network that goes nowhere, listed before the real one, and a bridge whose address every host has.
add_dead_ends() { # NUMBER
    remove_dead_ends "$1" 2> /dev/null # of a case that failed
    on "$1" "ip link add hole type veth peer name nowhere && ip link set nowhere up && ip addr add 10.99.$1.1/16 dev hole && ip link set hole up &&
        ip link add docker0 type bridge && ip addr add 172.17.0.1/16 dev docker0 && ip link set docker0 up"
}

remove_dead_ends() { # NUMBER
    on "$1" 'ip link del hole; ip link del docker0'
}

case_links_find_their_way() {
    needs_kind ns
    local k
    for k in 1 2 3; do add_dead_ends $k; done
    mark_time
    hvd --verbose --network-interfaces 'hole,docker*,eth0' -np 6 -H $H1:2,$H2:2,$H3:2 "$TRAIN" --steps 3
    for k in 1 2 3; do remove_dead_ends $k; done
    expect_status 0
    expect_within 6
    expect_err "^$H2: .*links of collectives by eth0 \\(10.91.0.3\\) to $H1 \\(10.91.0.2\\)$"
    expect_err "^$H3: .*links of collectives by eth0 \\(10.91.0.4\\) to $H1 \\(10.91.0.2\\), $H2 \\(10.91.0.3\\)$"
    expect_count 2 'links of collectives' "$T/err"
}

# Without a choice of the user's: where SSH has found the host, though the kernel lists another address first.
case_workers_are_told_a_way_that_leads_there() {
    needs_kind ns
    on 1 'ip addr add 10.99.1.1/32 dev lo'
    # shellcheck disable=SC2016
    hvd -np 2 -H $H1:1,$H2:1 sh -c 'echo $HOROVOD_RANK $MASTER_ADDR $GLOO_SOCKET_IFNAME'
    on 1 'ip addr del 10.99.1.1/32 dev lo'
    expect_status 0
    expect_sorted '0 10.91.0.2 eth0' '1 10.91.0.2 eth0'
}

# Ranks beside hvdrun and elsewhere: not loopback, and not the first interface of this host.
case_ranks_here_are_reached_from_elsewhere() {
    needs_kind ns
    ip addr add 10.99.0.1/32 dev lo
    # shellcheck disable=SC2016
    hvd -np 2 -H localhost:1,$H1:1 sh -c 'echo $HOROVOD_RANK $MASTER_ADDR'
    ip addr del 10.99.0.1/32 dev lo
    expect_status 0
    expect_sorted '0 10.91.0.1' '1 10.91.0.1'
}

case_no_interface_matches() {
    needs_kind ns
    host_error "^hvdrun: $H1: hello: --network-interfaces: 'ib0' and the others matches no address of this host .it has (lo 127.0.0.1, )?eth0 10.91.0.2" \
        --network-interfaces 'ib0,10.92.0.0/16,fd00::/8' -np 1 -H $H1:1 touch "$T/started"
    expect_within 5
}

case_chosen_by_network_and_by_exclusion() {
    needs_kind ns
    local choice
    add_dead_ends 2
    for choice in '10.91.0.0/16' '^hole,^docker*' 'eth*'; do
        hvd --verbose --network-interfaces "$choice" -np 2 -H $H1:1,$H2:1 "$TRAIN" --steps 2
        expect_status 0
        expect_err "links of collectives by eth0 \\(10.91.0.3\\) to $H1 \\(10.91.0.2\\)"
    done
    hvd --network-interfaces 'hole' -np 2 -H $H2:2 "$TRAIN" --steps 2
    expect_status 0
    remove_dead_ends 2
}

# The hosts are namespaces of one machine. A congestion control that measures a network, as BBR, is of no use there.
has_plain_sockets() { # NUMBER
    on "$1" 'ss -tinpOH' > "$T/sockets" 2> "$T/why" && [ "$(grep -cE 'hvd-engine|culprit' "$T/sockets")" = 2 ] &&
        [ "$(grep -E 'hvd-engine|culprit' "$T/sockets" | grep -cw reno)" = 2 ]
}

case_links_within_a_machine_use_reno() {
    needs_kind ns
    local k
    [ "$(cat /proc/sys/net/ipv4/tcp_congestion_control)" != reno ] || skip 'all sockets of this machine use reno'
    start -np 2 -H $H1:1,$H2:1 "$BUILD/tests/culprit" healthy 9
    until_out 20 ready 2
    for k in 1 2; do
        until_true 10 has_plain_sockets $k || fail "$(cat "$T/sockets" "$T/why")"
    done
    kill -TERM "$pid"
    stop_status
}
