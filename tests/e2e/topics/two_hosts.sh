# shellcheck shell=bash disable=SC2034,SC2154
# Two real hosts over SSH: placement, output, training, clean-up everywhere.
hosts=2
limit=45

# shellcheck disable=SC2016
show='echo $HOROVOD_RANK/$HOROVOD_SIZE $HOROVOD_LOCAL_RANK/$HOROVOD_LOCAL_SIZE $HOROVOD_CROSS_RANK/$HOROVOD_CROSS_SIZE'
# shellcheck disable=SC2016
stubborn='trap "" INT TERM; echo ready; while :; do sleep 0.1; done'

case_ranks_in_blocks() {
    hvd -np 4 -H $H1:2,$H2:2 sh -c "$show"
    expect_status 0
    expect_no_err
    expect_sorted '0/4 0/2 0/2' '1/4 1/2 0/2' '2/4 0/2 1/2' '3/4 1/2 1/2'
}

case_with_wait_and_nothing_to_wait_for() {
    hvd --wait -np 4 -H $H2:2,$H1:2 sh -c "$show"
    expect_status 0
    expect_sorted '0/4 0/2 0/2' '1/4 1/2 0/2' '2/4 0/2 1/2' '3/4 1/2 1/2'
}

case_uneven_hosts() {
    hvd -H $H1:3,$H2:1 sh -c "$show"
    expect_sorted '0/4 0/3 0/2' '1/4 1/3 0/1' '2/4 2/3 0/1' '3/4 0/1 1/2'
}

case_workers_run_on_their_hosts() {
    needs_kind ns
    # shellcheck disable=SC2016
    hvd -np 4 -H $H1:2,$H2:2 sh -c 'echo $HOROVOD_RANK $(hostname)'
    expect_sorted '0 node1' '1 node1' '2 node2' '3 node2'
}

case_hostfile() {
    printf '# two hosts\n\n%s slots=1\n%s:2 # the other\n' $H1 $H2 > "$T/hosts"
    hvd --hostfile "$T/hosts" sh -c "$show"
    expect_status 0
    expect_sorted '0/3 0/1 0/2' '1/3 0/2 1/2' '2/3 1/2 0/1'
}

case_auto_slots() {
    hvd -H $H1,$H2 sh -c "$show"
    expect_status 0
    expect_sorted '0/2 0/1 0/2' '1/2 0/1 1/2'
}

case_a_user_before_the_host() {
    needs_kind ns
    # An ordinary user cannot enter a build in root's home: the agent on PATH is taken, and another directory.
    on 2 "install -m 755 $BUILD/hvdagent /usr/local/bin/hvdagent"
    hvd --wdir / -H root@$H1:1,hvduser@$H2:1 id -un
    on 2 'rm /usr/local/bin/hvdagent'
    expect_status 0
    expect_sorted root hvduser
}

case_local_and_remote_together() {
    hvd -np 3 -H localhost:1,$H1:2 sh -c "$show"
    expect_status 0
    expect_sorted '0/3 0/1 0/2' '1/3 0/2 1/2' '2/3 1/2 0/1'
}

case_tags_name_the_host() {
    hvd --tag host -H $H1:1,$H2:1 echo x
    expect_count 1 "$H1.*x\$" "$T/out"
    expect_count 1 "$H2.*x\$" "$T/out"
}

case_torch_can_meet() {
    # shellcheck disable=SC2016
    hvd -H $H1:1,$H2:1 sh -c 'echo $MASTER_ADDR $MASTER_PORT'
    expect_status 0
    expect_same 1 "$(sort -u "$T/out" | wc -l)" 'the number of different MASTER_ADDR and MASTER_PORT'
    expect_no "$T/out" '^localhost|^127\.0\.0\.1 '
}

case_exit_status_from_a_remote_host() {
    # shellcheck disable=SC2016
    hvd -H $H1:1,$H2:2 sh -c '[ $HOROVOD_RANK != 2 ] || exit 9; exec sleep 60'
    expect_status 9
    expect_err "rank 2.*$H2|$H2.*rank 2"
}

case_nothing_secret_in_arguments_or_environment() {
    needs_kind ns
    MYSECRET=topsecret start -H $H1:1 sh -c 'echo ready; exec sleep 60'
    until_out 10 ready
    ! on 1 'cat /proc/[0-9]*/cmdline' | tr '\0' ' ' | grep -q topsecret || fail "the environment is on a command line"
    kill -TERM $pid
    stop_status
}

case_output_from_two_hosts_is_whole() {
    # shellcheck disable=SC2016
    hvd -H $H1:2,$H2:2 sh -c 'i=0; while [ $i -lt 3000 ]; do echo "<$HOROVOD_RANK:$i:abcdefghijklmnopqrstuvwxyz>"; i=$((i+1)); done'
    expect_status 0
    expect_count 12000 '^<[0-3]:[0-9]+:abcdefghijklmnopqrstuvwxyz>$' "$T/out"
}

case_stdin_to_a_remote_rank() {
    seq 20000 > "$T/in"
    hvd --stdin 1 -H $H1:1,$H2:1 sh -c 'cat | tail -n 1'
    expect_status 0
    expect_out '^20000$'
}

case_a_large_stdin_to_all_ranks() {
    head -c 1000000 /dev/urandom > "$T/in"
    hvd --stdin all -H $H1:1,$H2:1 sh -c 'sha256sum | cut -c1-64'
    expect_count 2 "^$(sha256sum < "$T/in" | cut -c1-64)\$" "$T/out"
}

case_interrupt_reaches_every_host() {
    start -H $H1:1,$H2:1 sh -c 'trap "echo got INT; exit 3" INT; echo ready; while :; do sleep 0.1; done'
    until_out 10 ready 2
    kill -INT $pid
    stop_status
    expect_count 2 'got INT' "$T/out"
}

case_kill_9_of_hvdrun_leaves_nothing_on_any_host() {
    start -np 4 -H $H1:2,$H2:2 sh -c "$stubborn"
    until_out 10 ready 4
    kill -KILL $pid
    stop_status
    leave_within=10
}

case_kill_9_of_a_remote_session_ends_the_job() {
    needs_kind ns
    start -np 4 -H $H1:2,$H2:2 sh -c "$stubborn"
    until_out 10 ready 4
    on 2 "for d in /proc/[0-9]*; do [ \"\$(readlink \$d/exe)\" = '$BUILD/hvdagent' ] && echo \${d#/proc/}; done | sort -n | tail -n 1 | xargs kill -9"
    mark_time
    stop_status
    expect_within 12
    expect_status 125
    expect_err "$H2"
    leave_within=5
}

case_a_lost_link_ends_the_job() {
    needs_kind ns
    start --heartbeat-timeout 3 --grace 1 -np 2 -H $H1:1,$H2:1 sh -c "$stubborn"
    until_out 10 ready 2
    ip link set v2 down
    mark_time
    stop_status
    ip link set v2 up
    expect_status 125
    expect_within 15
    expect_err "$H2"
    leave_within=15
}

case_rsh_script() {
    printf '#!/bin/sh\necho "$@" >> %s/calls\nexec %s "$@"\n' "$T" "${ssh_command[*]}" > "$T/my-rsh"
    chmod +x "$T/my-rsh"
    hvd --rsh "$T/my-rsh" -np 2 -H node1:1,node2:1 sh -c "$show"
    expect_status 0
    expect_sorted '0/2 0/1 0/2' '1/2 0/1 1/2'
    expect_same 2 "$(wc -l < "$T/calls")" 'the number of calls of the --rsh script'
}

case_rsh_template() {
    printf '#!/bin/sh\nh=$2; shift 2; exec %s "$h" "$@"\n' "${ssh_command[*]}" > "$T/my-rsh"
    chmod +x "$T/my-rsh"
    "$HVDRUN" --rsh "$T/my-rsh --to {host}" -np 2 -H node1:1,node2:1 true > "$T/out" 2> "$T/err" < /dev/null
    status=$?
    expect_status 0
}

case_noise_of_the_remote_shell_is_skipped() {
    printf '#!/bin/sh\necho Welcome to this host; echo -e "\\033[1m"; exec %s "$@"\n' "${ssh_command[*]}" > "$T/noisy"
    chmod +x "$T/noisy"
    hvd --rsh "$T/noisy" -np 1 -H node1:1 echo fine
    expect_status 0
    expect_sorted fine
}

# The example over two hosts
losses() {
    sed -nE 's/.*step[ =]*([0-9]+).*loss[ =]+([0-9.eE+-]+).*/\1 \2/p' "$1" | awk '$1 <= 100'
}

case_the_same_losses_on_one_and_two_hosts() {
    hvd -np 1 -H localhost:1 "$TRAIN" --steps 100 --seed 5
    expect_status 0
    losses "$T/out" > "$T/one"
    hvd -np 4 -H $H1:2,$H2:2 "$TRAIN" --steps 100 --seed 5
    expect_status 0
    losses "$T/out" > "$T/two"
    [ "$(wc -l < "$T/one")" -ge 20 ] || fail "too few losses"
    expect_same "$(wc -l < "$T/one")" "$(wc -l < "$T/two")" 'the number of losses'
    paste -d' ' "$T/one" "$T/two" | awk '{d = $2 - $4; if (d < 0) d = -d; if ($1 != $3 || !(d <= 1e-4 * $2)) {print; bad = 1}} END {exit bad}' ||
        fail "the losses differ"
}

case_a_dead_rank_on_another_host_is_named() {
    # shellcheck disable=SC2016
    start -np 2 -H $H1:1,$H2:1 sh -c '[ $HOROVOD_RANK != 1 ] || echo $$ > "$1/pid"; exec "$0" --steps 1000000' "$TRAIN" "$T"
    until_out 20 'loss='
    mark_time
    on 2 "kill -9 $(cat "$T/pid")"
    stop_status
    expect_within 6
    expect_status 137
    expect_err 'rank 1.*signal 9'
    expect_err "$H2"
}

# A host that does not answer is named, and not waited for.
slow_where_the_ranks_are() {
    needs_kind ns
    command -v eu-stack > /dev/null || command -v gdb > /dev/null || skip "neither eu-stack nor gdb here"
    hvd --timeout 3 -H $H1:2,$H2:2 sleep 60
    expect_status 124
    expect_err "^hvdrun: ranks 0-3 on $H1, $H2: sleep is sleeping"
    expect_err '^hvdrun:     clock_nanosleep < '
    start --timeout 4 --grace 1 -H $H1:2,$H2:2 sh -c 'echo $PPID; exec sleep 60'
    until_out 10 '^[0-9]+$' 4
    on 2 'kill -STOP $(cut -d" " -f4 /proc/$(pgrep -n -x sleep)/stat)'
    stop_status
    expect_status 124
    expect_err "^hvdrun: ranks 0,1 on $H1: sleep is sleeping"
    expect_err "^hvdrun: ranks 2,3 on $H2: no answer"
}
