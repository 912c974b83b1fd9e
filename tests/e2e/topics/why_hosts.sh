# shellcheck shell=bash disable=SC2016,SC2034,SC2154
# hvdctl why for jobs of two hosts, asked where hvdrun runs.
hosts=2
limit=60

CTL=$BUILD/hvdctl
CULPRIT=$BUILD/tests/culprit

found() { # JOB SENTENCE
    "$CTL" why "$1" > "$T/shown" 2> "$T/shown.err" < /dev/null || return
    head -n 1 "$T/shown" | grep -qE -- "$2"
}

why() { # KIND RANK SENTENCE: a job of that kind with two ranks on each host
    local name=why-$1
    start --job-name "$name" -np 4 -H "$H1:2,$H2:2" "$CULPRIT" "$1" "$2"
    [ "$1" = late ] || until_out 20 ready 4
    until_true 20 found "$name" "$3" || fail "hvdctl why does not say \"$3\": $(cat "$T/shown" "$T/shown.err")"
    "$CTL" kill "$name" > /dev/null
    stop_status
}

case_a_rank_of_the_other_host() {
    why loop 2 "^3 ranks wait for [0-9.]+ s in allreduce \"layer.1.weight\" for rank 2 on $H2, which computes"
    grep -q "^  rank 2 on $H2: culprit" "$T/shown" || fail "$(cat "$T/shown")"
    why stop 3 "^3 ranks wait for [0-9.]+ s in allreduce \"layer.1.weight\" for rank 3 on $H2, which is stopped"
}

slow_another_order() {
    why order 3 "^rank 3 on $H2 is in allreduce \"layer.2.weight\", but ranks 0-2 are in allreduce \"layer.1.weight\""
}

# The rank has a name that no rank of the other host knows.
case_an_operation_of_one_host() {
    why extra 2 "^rank 2 on $H2 is in allreduce \"validation\", but ranks 0,1,3 are in allreduce \"layer.1.weight\""
}

slow_a_chain() {
    why set 3 "^1 rank waits for [0-9.]+ s in allreduce \"pair\" for rank 3 on $H2, .*; [23] more ranks wait behind that$"
}

slow_a_rank_that_has_not_begun() {
    why late 2 "for rank 2 on $H2, which has not called hvd_init; it waits in "
}

case_a_job_that_goes_on() {
    why healthy 0 '^the job goes on: [0-9]+ operations ended in the last [0-9.]+ s($|; no rank is much slower )'
}

# The session of the other host is stopped: nobody there answers.
case_a_host_without_an_answer() {
    needs_kind ns
    start --job-name silent -np 4 -H "$H1:2,$H2:2" --heartbeat-timeout 60 "$CULPRIT" healthy 0
    until_out 20 ready 4
    local session
    session=$("$CTL" status silent --json | python3 -c 'import json, sys
print(json.load(sys.stdin)["other_hosts"][0]["session_pid"])')
    on 2 "kill -STOP $session"
    "$CTL" why silent > "$T/shown"
    on 2 "kill -CONT $session"
    head -n 1 "$T/shown" | grep -qE "^host $H2 does not answer: it is cut off, or its session is stopped$" || fail "$(cat "$T/shown")"
    "$CTL" kill silent > /dev/null
    stop_status
}

# Each rank of MPI waits for the other one: the stacks do not say who is wrong, and the connections have nothing to carry.
slow_a_deadlock_of_mpi() {
    command -v mpirun.openmpi > /dev/null || skip 'no Open MPI here (apt-get install openmpi-bin)'
    cat > "$T/recv.py" << 'END'
from mpi4py import MPI
world = MPI.COMM_WORLD
world.barrier()
print("ready", flush=True)
world.recv(source=1 - world.rank)
END
    start --job-name recv -np 2 -H "$H1:1,$H2:1" /usr/bin/python3 "$T/recv.py"
    until_out 30 ready 2
    sleep 2
    until_true 20 found recv '^all 2 ranks are in (P?MPI_\w+|mpi_\w+|ompi_\w+): the stacks do not say for whom they wait; their connections have been quiet for [2-9]\.[0-9] s$' ||
        fail "$(cat "$T/shown" "$T/shown.err")"
    "$CTL" kill recv > /dev/null
    stop_status
}

# A part of the packets that come to the second host is dropped there.
case_a_link_that_loses_packets() {
    needs_kind ns
    on 2 'command -v iptables > /dev/null' || skip 'no iptables here (apt-get install iptables)'
    on 2 'iptables -A INPUT -i eth0 -p tcp ! --dport 22 -m statistic --mode random --probability 0.05 -j DROP' || skip 'the kernel drops no packets at random'
    start --job-name lossy -np 4 -H "$H1:2,$H2:2" "$CULPRIT" healthy 0
    until_out 20 ready 4
    until_true 25 found lossy "; rank [0-3] on ($H1|$H2) is (always|often) late: .*links( of the job)? lose packets" || fail "$(cat "$T/shown" "$T/shown.err")"
    "$CTL" kill lossy > /dev/null
    stop_status
}
