# shellcheck shell=bash disable=SC2034,SC2154
# hvd_join on one host: ranks with unequal work.
limit=30

UNEVEN=$BUILD/tests/uneven # its source says what it does

case_ranks_with_unequal_work() {
    hvd -np 4 "$UNEVEN"
    expect_status 0
    expect_count 4 '^rank [0-9]: all right, rank 3 was last$' "$T/out"
    expect_no_err
}

case_alone() {
    hvd -np 1 "$UNEVEN"
    expect_status 0
    expect_out 'rank 0: all right, rank 0 was last'
}

case_no_stall_is_told_of_ranks_that_have_joined() {
    hvd -np 3 --stall-check-warning-time-seconds 1 --stall-check-shutdown-time-seconds 2 "$UNEVEN" wait 3500
    expect_status 0
    expect_count 3 'all right, rank 2 was last' "$T/out"
    expect_no_err
}

case_what_needs_joined_ranks_says_who_they_are() {
    hvd -np 3 "$UNEVEN" refused
    expect_status 0
    expect_count 1 '^HVD_ERR_MISMATCH: tensor "weights": rank 0 asks for broadcast from rank 0 of 5 float32, but ranks 1, 2 have joined$' "$T/out"
}

case_a_death_ends_the_join() {
    hvd -np 3 "$UNEVEN" die
    expect_status 137
    expect_count 2 'rank [01]: hvd_join: HVD_ERR_PEER; rank 2 on ' "$T/err"
}
