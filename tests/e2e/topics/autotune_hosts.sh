# shellcheck shell=bash disable=SC2034,SC2154
# Autotune between hosts: the log of the first host, and results that do not know of it.
hosts=3
limit=60

STEPS=$BUILD/tests/steps

# A measurement has 1 step, so a sample has 5 and one in which the values change.
tuned() { # SAMPLES HOSTS STEPS [EPOCHS]
    hvd -H "$2" --autotune --autotune-log-file /tmp/autotune.csv --autotune-warmup-samples 2 \
        --autotune-steps-per-sample 1 --autotune-bayes-opt-max-samples "$1" "$STEPS" "$3" "${4:-1}"
    expect_status 0
    expect_no_err
    on 1 'cat /tmp/autotune.csv; rm /tmp/autotune.csv' > "$T/csv" || fail "no log on the first host"
    on 2 'test ! -e /tmp/autotune.csv' || fail "a log on the second host"
}

digests() {
    sort "$T/out" > "$T/$1"
    [ "$(sed 's/.*: //' "$T/$1" | sort -u | wc -l)" = 1 ] || fail "ranks differ: $(cat "$T/$1")"
}

case_the_log_ends_with_the_chosen_and_no_bit_changes() {
    tuned 6 $H1:2,$H2:2 45
    digests tuned
    expect_count 1 '^sample,eager_bytes,piece_bytes,in_flight,fusion_bytes,score$' "$T/csv"
    expect_count 1 '^1,16384,262144,4,1048576,[0-9.]+$' "$T/csv"
    [ "$(grep -cE '^[2-6](,[0-9]+){4},[0-9.]+$' "$T/csv")" -ge 3 ] || fail "too few samples: $(cat "$T/csv")"
    [ "$(sed -n 's/^[2-6],\(.*\),[^,]*$/\1/p' "$T/csv" | sort -u | wc -l)" -ge 3 ] || fail "nothing was tried: $(cat "$T/csv")"
    tail -n 1 "$T/csv" | grep -qE '^best(,[0-9]+){4},[0-9.]+$' || fail "not at its end: $(cat "$T/csv")"
    expect_count 0 '^#' "$T/csv"
    hvd -H $H1:2,$H2:2 "$STEPS" 45
    expect_status 0
    digests plain
    cmp -s "$T/tuned" "$T/plain" || fail "other results: $(cat "$T/tuned" "$T/plain")"
}

case_a_job_that_ends_early_says_the_best_so_far() {
    tuned 20 $H1:1,$H2:2,$H3:1 10
    expect_count 1 '^# the job has ended before autotune$' "$T/csv"
    tail -n 1 "$T/csv" | grep -qE '^best,16384,262144,4,1048576,[0-9.]+$' || fail "another end: $(cat "$T/csv")"
}

case_another_epoch_goes_on_with_the_search() {
    tuned 20 $H1:2,$H2:1 45 2
    digests tuned
    # Both epochs end before the search.
    [ "$(sed -n '/^#/,$p' "$T/csv" | grep -c '^[0-9]')" -ge 2 ] || fail "nothing was tried in the second epoch: $(cat "$T/csv")"
    tail -n 1 "$T/csv" | grep -qE '^best(,[0-9]+){4},[0-9.]+$' || fail "another end: $(cat "$T/csv")"
    hvd -H $H1:2,$H2:1 "$STEPS" 45 2
    digests plain
    cmp -s "$T/tuned" "$T/plain" || fail "other results: $(cat "$T/tuned" "$T/plain")"
}

case_every_parameter_is_tried_unless_the_user_has_said_it() {
    tuned 20 $H1:1,$H2:1 260
    for column in 2 3 4 5; do
        [ "$(sed -n '2,$p' "$T/csv" | cut -d, -f$column | sort -u | wc -l)" -ge 2 ] || fail "column $column was never changed: $(cat "$T/csv")"
    done
    expect_count 0 '^#' "$T/csv"
    HOROVOD_FUSION_THRESHOLD=3000000 tuned 20 $H1:1,$H2:1 260
    expect_same 3000000 "$(sed -n '2,$p' "$T/csv" | cut -d, -f5 | sort -u)" 'the threshold that was said'
}
