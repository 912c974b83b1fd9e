# shellcheck shell=bash disable=SC2034,SC2154
# Autotune on one host, where there is nothing to tune.
STEPS=$BUILD/tests/steps

case_one_host_says_so_in_the_log() {
    cd "$T" || fail "no directory"
    hvd -np 2 --autotune --autotune-log-file tune.csv "$STEPS" 2
    expect_status 0
    expect_no_err
    expect_count 1 '^# one host: nothing to tune' tune.csv
    expect_count 2 '' tune.csv
}

case_a_log_that_cannot_be_written_is_told() {
    hvd -np 2 --autotune --autotune-log-file "$T/no/tune.csv" "$STEPS" 2
    expect_status 0
    expect_err "no log of autotune: cannot write $T/no/tune.csv: No such file"
    hvd -np 2 --no-autotune --autotune-log-file "$T/no/tune.csv" "$STEPS" 2
    expect_status 0
    expect_no_err
}

case_variables_reach_horovods_workers() {
    # shellcheck disable=SC2016
    hvd -np 1 --autotune --autotune-log-file /tmp/t.csv --autotune-steps-per-sample 7 --autotune-gaussian-process-noise 0.5 \
        sh -c 'env | grep ^HOROVOD_AUTOTUNE | sort'
    expect_status 0
    expect_count 1 '^HOROVOD_AUTOTUNE=1$' "$T/out"
    expect_count 1 '^HOROVOD_AUTOTUNE_LOG=/tmp/t.csv$' "$T/out"
    expect_count 1 '^HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE=7$' "$T/out"
    expect_count 1 '^HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE=0.5$' "$T/out"
    expect_count 4 '^HOROVOD_AUTOTUNE' "$T/out"
}
