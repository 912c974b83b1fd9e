# shellcheck shell=bash disable=SC2034,SC2154
# What workers print reaches the user: whole, in order per stream, lines never torn.
limit=40

case_stdout_and_stderr_stay_apart() {
    hvd -np 2 sh -c 'echo out; echo err >&2'
    expect_status 0
    expect_count 2 '^out$' "$T/out"
    expect_count 2 '^err$' "$T/err"
}

case_tag_rank() {
    # shellcheck disable=SC2016
    hvd --tag rank -np 2 sh -c 'echo from $HOROVOD_RANK; echo bad $HOROVOD_RANK >&2'
    expect_sorted '[0]<stdout>:from 0' '[1]<stdout>:from 1'
    expect_err '^\[1\]<stderr>:bad 1$'
}

case_tag_host_names_the_host() {
    hvd --tag host -np 2 -H localhost:2 echo x
    expect_count 2 '^\[[01][^]]*localhost[^]]*\]|localhost.*x$' "$T/out"
}

case_timestamps() {
    hvd --prefix-output-with-timestamp -np 2 echo x
    expect_count 2 '[0-9]{2}:[0-9]{2}:[0-9]{2}.*x$' "$T/out"
}

case_no_tag_leaves_bytes_alone() {
    head -c 300000 /dev/urandom > "$T/bytes"
    hvd --tag none -np 1 cat "$T/bytes"
    cmp "$T/bytes" "$T/out" || fail "the output is not what was written"
}

case_output_filename_layout() {
    # shellcheck disable=SC2016
    hvd -np 11 --output-filename "$T/logs" sh -c 'echo out $HOROVOD_RANK; echo err $HOROVOD_RANK >&2'
    expect_status 0
    expect_count 11 '^out' "$T/out"
    expect_same 'out 3' "$(cat "$T/logs/rank.03/stdout")" 'rank.03/stdout'
    expect_same 'err 10' "$(cat "$T/logs/rank.10/stderr")" 'rank.10/stderr'
    expect_same 11 "$(find "$T/logs" -mindepth 1 -maxdepth 1 -name 'rank.??' | wc -l)" 'number of directories'
}

case_output_filename_for_one_rank() {
    hvd -np 1 --output-filename "$T/logs" echo x
    expect_status 0
    expect_same x "$(cat "$T/logs/rank.0/stdout")" 'rank.0/stdout'
}

case_lines_are_whole_when_many_write_fast() {
    # shellcheck disable=SC2016
    hvd -np 8 sh -c 'i=0; while [ $i -lt 2000 ]; do echo "<$HOROVOD_RANK:$i:abcdefghijklmnopqrstuvwxyz>"; i=$((i+1)); done'
    expect_status 0
    expect_count 16000 '^<[0-7]:[0-9]+:abcdefghijklmnopqrstuvwxyz>$' "$T/out"
    expect_same 16000 "$(wc -l < "$T/out")" 'the number of lines'
    # In order per rank.
    sed -n 's/^<3:\([0-9]*\):.*/\1/p' "$T/out" | sort -nc || fail "the lines of rank 3 are out of order"
}

case_long_lines_are_not_torn() {
    # shellcheck disable=SC2016
    hvd -np 4 sh -c 'l=$(printf "$HOROVOD_RANK%.0s" $(seq 30000)); for i in 1 2 3 4 5; do echo "$l"; done'
    expect_status 0
    # A regular expression with that count in it takes grep many seconds.
    expect_same 20 "$(awk 'length == 30000 && /^(0+|1+|2+|3+)$/' "$T/out" | wc -l)" 'the number of whole lines'
    expect_same 20 "$(wc -l < "$T/out")" 'the number of lines'
}

case_everything_written_before_a_death_arrives() {
    # shellcheck disable=SC2016
    hvd -np 2 sh -c '[ $HOROVOD_RANK = 0 ] && exec sleep 60; seq 20000; kill -KILL $$'
    expect_status 137
    expect_same 20000 "$(tail -n 1 "$T/out")" 'the last line'
    expect_same 20000 "$(wc -l < "$T/out")" 'the number of lines'
}

case_an_unfinished_line_is_shown_after_200_ms() {
    start -np 1 sh -c 'printf "prompt> "; sleep 30'
    mark_time
    until_true 2 grep -q 'prompt> ' "$T/out" || fail "an unfinished line is not shown within 2 s"
    kill -TERM $pid
    stop_status
}

case_an_unfinished_last_line_keeps_no_newline() {
    hvd -np 1 printf 'no newline'
    expect_same 10 "$(wc -c < "$T/out")" 'the number of bytes'
}

case_carriage_returns_end_a_line() {
    start --tag rank -np 1 sh -c 'printf "10%%\r"; sleep 0.1; printf "20%%\r"; sleep 30'
    until_true 3 grep -q '20%' "$T/out" || fail "a progress line is not shown"
    kill -TERM $pid
    stop_status
    expect_same 2 "$(tr '\r' '\n' < "$T/out" | grep -cE '^\[0\]<stdout>:[12]0%$')" 'the number of tagged progress lines'
}

case_a_slow_reader_slows_writers_and_loses_nothing() {
    "$HVDRUN" -np 4 seq 300000 2> "$T/err" < /dev/null | { sleep 1; cat; } > "$T/out"
    expect_same 1200000 "$(wc -l < "$T/out")" 'the number of lines'
}

case_memory_is_bounded_when_nobody_reads() {
    mkfifo "$T/pipe"
    "$HVDRUN" -np 4 sh -c 'yes 0123456789012345678901234567890123456789' > "$T/pipe" 2> "$T/err" < /dev/null &
    pid=$!
    exec 5< "$T/pipe"
    sleep 2
    local kib
    kib=$(sed -n 's/^VmRSS:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$pid/status")
    kill -TERM $pid
    exec 5<&-
    stop_status
    [ -n "$kib" ] || fail "hvdrun has ended"
    [ -n "$E2E_SANITIZE" ] || [ "$kib" -lt 40000 ] || fail "hvdrun grew to $kib KiB"
}

case_a_closed_stdout_ends_the_job() {
    "$HVDRUN" -np 2 sh -c 'while :; do echo x; done' 2> "$T/err" < /dev/null | head -n 5 > "$T/out"
    expect_same 5 "$(wc -l < "$T/out")" 'the number of lines'
}
