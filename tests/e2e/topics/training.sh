# shellcheck shell=bash disable=SC2034,SC2154
# The example trains: the same losses whatever the number of workers, and a death ends everybody's calls.
limit=60

# shellcheck source=tests/e2e/losses.sh
. "$top/tests/e2e/losses.sh"

train() { # NP MORE...
    local np=$1
    shift
    hvd -np "$np" "$@" "$TRAIN" --steps "${steps:-100}" --seed 5
    expect_status 0
}

case_trains_alone_without_hvdrun() {
    run "$TRAIN" --steps 10
    expect_status 0
    expect_out 'loss='
}

case_the_same_losses_with_1_2_and_4_workers() {
    local np
    for np in 1 2 4; do
        train $np
        losses "$T/out" > "$T/losses.$np"
    done
    same_losses "$T/losses.1" "$T/losses.2"
    same_losses "$T/losses.1" "$T/losses.4"
}

case_the_loss_falls() {
    steps=100 train 2
    losses "$T/out" | awk 'NR == 1 {first = $2} {last = $2} END {exit !(last < 0.8 * first)}' || fail "the loss does not fall"
}

case_the_same_bits_from_run_to_run() {
    steps=30
    train 2
    losses "$T/out" > "$T/first"
    train 2
    losses "$T/out" > "$T/second"
    cmp "$T/first" "$T/second" || fail "two runs of one placement differ"
}

case_a_checkpoint_resumes() {
    hvd -np 2 "$TRAIN" --steps 20 --checkpoint "$T/state"
    expect_status 0
    hvd -np 2 "$TRAIN" --steps 40 --checkpoint "$T/state"
    expect_status 0
    losses "$T/out" > "$T/resumed"
    hvd -np 2 "$TRAIN" --steps 40
    losses "$T/out" | awk '$1 > 20' > "$T/straight"
    same_losses "$T/straight" "$T/resumed"
}

case_a_dead_rank_ends_the_others_calls_and_is_named() {
    # shellcheck disable=SC2016
    start -np 3 sh -c 'echo pid $HOROVOD_RANK $$; exec "$0" --steps 1000000' "$TRAIN"
    until_out 20 'loss='
    mark_time
    kill -KILL "$(sed -n 's/^pid 1 //p' "$T/out")"
    stop_status
    expect_within 5
    expect_status 137
    expect_err 'rank 1.*signal 9'
}

case_a_rank_that_exits_without_shutdown_is_a_failure() {
    # shellcheck disable=SC2016
    start -np 2 sh -c 'if [ $HOROVOD_RANK = 1 ]; then exit 0; fi; exec "$0" --steps 50' "$TRAIN"
    mark_time
    stop_status
    [ "$status" != 0 ] || fail "exit status 0, though rank 1 never joined"
    expect_within 20
}

case_kill_9_of_hvdrun_in_training() {
    start -np 2 "$TRAIN" --steps 1000000
    until_out 20 'loss='
    kill -KILL $pid
    stop_status
    leave_within=8
}

case_bad_arguments_of_train() {
    hvd -np 2 "$TRAIN" --steps nonsense
    expect_status 2
    hvd -np 2 "$TRAIN" --data /no/such/file
    expect_status 2
    expect_err '/no/such/file'
}
