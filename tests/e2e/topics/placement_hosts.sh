# shellcheck shell=bash disable=SC2034,SC2154
# Ranks of a host that do not follow one another: who they are, and that everything between hosts is right.
hosts=2
limit=60

# shellcheck disable=SC2016
show='echo $HOROVOD_RANK/$HOROVOD_SIZE $HOROVOD_LOCAL_RANK/$HOROVOD_LOCAL_SIZE $HOROVOD_CROSS_RANK/$HOROVOD_CROSS_SIZE'

case_by_node_ranks_go_round() {
    hvd -np 4 --map-by node -H $H1:2,$H2:2 sh -c "$show"
    expect_status 0
    expect_no_err
    expect_sorted '0/4 0/2 0/2' '1/4 0/2 1/2' '2/4 1/2 0/2' '3/4 1/2 1/2'
}

case_by_node_past_full_hosts() {
    hvd --map-by node -H $H1:3,$H2:1 --tag host sh -c "$show"
    expect_sorted "[0@$H1]<stdout>:0/4 0/3 0/2" "[1@$H2]<stdout>:1/4 0/1 1/2" "[2@$H1]<stdout>:2/4 1/3 0/1" \
        "[3@$H1]<stdout>:3/4 2/3 0/1"
}

case_so_many_on_each_host() {
    hvd --ppr 2 -H $H1,$H2 sh -c "$show"
    expect_sorted '0/4 0/2 0/2' '1/4 1/2 0/2' '2/4 0/2 1/2' '3/4 1/2 1/2'
}

case_more_ranks_than_slots() {
    hvd -np 5 -H $H1:1,$H2:1 true
    expect_status 2
    expect_err 'asks for more ranks than there are slots: 2'
    hvd -np 5 --oversubscribe -H $H1:1,$H2:1 sh -c "$show"
    expect_status 0
    expect_sorted '0/5 0/3 0/2' '1/5 1/3 0/2' '2/5 2/3 0/1' '3/5 0/2 1/2' '4/5 1/2 1/2'
}

case_every_kind_by_node() {
    hvd -np 4 --map-by node -H $H1:2,$H2:2 "$BUILD/tests/kinds" 12 40000
    expect_status 0
    expect_no_err
    expect_count 4 '^rank [0-9]+: all right$' "$T/out"
}

case_every_kind_by_node_on_uneven_hosts() {
    hvd --map-by node -H $H1:1,$H2:3 "$BUILD/tests/kinds" 8 3000000
    expect_status 0
    expect_no_err
    expect_count 4 '^rank [0-9]+: all right$' "$T/out"
}

case_the_ranks_of_a_lost_host_are_named() {
    # shellcheck disable=SC2016
    hvd --map-by node -np 4 -H $H1:2,$H2:2 sh -c 'case $HOROVOD_RANK in 3) exit 7;; esac; sleep 30'
    expect_status 7
    expect_err "rank 3 on $H2 .*exit status 7"
}

case_a_rankfile_over_hosts() {
    # The first rank, and with it MASTER_ADDR, is not on the first host.
    printf 'rank 0=%s\nrank 1=%s\nrank 2=%s slot=0\n' $H2 $H1 $H2 > "$T/ranks"
    hvd --rankfile "$T/ranks" -H $H1:2,$H2:2 --tag host sh -c "$show"
    expect_status 0
    expect_sorted "[0@$H2]<stdout>:0/3 0/2 1/2" "[1@$H1]<stdout>:1/3 0/1 0/2" "[2@$H2]<stdout>:2/3 1/2 0/1"
    hvd --rankfile "$T/ranks" -H $H1:2,$H2:2 "$BUILD/tests/kinds" 8 40000
    expect_status 0
    expect_count 3 '^rank [0-9]+: all right$' "$T/out"
}
