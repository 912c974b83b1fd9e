# shellcheck shell=bash disable=SC2034,SC2154
# torch.distributed (gloo, env://) of Debian's python3-torch, as it is: the losses do not depend on how many ranks there are and where.
# Importing torch takes seconds and its package is large, so `make check` does not have it.
hosts=2
limit=240

python=/usr/bin/python3
script=$top/tests/rendezvous/torch_ddp.py

needs_torch() {
    "$python" -c 'import importlib.util as u, sys; sys.exit(u.find_spec("torch") is None)' 2> /dev/null ||
        skip "no torch for $python (apt install python3-torch)"
}

train() { # FILE ARGUMENTS of hvdrun
    local file=$1
    shift
    hvd "$@" -x OMP_NUM_THREADS=1 "$python" "$script"
    expect_status 0
    expect_count 20 '^[0-9]+ [0-9.]+$' "$T/out"
    cp "$T/out" "$file"
}

# Each loss within 1e-5 of the other: gradients are f32 sums in another order.
same_losses() { # FILE FILE
    paste -d' ' "$1" "$2" | awk '{ d = $2 - $4; if (d < 0) d = -d; if ($1 != $3 || !(d <= 1e-5 * $2)) { print; bad = 1 } } END { exit bad || NR != 21 }' ||
        fail "the losses differ"
}

slow_four_local_ranks_learn_as_one() {
    needs_torch
    train "$T/one" -np 1 -H localhost:1
    train "$T/four" -np 4 -H localhost:4
    same_losses "$T/one" "$T/four"
    awk 'NR == 1 { first = $2 } NR == 20 { exit !($2 < first) }' "$T/one" || fail "nothing was learnt"
}

# Debian gives a host's own name to a loopback address: gloo would tell that to the other hosts. And there is a second interface.
slow_two_hosts_with_two_interfaces() {
    needs_torch
    needs_kind ns
    local k
    for k in 1 2; do
        on $k "cp /etc/hosts /etc/hosts.before && sed -i '1i 127.0.1.1 node$k' /etc/hosts
            ip link add aaa type veth peer name bbb && ip addr add 10.92.0.$k/16 dev aaa && ip link set aaa up && ip link set bbb up"
    done
    train "$T/one" -np 1 -H localhost:1
    train "$T/four" -np 4 -H $H1:2,$H2:2 --network-interfaces eth0
    same_losses "$T/one" "$T/four"
    for k in 1 2; do on $k 'mv /etc/hosts.before /etc/hosts; ip link del aaa'; done
}
