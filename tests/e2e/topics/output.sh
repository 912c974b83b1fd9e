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

case_output_filename_with_a_pattern() {
    # shellcheck disable=SC2016
    SLURM_JOB_ID='' hvd -np 11 -H localhost:11 --output-filename "$T/logs/%h/%n-%r" sh -c 'echo out $HOROVOD_RANK; echo err $HOROVOD_RANK >&2'
    expect_status 0
    expect_same 'out 3' "$(cat "$T/logs/localhost/0-03.out")" '0-03.out'
    expect_same 'err 10' "$(cat "$T/logs/localhost/0-10.err")" '0-10.err'
    expect_same 22 "$(find "$T/logs" -type f | wc -l)" 'number of files'
    hvd -np 2 --output-filename "$T/%r.%s" echo x
    expect_same x "$(cat "$T/1.stdout")" '1.stdout'
    hvd -np 2 --output-filename "$T/%h" echo x
    expect_status 2
    expect_err 'all ranks would write into the same file'
    hvd -np 2 --output-filename "$T/%q-%r" echo x
    expect_status 2
    expect_err '%q stands for nothing'
}

case_show_rank_hides_the_others_but_not_from_files() {
    # shellcheck disable=SC2016
    hvd -np 6 --show-rank 0,2-3 --output-filename "$T/logs" sh -c 'printf "begun "; echo out $HOROVOD_RANK; echo err $HOROVOD_RANK >&2'
    expect_status 0
    expect_sorted 'begun out 0' 'begun out 2' 'begun out 3'
    expect_count 3 '^err [023]$' "$T/err"
    expect_same 3 "$(wc -l < "$T/err")" 'the number of lines of stderr'
    expect_same 'begun out 5' "$(cat "$T/logs/rank.5/stdout")" 'rank.5/stdout'
    # One that is hidden and fails still says its last words.
    # shellcheck disable=SC2016
    hvd -np 2 --show-rank 0 sh -c '[ $HOROVOD_RANK = 0 ] || { echo the reason >&2; exit 3; }'
    expect_status 3
    expect_err '^hvdrun:   the reason$'
    hvd -np 2 --show-rank 2 true
    expect_status 2
    expect_err 'show-rank 2: there are only ranks 0 to 1'
    hvd -np 2 --show-rank 0-x true
    expect_status 2
    expect_err 'no list of ranks'
    hvd -H localhost:3 --show-rank 3 true
    expect_status 2
    expect_err 'show-rank 3: there are only ranks 0 to 2'
}

case_a_hidden_rank_does_not_wait_for_lines_of_others() {
    # shellcheck disable=SC2016
    hvd -np 2 --show-rank 0 sh -c '[ $HOROVOD_RANK = 0 ] && printf begun || seq 100000; sleep 0.3; echo . '
    expect_status 0
    expect_same 'begun.' "$(cat "$T/out")" 'what is shown'
}

case_print_exit_codes() {
    # shellcheck disable=SC2016
    hvd -np 5 --print-exit-codes --on-failure continue sh -c '
        case $HOROVOD_RANK in 1) exit 7 ;; 2|4) exit 0 ;; 3) kill -KILL $$ ;; esac'
    expect_count 1 '^hvdrun: ranks 0,2,4: exit status 0$' "$T/err"
    expect_count 1 '^hvdrun: rank 1: exit status 7$' "$T/err"
    expect_count 1 '^hvdrun: rank 3: killed by signal 9 \(Killed\)$' "$T/err"
    hvd -np 3 --print-exit-codes true
    expect_status 0
    expect_same 'hvdrun: ranks 0-2: exit status 0' "$(cat "$T/err")" 'stderr'
    # shellcheck disable=SC2016
    hvd -np 3 --print-exit-codes sh -c '[ $HOROVOD_RANK != 1 ] || exit 4; exec sleep 60'
    expect_status 4
    expect_count 1 '^hvdrun: ranks 0,2: killed by signal 15 \(Terminated\), by hvdrun$' "$T/err"
}

case_color_of_the_tags() {
    local tag
    tag=$(printf '\033[32m[1]<stdout>:\033[0mx')
    hvd --tag rank --color always -np 2 echo x
    expect_same 1 "$(grep -cxF -- "$tag" "$T/out")" 'the number of coloured lines of rank 1'
    hvd --tag rank -np 2 echo x
    expect_sorted '[0]<stdout>:x' '[1]<stdout>:x'
    # On a terminal.
    TERM=xterm script -qec "$HVDRUN --tag rank -np 2 echo x" /dev/null < /dev/null | tr -d '\r' > "$T/out"
    expect_same 1 "$(grep -cxF -- "$tag" "$T/out")" 'the number of coloured lines on a terminal'
    TERM=dumb script -qec "$HVDRUN --tag rank -np 2 echo x" /dev/null < /dev/null | tr -d '\r' > "$T/out"
    expect_sorted '[0]<stdout>:x' '[1]<stdout>:x'
    TERM=xterm NO_COLOR=1 script -qec "$HVDRUN --tag rank -np 2 echo x" /dev/null < /dev/null | tr -d '\r' > "$T/out"
    expect_sorted '[0]<stdout>:x' '[1]<stdout>:x'
}

# Rank 0 pauses in the middle of a line of 100000 bytes, while rank 1 says something all the time.
paused_line() {
    # shellcheck disable=SC2016
    hvd "$@" -np 2 sh -c '
        l=$(printf "%050000d" 0)
        if [ $HOROVOD_RANK = 0 ]; then sleep 0.1; printf "%s" "$l$l"; sleep 0.02; echo; touch "$0"
        else until [ -e "$0" ]; do echo other; done; fi' "$T/over"
    rm -f "$T/over"
    expect_status 0
    awk 'length == 100000' "$T/out" | wc -l
}

case_max_line() {
    expect_same 0 "$(paused_line)" 'the number of whole lines of 100000 bytes'
    expect_same 1 "$(paused_line --max-line 100001)" 'the number of whole lines with a longer --max-line'
}

# Lines are one when they come within a fifth of a second: ranks that say the same a little apart on a busy machine may be shown in
# two, so they are let go together up to five times. What is shown is right each time.
case_collapse_equal_lines() {
    local k gate together=0
    for k in 1 2 3 4 5; do
        mkfifo "$T/gate$k"
        exec {gate}<> "$T/gate$k"
        gates[k]=$gate
    done
    # shellcheck disable=SC2016
    start --collapse -np 4 sh -c '
        exec 3< "$0/gate1" 4< "$0/gate2" 5< "$0/gate3" 6< "$0/gate4" 7< "$0/gate5"
        for k in 1 2 3 4 5; do
            read line <&$((k + 2))
            echo same $k; echo own $k $HOROVOD_RANK; [ $HOROVOD_RANK = 3 ] || echo most $k
        done; sleep 30' "$T"
    sleep 0.3
    for k in 1 2 3 4 5; do
        printf '\n\n\n\n' >&"${gates[k]}" # one for each
        # Nobody prints more, and nobody ends: what waits is shown all the same.
        until_true 3 shown_by "0 1 2" "most $k" || fail "\"most $k\" is not shown once for each of its ranks: $(head -c 400 "$T/out")"
        until_true 3 shown_by "0 1 2 3" "same $k" || fail "\"same $k\" is not shown once for each rank: $(head -c 400 "$T/out")"
        until_out 3 "^\[([0-3])\] own $k \1$" 4
        out_has "^\[0-3\] same $k$" 1 && out_has "^\[0-2\] most $k$" 1 && together=1 && break
    done
    expect_same 1 $together 'how often equal lines of all became one'
    kill -TERM $pid
    stop_status
}

shown_by() { # RANKS LINE: that line is shown for each of these once
    # shellcheck disable=SC2086 # words
    [ "$(awk -v line="$2" '{
        list = $1; sub(/^[^ ]* /, ""); if ($0 != line) next
        gsub(/[][]/, "", list); n = split(list, part, ",")
        for (i = 1; i <= n; i++) { m = split(part[i], ends, "-"); for (r = ends[1]; r <= ends[m]; r++) print r }
    }' "$T/out" | sort -n | tr '\n' ' ')" = "$1 " ]
}

# NUMBER: the lines of that rank, in the order in which they are shown
lines_of() {
    awk -v rank="$1" '{
        list = $1; gsub(/[][]/, "", list); n = split(list, part, ",")
        for (i = 1; i <= n; i++) {
            m = split(part[i], ends, "-")
            if (rank >= ends[1] && rank <= ends[m]) print $2
        }
    }' "$T/out"
}

case_collapse_loses_nothing_and_keeps_the_order() {
    local rank
    # shellcheck disable=SC2016
    hvd --collapse --output-filename "$T/logs" -np 4 sh -c 'seq 1 $((2000 + HOROVOD_RANK)); echo $HOROVOD_RANK >&2; printf end'
    expect_status 0
    for rank in 0 1 2 3; do
        lines_of "$rank" | cmp -s - <(seq 1 $((2000 + rank)); echo end) || fail "the lines of rank $rank are not those that it wrote"
        cmp -s "$T/logs/rank.$rank/stdout" <(seq 1 $((2000 + rank)); printf end) || fail "the file of rank $rank is not what it wrote"
    done
    expect_count 4 '^\[([0-3])\] \1$' "$T/err"
    # shellcheck disable=SC2016
    hvd --collapse --tag rank -np 2 sh -c 'echo the reason >&2; exit 3'
    expect_status 3
    expect_err '^hvdrun:   the reason$'
}
