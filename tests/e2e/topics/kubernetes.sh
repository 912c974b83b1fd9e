# --rsh 'kubectl exec -i' and a kubexec.sh as the MPI Operator mounts it. A stand-in for kubectl takes kubectl's own arguments,
# and no others, and runs the command in another host with a shell nowhere on the way.
# shellcheck shell=bash disable=SC2154,SC2034,SC2016
hosts=2
limit=30

pods() { # puts kubectl on PATH; each call is a line of $T/calls
    mkdir -p "$T/bin"
    cat > "$T/bin/kubectl" << END
#!/bin/bash
echo "\$*" >> '$T/calls'
usage() { echo "error: \$1" >&2; exit 1; }
verb='' input='' pod=''
while [ \$# -gt 0 ] && [ "\$1" != -- ]; do
    case \$1 in
    -n | -c) [ \$# -gt 1 ] || usage "flag needs an argument: \$1"; shift ;;
    -i | --stdin) input=1 ;;
    -*) usage "unknown flag: \$1" ;;
    *) if [ -z "\$verb" ]; then verb=\$1; elif [ -z "\$pod" ]; then pod=\$1; else usage "unexpected: \$1"; fi ;;
    esac
    shift
done
[ "\$verb" = exec ] || usage "unknown command \"\$verb\""
[ "\${1:-}" = -- ] && shift || usage 'exec needs -- and a command'
case \$pod in node1 | node2) ;; *) echo "Error from server (NotFound): pods \"\$pod\" not found" >&2; exit 1 ;; esac
[ ! -e '$T/deleted' ] || { echo 'error: unable to upgrade connection: container not found ("main")' >&2; exit 1; }
[ -n "\$input" ] || exec < /dev/null
${ssh_command[*]} "\$pod" "exec \$(printf '%q ' "\$@")"
status=\$?
[ \$status = 0 ] || echo "command terminated with exit code \$status" >&2
exit \$status
END
    chmod +x "$T/bin/kubectl"
    PATH=$T/bin:$PATH
    leave_within=3
}

case_ranks_in_pods() {
    pods
    run "$HVDRUN" -H node1:2,node2:1 --rsh 'kubectl -n ml exec -i -c main' sh -c 'echo "$RANK of $WORLD_SIZE, $HVD_CROSS_RANK"'
    expect_status 0
    expect_sorted '0 of 3, 0' '1 of 3, 0' '2 of 3, 1'
    expect_count 2 '^-n ml exec -i -c main node[12] -- /bin/sh -c exec /bin/sh -c ' "$T/calls"
}

slow_exit_status_and_output() {
    pods
    head -c 300000 /dev/urandom > "$T/in"
    run "$HVDRUN" -H node1:1,node2:1 --rsh kubectl --stdin 1 sh -c '[ $RANK = 0 ] || { cat; exit 9; }'
    expect_status 9
    expect_err 'rank 1 on node2 .* failed first: exit status 9'
    cmp -s "$T/in" "$T/out" || fail 'the bytes have changed on their way'
}

slow_a_pod_that_is_not_there() {
    pods
    host_error 'worker-7.*NotFound.*pods "worker-7" not found' -H node1:1,worker-7:1 --rsh 'kubectl exec -i' touch "$T/started"
}

case_a_user_in_a_pod() {
    bad_input 'me@pod: --rsh kubectl takes no user' -H me@pod --rsh kubectl touch "$T/started"
}

case_a_terminal() {
    bad_input 'kubectl -it asks for a terminal' -H node1:1 --rsh 'kubectl exec -it' touch "$T/started"
}

slow_an_agent_that_is_not_there() {
    pods
    run "$HVDRUN" -H node1:1,node2:1 --rsh 'kubectl exec -i' --agent-path /nowhere touch "$T/started"
    expect_status 125
    expect_fault 'node1, node2 \(agent start\): hvdagent was not found'
    [ ! -e "$T/started" ] || fail 'a worker was started'
    expect_no "$T/err" 'command terminated'
}

slow_a_script_of_the_mpi_operator() {
    pods
    printf '#!/bin/sh\nPOD_NAME=$1\nshift\nexec kubectl exec -i "$POD_NAME" -- /bin/sh -c "$*"\n' > "$T/kubexec.sh"
    chmod +x "$T/kubexec.sh"
    run "$HVDRUN" -H node1:1,node2:1 --rsh "$T/kubexec.sh" sh -c 'echo "it'\''s $RANK"'
    expect_status 0
    expect_sorted "it's 0" "it's 1"
}

case_a_pod_that_is_deleted() {
    pods
    start --verbose -H node1:1,node2:1 --rsh 'kubectl exec -i' --grace 1 --heartbeat-timeout 3 sh -c 'echo up; exec sleep 321'
    until_out 10 up 2
    touch "$T/deleted"
    on 2 "kill -9 $(sed -n 's/.* node2: session \([0-9]*\) on .*/\1/p' "$T/err")"
    stop_status
    expect_status 125
    expect_err 'host node2: the session of the job .* was killed by signal 9'
    expect_err '^hvdrun: error: host node2 could not be reached again \(error: unable to upgrade connection: container not found \("main"\)\); its session '
    expect_no "$T/err" 'processes of the job are left'
    leave_within=8
}

slow_hvdrun_is_killed() {
    pods
    start -H node1:1,node2:1 --rsh 'kubectl exec -i' --grace 1 sh -c 'trap "" TERM; echo up; while :; do sleep 321; done'
    until_out 10 up 2
    kill -9 "$pid"
    stop_status
    leave_within=8
}
