# shellcheck shell=bash disable=SC2034,SC2154
# hvd_join between hosts: ranks with unequal work, whole hosts without any.
hosts=2
limit=30

UNEVEN=$BUILD/tests/uneven # its source says what it does

case_two_hosts_of_two() {
    hvd -np 4 -H $H1:2,$H2:2 "$UNEVEN"
    expect_status 0
    expect_count 4 '^rank [0-9]: all right, rank 3 was last$' "$T/out"
    expect_no_err
}

case_ranks_that_go_round_the_hosts() {
    hvd --map-by node -H $H1:3,$H2:2 "$UNEVEN"
    expect_status 0
    expect_count 5 '^rank [0-9]: all right, rank 4 was last$' "$T/out"
    expect_no_err
}

case_no_stall_is_told_of_hosts_that_have_joined() {
    hvd -np 4 -H $H1:2,$H2:2 --stall-check-warning-time-seconds 1 --stall-check-shutdown-time-seconds 2 "$UNEVEN" wait 3500
    expect_status 0
    expect_count 4 'all right, rank 3 was last' "$T/out"
    expect_no_err
}

case_what_needs_joined_ranks_says_who_they_are() {
    hvd -H $H1:1,$H2:2 "$UNEVEN" refused
    expect_status 0
    expect_count 1 "^HVD_ERR_MISMATCH: tensor 'weights': rank 0 \($H1\) has called broadcast, ranks 1-2 \($H2\) have joined$" "$T/out"
}

case_a_death_ends_the_join() {
    hvd -np 4 -H $H1:2,$H2:2 "$UNEVEN" die
    expect_status 137
    expect_count 3 'rank [012]: hvd_join: HVD_ERR_PEER; rank 3 on ' "$T/err"
}
