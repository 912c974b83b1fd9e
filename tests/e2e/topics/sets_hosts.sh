# shellcheck shell=bash disable=SC2034,SC2154
# Process sets, sends and receives over hosts: a worker compares each result.
hosts=3
limit=30

SETS=$BUILD/tests/sets # its source says what it does

all_right() { # RANKS
    expect_status 0
    expect_count "$1" '^rank [0-9]+: all right$' "$T/out"
}

case_sets_of_two_ranks_on_two_hosts() {
    hvd -np 4 -H $H1:2,$H2:2 "$SETS"
    all_right 4
    expect_no_err
}

case_sets_of_three_uneven_hosts() {
    hvd -H $H1:1,$H2:3,$H3:2 "$SETS"
    all_right 6
    expect_no_err
}

case_sets_of_ranks_that_go_round_the_hosts() {
    hvd --map-by node -H $H1:1,$H2:3,$H3:2 "$SETS"
    all_right 6
    expect_no_err
}

case_a_stall_in_a_set_names_its_ranks_only() {
    hvd -H $H1:1,$H2:1,$H3:2 --stall-check-warning-time-seconds 1 "$SETS" 3500
    all_right 4
    expect_count 1 'tensor "small": allreduce has waited [1-3] s for rank 3 on '$H3'$' "$T/err"
    expect_count 1 'tensor "small": allreduce goes on after ' "$T/err"
}
