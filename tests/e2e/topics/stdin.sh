# shellcheck shell=bash disable=SC2034,SC2154
# --stdin RANK|all|none.

case_rank_0_gets_it_by_default() {
    seq 3 > "$T/in"
    # shellcheck disable=SC2016
    hvd -np 2 sh -c 'echo "$HOROVOD_RANK: $(cat | tr "\n" " ")"'
    expect_status 0
    expect_sorted '0: 1 2 3 ' '1: '
}

case_another_rank() {
    seq 3 > "$T/in"
    # shellcheck disable=SC2016
    hvd --stdin 1 -np 2 sh -c 'echo "$HOROVOD_RANK: $(cat | tr "\n" " ")"'
    expect_sorted '0: ' '1: 1 2 3 '
}

case_all_ranks() {
    seq 3 > "$T/in"
    # shellcheck disable=SC2016
    hvd --stdin all -np 3 sh -c 'echo "$HOROVOD_RANK: $(cat | tr "\n" " ")"'
    expect_sorted '0: 1 2 3 ' '1: 1 2 3 ' '2: 1 2 3 '
}

case_none() {
    seq 3 > "$T/in"
    # shellcheck disable=SC2016
    hvd --stdin none -np 2 sh -c 'echo "$HOROVOD_RANK: $(cat | tr "\n" " ")"'
    expect_sorted '0: ' '1: '
}

case_large_input_arrives_whole() {
    head -c 5000000 /dev/urandom > "$T/in"
    hvd -np 2 sh -c 'sha256sum | cut -c1-64'
    expect_status 0
    expect_out "^$(sha256sum < "$T/in" | cut -c1-64)\$"
}

case_large_input_to_all() {
    head -c 2000000 /dev/urandom > "$T/in"
    hvd --stdin all -np 3 sh -c 'sha256sum | cut -c1-64'
    expect_count 3 "^$(sha256sum < "$T/in" | cut -c1-64)\$" "$T/out"
}

case_a_worker_that_does_not_read_does_not_hang_the_job() {
    head -c 3000000 /dev/zero > "$T/in"
    hvd -np 2 true
    expect_status 0
}

case_input_that_never_ends_does_not_hold_the_job() {
    mkfifo "$T/pipe"
    exec 5<> "$T/pipe"
    "$HVDRUN" -np 2 true < "$T/pipe" > "$T/out" 2> "$T/err"
    status=$?
    exec 5>&-
    expect_status 0
}

case_interactive_lines_arrive_one_by_one() {
    mkfifo "$T/pipe"
    # shellcheck disable=SC2016
    "$HVDRUN" -np 1 sh -c 'while read -r l; do echo "got $l"; done' < "$T/pipe" > "$T/out" 2> "$T/err" &
    pid=$!
    exec 5> "$T/pipe"
    echo one >&5
    until_out 5 '^got one$'
    echo two >&5
    until_out 5 '^got two$'
    exec 5>&-
    stop_status
    expect_status 0
}

case_a_closed_stdin_is_no_error() {
    "$HVDRUN" -np 1 sh -c 'cat; echo end' <&- > "$T/out" 2> "$T/err"
    status=$?
    expect_status 0
    expect_out '^end$'
}
