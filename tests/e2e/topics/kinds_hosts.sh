# shellcheck shell=bash disable=SC2034,SC2154
# Every kind of operation between hosts, ragged, with compression and scales: a worker compares each result on each rank.
hosts=3
limit=60

KINDS=$BUILD/tests/kinds # its source says what it does

all_right() { # RANKS
    expect_status 0
    expect_no_err
    expect_count "$1" '^rank [0-9]+: all right$' "$T/out"
}

case_every_kind_on_two_ranks_of_two_hosts() {
    hvd -np 4 -H $H1:2,$H2:2 "$KINDS" 12 40000
    all_right 4
}

case_every_kind_on_three_uneven_hosts() {
    hvd -H $H1:1,$H2:3,$H3:2 "$KINDS" 8 3000000
    all_right 6
}

case_every_kind_of_few_bytes() {
    hvd -H $H1:2,$H2:1,$H3:1 "$KINDS" 16 300
    all_right 4
}

case_every_kind_in_flat_mode() {
    hvd -H $H1:1,$H2:3,$H3:2 --no-hierarchical-allreduce "$KINDS" 8 300000
    all_right 6
    HOROVOD_HIERARCHICAL_ALLREDUCE=0 hvd -H $H1:2,$H2:2,$H3:2 --map-by node --autotune "$KINDS" 8 3000
    all_right 6
}

case_tensors_that_travel_as_one_have_the_same_bits() {
    hvd -H $H1:2,$H2:1,$H3:2 "$BUILD/tests/fused" 6
    all_right 5
}

case_a_rank_that_dies_in_the_middle_is_named() {
    # shellcheck disable=SC2016
    start -np 4 -H $H1:2,$H2:1,$H3:1 sh -c '[ $HOROVOD_RANK != 3 ] || echo $$ > "$1/pid"; exec "$0" 1000000 200000' "$KINDS" "$T"
    until_out 20 'first round'
    mark_time
    on 3 "kill -9 $(cat "$T/pid")"
    stop_status
    expect_within 6
    expect_status 137
    expect_err "rank 3 on $H3.*signal 9"
}

slow_many_rounds_of_large_tensors() {
    hvd -H $H1:2,$H2:1,$H3:2 "$KINDS" 40 16000000
    all_right 5
}

# hvd.h's promises about the ends of the ranges, of 16-bit floats above all: the same bits wherever four ranks are.
EXTREMES=$BUILD/tests/extremes

case_numbers_at_the_ends_of_their_range_on_one_host() {
    hvd -np 4 -H $H1:4 "$EXTREMES"
    all_right 4
}

case_numbers_at_the_ends_of_their_range_on_two_hosts() {
    hvd -np 4 -H $H1:2,$H2:2 "$EXTREMES"
    all_right 4
    hvd -np 4 -H $H1:1,$H2:3 "$EXTREMES" 4000
    all_right 4
}

case_numbers_at_the_ends_of_their_range_on_three_hosts() {
    hvd -np 4 -H $H1:1,$H2:2,$H3:1 "$EXTREMES"
    all_right 4
    hvd -np 4 -H $H1:1,$H2:2,$H3:1 --no-hierarchical-allreduce "$EXTREMES" 4000
    all_right 4
}
