# shellcheck shell=bash disable=SC2016,SC2034,SC2154
# --max-restarts on one host: what is restarted, what is not, and what the workers and the user see of it.
limit=60

until_err() { # SECONDS REGEX
    until_true "$1" grep -qE -- "$2" "$T/err" || fail "no line of stderr like \"$2\" within $1 s"
}

report() { # EXPRESSION, of the report r, in Python; true when there is no Python
    command -v python3 > /dev/null || return 0
    python3 -c 'import json, sys
r = json.load(open(sys.argv[1]))
assert eval(sys.argv[2]), sys.argv[2]' "$T/report.json" "$1" 2> "$T/python" || fail "$(tail -n 1 "$T/python"): $(cat "$T/report.json")"
}

case_a_crash_and_then_success() {
    yes line | head -n 500000 > "$T/in" # more than is read ahead
    hvd --max-restarts 3 --report "$T/report.json" --output-filename "$T/files" -np 2 sh -c '
        line=
        read -r line
        echo "rank $HOROVOD_RANK: $HVD_RESTART_COUNT $TORCHELASTIC_RESTART_COUNT of $TORCHELASTIC_MAX_RESTARTS, $line"
        [ $HVD_RESTART_COUNT = 1 ] && exit 0
        [ $HOROVOD_RANK = 1 ] || exec sleep 60
        sleep 0.5
        exit 7'
    expect_status 0
    expect_out '^rank 0: 0 0 of 3, line$'
    expect_out '^rank 0: 1 1 of 3, $'
    expect_same 2 "$(wc -l < "$T/files/rank.0/stdout")" 'the number of lines in a file of --output-filename'
    expect_same 1 "$(wc -l < "$T/err")" 'the number of lines on stderr'
    expect_err '^hvdrun: rank 1 on .* failed first: exit status 7, .*; restart 1 of 3 in 1 s$'
    report 'r["exit_status"] == 0 and r["cause"] is None and r["restarts_left"] == 2 and len(r["restarts"]) == 1'
    report 'r["restarts"][0]["exit_status"] == 7 and "rank 1" in r["restarts"][0]["cause"] and r["restarts"][0]["left_out"] == []'
    report 'r["restarts"][0]["end"] + 1 <= r["phases"][0]["start"] < r["restarts"][0]["end"] + 5'
}

slow_always_a_crash() {
    mark_time
    hvd --max-restarts 1 --report "$T/report.json" -np 2 sh -c 'echo "last words $HVD_RESTART_COUNT" >&2; exit 7'
    expect_status 7
    expect_count 1 '; restart [0-9]+ of 1 in' "$T/err"
    expect_count 1 'hvdrun:   last words' "$T/err"
    expect_err 'hvdrun:   last words 1'
    report 'r["exit_status"] == 7 and len(r["restarts"]) == 1 and r["restarts_left"] == 0'
}

slow_always_a_crash_three_times() {
    mark_time
    hvd --max-restarts 3 -np 1 sh -c 'exit $((7 + HVD_RESTART_COUNT))'
    expect_status 10
    [ ${EPOCHREALTIME/./} -ge $((since + 7000000)) ] || fail "1 + 2 + 4 s were not waited"
    expect_within 12
    expect_err 'status 7, .*; restart 1 of 3 in 1 s$'
    expect_err 'status 8, .*; restart 2 of 3 in 2 s$'
    expect_err 'status 9, .*; restart 3 of 3 in 4 s$'
}

# The signal comes as soon as hvdrun has said how long it waits: its line is read from a FIFO.
case_a_signal_in_the_back_off() {
    local signal line said=$T/said
    mkfifo "$said"
    for signal in TERM INT; do
        start --max-restarts 100 --report "$T/report.json" -np 2 sh -c 'exit 7'
        exec 8< "$said"
        : > "$T/err"
        while read -r -t 10 -u 8 line; do
            echo "$line" >> "$T/err"
            [[ $line != *'restart 2 of 100 in 2 s' ]] || break
        done
        mark_time
        kill -$signal $pid
        cat <&8 >> "$T/err"
        exec 8<&-
        stop_status
        expect_within 1.5 # and not after the wait
        expect_status $((128 + $(kill -l $signal)))
        expect_count 1 'restart 2 of 100' "$T/err"
        expect_err 'ended by signal .* before restart 2$'
        report "r['exit_status'] == $status and len(r['restarts']) == 1 and r['cause']['rank'] < 2"
    done
}

# A rank has failed, and while the others still end, hvdrun is asked to end.
slow_a_signal_while_an_epoch_ends() {
    start --max-restarts 3 --grace 1 -np 2 sh -c '[ $HOROVOD_RANK = 0 ] || exit 7; trap "echo asked" TERM; while :; do sleep 0.1; done'
    until_out 10 asked
    kill -TERM $pid
    stop_status
    expect_status 7
    expect_no "$T/err" 'restart 1'
}

case_what_is_not_restarted() {
    hvd --max-restarts 3 -np 2 no-such-command-anywhere
    expect_status 127
    expect_no "$T/err" 'restart'
    hvd --max-restarts 3 --timeout 0.5 -np 2 sleep 60
    expect_status 124
    expect_no "$T/err" 'restart'
    hvd --max-restarts 3 --agent-path /no/such/agent -np 2 true
    expect_status 125
    expect_no "$T/err" 'restart'
    hvd --max-restarts 3 --start-timeout 1 --rsh 'sleep 30; :' -np 1 -H elsewhere true
    expect_status 125
    expect_no "$T/err" 'restart'
    start --max-restarts 3 -np 2 sh -c 'echo ready; exec sleep 60'
    until_out 10 ready 2
    kill -TERM $pid
    stop_status
    expect_status 143
    expect_no "$T/err" 'restart'
    bad_input '--max-restarts' --max-restarts -1 -np 1 true
}

slow_a_broken_pipe_is_not_restarted() {
    "$HVDRUN" --max-restarts 3 -np 1 sh -c 'while echo more; do :; done' 2> "$T/err" | head -n 1 > "$T/out"
    status=${PIPESTATUS[0]}
    expect_status 141
    expect_no "$T/err" 'restart'
}

slow_the_time_limit_is_for_all_epochs() {
    mark_time
    hvd --max-restarts 9 --timeout 2.6 -np 1 sh -c 'echo epoch $HVD_RESTART_COUNT; sleep 0.4; exit 3'
    expect_status 124
    expect_within 4
    expect_err 'the time limit of 2.6 s .* is over, before restart 2$'
    hvd --max-restarts 9 --timeout 2 -np 1 sh -c '[ $HVD_RESTART_COUNT = 0 ] || exec sleep 60; exit 3'
    expect_status 124
    expect_err 'restart 1 of 9'
    expect_count 1 'restart' "$T/err"
}

slow_with_on_failure_continue() {
    hvd --max-restarts 1 --on-failure continue -np 2 sh -c '
        [ $HOROVOD_RANK.$HVD_RESTART_COUNT = 0.0 ] && exit 3
        sleep 0.3; echo "rank $HOROVOD_RANK of $HVD_RESTART_COUNT"'
    expect_status 0
    expect_sorted 'rank 0 of 1' 'rank 1 of 0' 'rank 1 of 1'
}

# The worker kills its own agent: the host is lost, and the only one, so it is used again.
slow_a_lost_agent() {
    hvd --max-restarts 2 -np 1 sh -c '[ $HVD_RESTART_COUNT = 1 ] || { sleep 0.3; kill -KILL $PPID; }; sleep 0.2; echo done'
    expect_status 0
    expect_out '^done$'
    expect_err 'host localhost\b.*; restart 1 of 2 in 1 s, again with host localhost$'
}

# No descriptor, process or file is left by an epoch.
slow_epochs_leave_nothing_behind() {
    start --max-restarts 3 -np 2 sh -c 'echo epoch $HVD_RESTART_COUNT; read -r line < "$0.$HVD_RESTART_COUNT"; exit 3' "$T/gate"
    local k more
    for k in 0 1 2; do
        mkfifo "$T/gate.$k"
        until_out 20 "^epoch $k" 2
        find "/proc/$pid/fd" -type l | wc -l > "$T/fds.$k"
        grep -c . "/proc/$pid/maps" > "$T/maps.$k"
        leftover_processes | wc -l > "$T/processes.$k"
        { echo; echo; } > "$T/gate.$k"
    done
    mkfifo "$T/gate.3"
    until_out 20 "^epoch 3" 2
    kill -TERM $pid
    stop_status
    expect_same "$(cat "$T/fds.1")" "$(cat "$T/fds.2")" 'the number of descriptors in epoch 2'
    expect_same "$(cat "$T/processes.0")" "$(cat "$T/processes.2")" 'the number of processes in epoch 2'
    more=$(($(cat "$T/maps.2") - $(cat "$T/maps.1")))
    [ $more -le 2 ] || fail "$more more mappings in epoch 2 than in epoch 1"
}

slow_training_ends_with_the_same_loss() {
    hvd -np 2 "$TRAIN" --steps 150 --seed 5
    expect_status 0
    sed -n 's/^\(step [0-9]* loss=[0-9.]*\) .*/\1/p' "$T/out" | tail -n 1 > "$T/straight"
    start --max-restarts 1 -np 2 sh -c 'echo pid $HOROVOD_RANK $$; exec "$0" "$@"' "$TRAIN" --steps 150 --seed 5 \
        --checkpoint "$T/state" --checkpoint-every 10
    until_out 20 'step 35 '
    kill -KILL "$(sed -n 's/^pid 1 //p' "$T/out")"
    stop_status
    expect_status 0
    expect_err 'rank 1 .*signal 9.*; restart 1 of 1'
    expect_out '^train: going on after step [3-9]'
    sed -n 's/^\(step [0-9]* loss=[0-9.]*\) .*/\1/p' "$T/out" | tail -n 1 > "$T/resumed"
    expect_same "$(cat "$T/straight")" "$(cat "$T/resumed")" 'the last loss'
    grep -q 'step 150 ' "$T/resumed" || fail "it did not come to the last step"
}
