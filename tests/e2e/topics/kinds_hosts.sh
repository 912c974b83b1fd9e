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

slow_many_rounds_of_large_tensors() {
    hvd -H $H1:2,$H2:1,$H3:2 "$KINDS" 40 16000000
    all_right 5
}
