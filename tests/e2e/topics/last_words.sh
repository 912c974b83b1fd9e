# shellcheck shell=bash disable=SC2016,SC2034,SC2154
# What hvdrun says at the end, when nobody reads it; and what the other ranks are told of a failure.

# stderr is a pipe that is full and has a reader who never reads.
case_a_full_pipe_for_stderr() {
    mkfifo "$T/full"
    exec 7<> "$T/full"
    python3 -c 'import fcntl, os
fcntl.fcntl(7, fcntl.F_SETFL, os.O_NONBLOCK | fcntl.fcntl(7, fcntl.F_GETFL))
try:
    while os.write(7, b"x"): pass
except BlockingIOError: pass
fcntl.fcntl(7, fcntl.F_SETFL, ~os.O_NONBLOCK & fcntl.fcntl(7, fcntl.F_GETFL))' 2> /dev/null || skip "no python3 here"
    mark_time
    "$HVDRUN" -np 2 sh -c 'exit 9' < /dev/null > "$T/out" 2>&7
    status=$?
    exec 7<&-
    expect_status 9
    expect_within 6
}

# The reader comes when much waits already: the last words are not among what is dropped.
slow_the_last_words_are_kept() {
    mkfifo "$T/late"
    exec 7<> "$T/late"
    python3 -c 'import fcntl; fcntl.fcntl(7, 1031, 4096)' 2> /dev/null || skip "no python3 here"
    HVDRUN_LOG_LEVEL=trace "$HVDRUN" -np 800 sh -c '[ "$HOROVOD_RANK" = 0 ] || exit 0; while [ ! -e go ]; do sleep 0.1; done; exit 9' \
        < /dev/null > "$T/out" 2>&7 7<&- &
    pid=$!
    sleep 4
    touch go
    sleep 0.5 # the cause waits behind all the rest by now
    cat <&7 > "$T/err" &
    wait $pid
    status=$?
    until_true 5 grep -q 'failed first' "$T/err" || fail "the cause was not said"
    grep -q 'lines were dropped' "$T/err" || fail "nothing was dropped"
    kill $!
    exec 7<&-
    expect_status 9
}

case_others_are_told_by_a_signal() {
    hvd --on-failure notify -np 3 bash -c 'trap "echo told; exit 0" USR1
        echo ready; [ "$HOROVOD_RANK" != 1 ] || { sleep 0.5; exit 9; }
        while :; do read -rt 10 -u 9; done 9<> <(:)'
    expect_status 9
    expect_count 2 '^told$' "$T/out"
    expect_err '^hvdrun: rank 1 on .* failed first: exit status 9'
    expect_no "$T/err" 'after that'
}

# Without a handler the signal ends them: that is hvdrun's doing, and no failure of theirs.
case_who_does_not_handle_it_is_ended() {
    hvd --on-failure notify -np 3 sh -c '[ "$HOROVOD_RANK" = 1 ] || exec sleep 60; sleep 0.3; exit 7'
    expect_status 7
    expect_err 'after that, 2 ranks were ended by hvdrun$'
}

# Passed on from outside, the same signal is nobody's but the program's.
case_a_user_signal_is_a_failure() {
    start -np 2 sh -c 'echo ready; exec sleep 60'
    until_out 10 ready 2
    kill -USR1 $pid
    stop_status
    expect_status 138
    expect_err 'failed first: killed by signal 10'
}

# Our own line does not continue one that a worker has left unfinished.
case_an_unfinished_line_is_ended() {
    hvd -np 1 sh -c 'printf unfinished >&2; exit 9'
    expect_status 9
    expect_err '^unfinished$'
    expect_err '^hvdrun: rank 0 on .* failed first: exit status 9'
    hvd -np 1 sh -c 'printf unfinished >&2'
    expect_same 'unfinished' "$(od -An -c "$T/err" | tr -d ' ')" 'a stderr that nothing follows'
}
