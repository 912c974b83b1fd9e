# shellcheck shell=bash disable=SC2034,SC2154
# Ranks that do not call what others wait in: named after a time, and, when asked for, the end of the job.
LAGGARD=$BUILD/tests/laggard

case_a_late_rank_is_named_and_its_coming_too() {
    hvd -np 4 --stall-check-warning-time-seconds 1 "$LAGGARD" 2600 1 3
    expect_status 0
    expect_count 1 'warning.*tensor "grad.3": allreduce has waited [12] s for ranks 1, 3 on ' "$T/err"
    expect_count 1 'tensor "grad.3": allreduce goes on after [1234] s' "$T/err"
    expect_count 2 tensor "$T/err"
}

# The hosts are asked where the rank is; one line for a job says where more of that is shown.
case_the_reason_is_said_with_the_warning() {
    hvd -np 3 --stall-check-warning-time-seconds 1 --timeout 8 "$BUILD/tests/culprit" stop 1
    expect_count 1 'warning: 2 ranks wait for [0-9.]+ s in allreduce "layer.1.weight" for rank 1 on localhost, which is stopped \(pid [0-9]+\); kill -CONT [0-9]+ on localhost lets it go on$' "$T/err"
    expect_count 1 'warning: hvdctl why [^ ]+ shows where all ranks are$' "$T/err"
}

case_the_check_can_be_left_out() {
    hvd -np 2 --no-stall-check --stall-check-warning-time-seconds 1 "$LAGGARD" 2500 1
    expect_status 0
    expect_no_err
}

slow_horovods_variables_say_the_same() {
    export HOROVOD_STALL_CHECK_TIME_SECONDS=1
    hvd -np 2 "$LAGGARD" 2500 1
    expect_status 0
    expect_count 1 'has waited [12] s for rank 1 on ' "$T/err"
    export HOROVOD_STALL_CHECK_DISABLE=1
    hvd -np 2 "$LAGGARD" 2500 1
    expect_no_err
    hvd -np 2 --stall-check "$LAGGARD" 2500 1
    expect_err 'has waited [12] s for rank 1 on '
}

case_a_stall_ends_the_job_when_asked_for() {
    hvd -np 3 --stall-check-warning-time-seconds 0 --stall-check-shutdown-time-seconds 1 --report "$T/report" "$LAGGARD" 60000 2
    expect_status 125
    expect_err 'tensor "grad.3": allreduce was given up after [12] s .*waited for rank 2 on '
    expect_err 'rank [0-2]: grad.3: HVD_ERR_[A-Z]*; tensor "grad.3": allreduce was given up'
    grep -q 'grad.3.*given up' "$T/report" || fail "the report does not name it: $(cat "$T/report")"
}
