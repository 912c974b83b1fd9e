# shellcheck shell=bash disable=SC2034,SC2154
# What hvdrun's exit status says: the first failing rank's own, 128 + signal, 126, 127, 124, 2, 125.

case_zero_when_all_are_zero() {
    hvd -np 4 true
    expect_status 0
    expect_no_err
}

case_the_failing_ranks_own_status() {
    # shellcheck disable=SC2016
    hvd -np 4 sh -c '[ "$HOROVOD_RANK" != 2 ] || exit 7; exec sleep 60'
    expect_status 7
    expect_err 'rank 2.*(exit(ed with)? status|status) 7'
}

case_the_first_failure_wins_over_later_ones() {
    # shellcheck disable=SC2016
    hvd -np 3 sh -c 'case $HOROVOD_RANK in 1) sleep 0.3; exit 9;; esac; trap "exit 5" TERM; sleep 60 & wait'
    expect_status 9
}

case_a_status_above_127_is_kept() {
    hvd -np 1 sh -c 'exit 200'
    expect_status 200
}

case_a_signal_is_128_and_its_number() {
    # shellcheck disable=SC2016
    hvd -np 2 sh -c '[ "$HOROVOD_RANK" != 1 ] || kill -SEGV $$; exec sleep 60'
    expect_status 139
    expect_err 'rank 1.*signal 11'
    # shellcheck disable=SC2016
    hvd -np 2 sh -c '[ "$HOROVOD_RANK" != 0 ] || kill -KILL $$; exec sleep 60'
    expect_status 137
}

case_the_report_has_the_last_lines_of_the_first_failing_rank() {
    # shellcheck disable=SC2016
    hvd -np 3 sh -c 'echo noise of $HOROVOD_RANK >&2; [ "$HOROVOD_RANK" = 1 ] || exec sleep 60
        for n in 1 2 3 4 5 6; do echo "cause $n" >&2; done; printf "\033[2Jlast\n" >&2; sleep 0.2; exit 7'
    expect_status 7
    expect_err '^hvdrun: rank 1 .* 0\.[2-9] s after its start$'
    sed -n '/^hvdrun: the last lines of its stderr:$/,/^hvdrun: after that, 2 ranks were ended/p' "$T/err" > "$T/part"
    expect_same "hvdrun:   cause 3/hvdrun:   cause 4/hvdrun:   cause 5/hvdrun:   cause 6/hvdrun:   ?[2Jlast" \
        "$(sed '1d;$d' "$T/part" | paste -sd /)" "what is shown of stderr"
    # Who was silent is not quoted.
    hvd -np 1 sh -c 'exit 3'
    expect_count 1 '^hvdrun: ' "$T/err"
}

case_failure_ends_the_others_at_once() {
    mark_time
    # shellcheck disable=SC2016
    hvd -np 8 sh -c '[ "$HOROVOD_RANK" != 5 ] || exit 3; exec sleep 60'
    expect_status 3
    expect_within 3
}

case_others_go_on_after_a_failure_when_asked_to() {
    # shellcheck disable=SC2016
    hvd --on-failure continue -np 3 sh -c 'case $HOROVOD_RANK in 0) exit 5;; 1) sleep 0.3; echo one; exit 6;; *) sleep 0.6; echo two;; esac'
    expect_status 5
    expect_sorted one two
    expect_err '^hvdrun: rank 0 on .* failed first: exit status 5'
    expect_err '^hvdrun: after that, 1 rank failed too$'
    # A signal ends them all the same.
    # shellcheck disable=SC2016
    start --on-failure continue -np 2 sh -c '[ "$HOROVOD_RANK" = 1 ] || exit 5; sleep 0.2; echo here; exec sleep 60'
    until_out 10 here
    mark_time
    kill -TERM "$pid"
    stop_status
    expect_status 5
    expect_within 3
}

case_a_worker_that_ignores_term_is_killed_after_grace() {
    mark_time
    # shellcheck disable=SC2016
    hvd --grace 1 -np 2 sh -c 'trap "" TERM; [ "$HOROVOD_RANK" != 0 ] || { sleep 0.2; exit 4; }; while :; do sleep 1; done'
    expect_status 4
    expect_within 5
}

case_children_and_daemons_of_workers_are_ended() {
    hvd -np 2 sh -c '(setsid sleep 300 &) ; sleep 300 & exit 0'
    expect_status 0
}

case_a_command_that_does_not_exist_is_127() {
    hvd -np 2 no-such-command-anywhere
    expect_status 127
    one_clear_line 'no-such-command-anywhere.*' 'unknown command'
    hvd -np 2 ./no/such/file
    expect_status 127
}

case_a_command_that_cannot_be_executed_is_126() {
    echo 'echo no' > "$T/plain"
    hvd -np 2 "$T/plain"
    expect_status 126
    one_clear_line 'plain.*' 'not executable'
    hvd -np 1 "$T"
    expect_status 126
}

case_a_wrong_wdir_is_125_and_names_it() {
    hvd -np 2 --wdir /no/such/directory touch "$T/started"
    expect_status 125
    one_clear_line '/no/such/directory' 'wrong --wdir'
    [ ! -e "$T/started" ] || fail "started all the same"
}

case_a_timeout_is_124() {
    mark_time
    hvd --timeout 1 -np 2 sleep 60
    expect_status 124
    expect_err '1 ?s|time'
    expect_within 4
}

case_a_timeout_that_is_not_reached_changes_nothing() {
    hvd --timeout 30 -np 2 sh -c 'exit 0'
    expect_status 0
    expect_no_err
}

case_many_short_workers() {
    hvd -np 32 true
    expect_status 0
}

case_again_and_again() {
    local n
    for n in $(seq 15); do
        hvd -np 3 sh -c 'echo x; exit 0'
        [ "$status" = 0 ] || fail "run $n ended with $status"
        [ "$(wc -l < "$T/out")" = 3 ] || fail "run $n lost output"
    done
}
