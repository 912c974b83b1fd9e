# shellcheck shell=bash disable=SC2034,SC2154
# Hosts with IPv6 addresses alone, but for loopback: SSH, both kinds of links, and what workers are told.
hosts=2
family=v6
limit=45
# shellcheck source=tests/e2e/frameworks.sh
. "$top/tests/e2e/frameworks.sh"
# shellcheck source=tests/neighbours/neighbours.sh
. "$top/tests/neighbours/neighbours.sh"

CLIENT=$BUILD/tests/gloo-client
KINDS=$BUILD/tests/kinds

# The store of Gloo is over the links of the sessions.
case_links_by_name_and_by_address() {
    # shellcheck disable=SC2016
    hvd --verbose -np 4 -H "$H1:2,[fd91::3]:2" bash -c '"$0" --rounds 2 && exec "$1" 4 40000' "$CLIENT" "$KINDS"
    expect_status 0
    expect_count 4 '^rank [0-9]+ met all: ' "$T/out"
    expect_count 4 '^rank [0-9]+: all right$' "$T/out"
    expect_err "links of the session by eth0 \\(fd91::[23]\\) to [^ ]+ \\(fd91::[23]\\)$"
    expect_err "^fd91::3: .*links of collectives by eth0 \\(fd91::3\\) to $H1 \\(fd91::2\\)$"
    expect_no "$T/err" '10\.91\.|fe80:'
}

case_frameworks_reach_what_they_are_told() {
    frameworks -H $H1:2,$H2:1
    addresses '[fd91::2] [fd91::2] [fd91::3]'
}

chosen() { # NETWORKS
    # shellcheck disable=SC2016
    hvd --verbose --network-interfaces "$1" -np 2 -H $H1:1,$H2:1 sh -c 'echo $MASTER_ADDR && exec "$0" --steps 2 > /dev/null' "$TRAIN"
    expect_status 0
    expect_err "links of collectives by eth0 \\(fd91::3\\) to $H1 \\(fd91::2\\)$"
}

not_there() { # NETWORK
    host_error "^hvdrun: $H1: hello: --network-interfaces: '$1' matches no address of this host .it has (lo [0-9a-f:.]+, )+eth0 fd91::2.$" \
        --network-interfaces "$1" -np 1 -H $H1:1 touch "$T/started"
}

# Both hosts have fd92::1.
case_networks_are_chosen() {
    local k
    for k in 1 2; do on $k 'ip addr add fd92::1/64 dev lo'; done
    chosen '^fd92::/16,^lo'
    expect_sorted fd91::2 fd91::2
    chosen fd92::/64,fd91::/64
    not_there fe80::/10
    for k in 1 2; do on $k 'ip addr del fd92::1/64 dev lo'; done
}

# The kernel has it on its list, and nobody can listen there.
slow_an_address_that_somebody_else_has() {
    on 1 'ip addr add fd91::99/64 dev eth0 nodad'
    on 2 'ip addr add fd91::99/64 dev eth0'
    hvd --verbose -np 2 -H $H1:1,$H2:1 "$TRAIN" --steps 2
    on 1 'ip addr del fd91::99/64 dev eth0'
    on 2 'ip addr del fd91::99/64 dev eth0'
    expect_status 0
    expect_err "links of collectives by eth0 \\(fd91::3\\) to $H1 \\(fd91::2\\)$"
}

slow_networks_of_either_family() {
    chosen fd91::/64
    chosen 'eth*'
    expect_sorted fd91::2 fd91::2
    not_there 10.91.0.0/16
}

# Beside hvdrun: not its loopback.
slow_ranks_here_are_reached_from_elsewhere() {
    # shellcheck disable=SC2016
    hvd -np 2 -H localhost:1,$H1:1 sh -c 'echo $HOROVOD_RANK $MASTER_ADDR && exec "$0" --steps 2 > /dev/null' "$TRAIN"
    expect_status 0
    expect_sorted '0 fd91::1' '1 fd91::1'
}

# SSH goes to an address that means nothing on other hosts: workers are told another.
slow_ssh_by_a_link_local_address() {
    local known=$HOME/.ssh/known_hosts
    sed -n 's/^node1,[^ ]*/fe80::ff:fe00:1%br0/p' "$known" > "$T/known"
    cat "$T/known" >> "$known"
    # shellcheck disable=SC2016
    hvd -np 2 -H "[fe80::ff:fe00:1%br0]:1,$H2:1" sh -c 'echo $HOROVOD_RANK $MASTER_ADDR $GLOO_SOCKET_IFNAME && exec "$0" --steps 2 > /dev/null' "$TRAIN"
    expect_status 0
    expect_sorted '0 fd91::2 eth0' '1 fd91::2 eth0'
}

slow_encrypted() {
    hvd --encrypt -np 4 -H $H1:2,$H2:2 "$KINDS" 4 40000
    expect_status 0
    expect_count 4 '^rank [0-9]+: all right$' "$T/out"
}

# MPI's own connections, too.
slow_mpi() {
    mpi_program mpi_ring
    hvd -np 4 -H $H1:2,$H2:2 "$program"
    expect_all_good 4
}

slow_a_range_of_ports() {
    # shellcheck disable=SC2016
    hvd --port-range 31030-31031 -np 2 -H $H1:1,$H2:1 sh -c '"$1" --steps 3 > /dev/null && echo $MASTER_ADDR $MASTER_PORT' sh "$TRAIN"
    expect_status 0
    expect_count 2 '^fd91::2 3103[01]$' "$T/out"
    on 2 "setsid python3 -c '
import socket, time
held = socket.create_server((\"fd91::3\", 31032), family=socket.AF_INET6)
open(\"$T/held\", \"w\").close()
time.sleep(30)' < /dev/null > /dev/null 2>&1 & echo \$! > $T/holder"
    until_true 5 test -e "$T/held" || fail 'the port was not taken'
    hvd --port-range 31032 -np 2 -H $H1:1,$H2:1 "$TRAIN" --steps 3
    on 2 "kill $(cat "$T/holder")"
    expect_status 125
    expect_err "^hvdrun: .*$H2.*--port-range 31032: 1 port wanted on this host, 0 of 1 free .1 taken"
}
