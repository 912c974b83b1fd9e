# shellcheck shell=bash disable=SC2034,SC2154
# Ranks of other hosts that are missing: one line names all of them, whoever has noticed.
hosts=2
limit=30
LAGGARD=$BUILD/tests/laggard

case_missing_ranks_of_both_hosts_are_in_one_line() {
    hvd -H $H1:2,$H2:2 --stall-check-warning-time-seconds 1 "$LAGGARD" 3500 1 3
    expect_status 0
    expect_count 1 'tensor "grad.3": allreduce has waited [1-3] s for rank 1 on '$H1', rank 3 on '$H2 "$T/err"
    expect_count 1 'tensor "grad.3": allreduce goes on after ' "$T/err"
    expect_count 2 tensor "$T/err"
    expect_count 1 "warning: 2 ranks wait for .* for ranks 1,3; rank 1 waits in " "$T/err"
}

case_a_rank_that_does_not_do_its_part_is_named() {
    hvd -H $H1:2,$H2:2 --stall-check-warning-time-seconds 1 -x LAGGARD_PIECES=1 "$LAGGARD" 3500 3
    expect_status 0
    expect_count 1 'tensor "pieces": allreduce has waited [1-3] s for rank 3 on '$H2 "$T/err"
    expect_count 1 'tensor "pieces": allreduce goes on after ' "$T/err"
}

case_a_whole_host_is_missing() {
    hvd -H $H1:2,$H2:2 --stall-check-warning-time-seconds 1 "$LAGGARD" 3500 0 1
    expect_status 0
    expect_count 1 'has waited [1-3] s for ranks 0 and 1 on '$H1'$' "$T/err"
    hvd -H $H1:2,$H2:2 --stall-check-warning-time-seconds 1 "$LAGGARD" 3500 2 3
    expect_status 0
    expect_count 1 'has waited [1-3] s for ranks 2 and 3 on '$H2'$' "$T/err"
}

case_a_stall_ends_the_job_on_all_hosts() {
    hvd -H $H1:2,$H2:2 --stall-check-shutdown-time-seconds 1 "$LAGGARD" 60000 3
    expect_status 125
    expect_err 'tensor "grad.3": allreduce was given up after [1-3] s .*waited for rank 3 on '$H2
    expect_count 3 'rank [0-2]: grad.3: HVD_ERR_[A-Z]*; tensor "grad.3": allreduce was given up' "$T/err"
}

# The ranks have a connection of their own by then, and the engines see nothing but entries.
case_the_only_ranks_of_two_hosts() {
    hvd -H $H1:1,$H2:1 --stall-check-warning-time-seconds 1 -x LAGGARD_ROUNDS=100 "$LAGGARD" 3500 1
    expect_status 0
    expect_count 1 'tensor "grad.3": allreduce has waited [1-3] s for rank 1 on '$H2'$' "$T/err"
    expect_count 1 'tensor "grad.3": allreduce goes on after ' "$T/err"
    hvd -H $H1:1,$H2:1 --stall-check-warning-time-seconds 1 --stall-check-shutdown-time-seconds 2 -x LAGGARD_ROUNDS=100 "$LAGGARD" 60000 0
    expect_status 125
    expect_err 'tensor "grad.3": allreduce was given up after [1-3] s .*waited for rank 0 on '$H1
    expect_count 1 'rank 1: grad.3: HVD_ERR_[A-Z]*; tensor "grad.3": allreduce was given up' "$T/err"
}

slow_each_host_knows_who_is_waited_for_and_what_its_links_carried() {
    start -H $H1:2,$H2:2 --stall-check-warning-time-seconds 1 "$LAGGARD" 9000 3
    both_say() {
        ssh "$H1" "$BUILD/hvdctl" metrics > "$T/shown" 2> "$T/shown.err" < /dev/null
        ssh "$H2" "$BUILD/hvdctl" metrics >> "$T/shown" 2>> "$T/shown.err" < /dev/null
        [ "$(grep -c '^hvd_job_stalled_tensors{.*} 1$' "$T/shown")" = 2 ]
    }
    until_true 15 both_say || fail "$(cat "$T/shown" "$T/shown.err")"
    expect_count 2 '^hvd_collective_operations_total\{.*kind="allreduce"\} 2$' "$T/shown"
    expect_count 2 '^hvd_link_(sent|received)_bytes_total\{.*host="'$H1'"\} [1-9][0-9]+$' "$T/shown"
    expect_same '' "$(grep -v '^#' "$T/shown" | sed 's/ .*//' | sort | uniq -d)" 'samples that come twice'
    kill -KILL $pid
    stop_status
}
