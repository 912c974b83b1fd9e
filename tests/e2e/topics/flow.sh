# shellcheck shell=bash disable=SC2034,SC2154
# Much output through slow readers, full disks, much input: nothing is lost, and the memory of hvdrun and of its agents is bounded.
limit=150

case_ranks_that_write_fast_through_a_slow_reader() {
    through_a_slow_reader 16 2000000 2
}

slow_64_ranks_that_write_fast_through_a_slow_reader() {
    through_a_slow_reader 64 1500000 10
}

case_ranks_killed_in_the_middle_of_writing() {
    mkdir -p "$T/state"
    # shellcheck disable=SC2016
    start -np 6 sh -c 'echo $$ > "$2/pid.$HOROVOD_RANK"; exec "$1" write "$2" 0' sh "$SCRIBE" "$T/state"
    until_true 10 test -s "$T/state/pid.3" -a -s "$T/state/written.3" || fail "rank 3 does not write"
    sleep 0.3
    kill -KILL "$(cat "$T/state/pid.3")"
    stop_status
    expect_status 137
    figures=$("$SCRIBE" check "$T/state" < "$T/out" 2>&1) || fail "$figures"
    echo "# $figures"
}

# ---- disks and limits ---------------------------------------------------------------------------------------------------
files_that_cannot_grow() { # COMMAND LINE that starts hvdrun with "$@"
    mkdir -p "$T/state" "$T/disk"
    # Behind a pipe: what limits the files must not limit stdout.
    # shellcheck disable=SC2016
    bash -c "$1" bash "$HVDRUN" -np 4 --output-filename "$T/disk/logs" "$SCRIBE" write "$T/state" 400000 2> "$T/err" < /dev/null |
        cat > "$T/out"
    status=${PIPESTATUS[0]}
    expect_status 0
    expect_count 1 'output-filename' "$T/err"
    expect_same 1 "$(wc -l < "$T/err")" 'the number of lines on stderr'
    local figures
    figures=$("$SCRIBE" check "$T/state" < "$T/out" 2>&1) || fail "$figures"
    expect_same '4 ranks' "${figures%%,*}" 'who has written'
}

case_a_full_disk_is_said_once_and_stdout_shows_all() {
    needs_mounts # for a small disk
    # shellcheck disable=SC2016
    files_that_cannot_grow "mount -t tmpfs -o size=600k t '$T/disk' && \"\$@\"; code=\$?; cp -r '$T/disk/logs' '$T/kept'; umount '$T/disk'; exit \$code"
    expect_err 'No space left on device'
    # What went into a file is the beginning of what its rank wrote.
    local rank
    for rank in 0 1 2 3; do
        grep "^<$rank:" "$T/out" | cmp -n "$(wc -c < "$T/kept/rank.$rank/stdout")" - "$T/kept/rank.$rank/stdout" || fail "the file of rank $rank is not a beginning"
    done
}

case_a_limit_on_the_size_of_files_is_said_once_and_stdout_shows_all() {
    # shellcheck disable=SC2016
    files_that_cannot_grow 'ulimit -f 128; "$@"'
    expect_err 'File too large'
}

# ---- stdin --------------------------------------------------------------------------------------------------------------
much_input() { # MIB RANKS ARGUMENTS of hvdrun: all who get it count it; prints the figures
    local mib=$1 ranks=$2
    shift 2
    mark_time
    head -c $((mib << 20)) /dev/zero |
        "$SCRIBE" peak "$T/kib" "$HVDRUN" -np "$ranks" "$@" > "$T/out" 2> "$T/err"
    status=${PIPESTATUS[1]}
    expect_status 0
    echo "# $mib MiB of input, $1 $2: $(((${EPOCHREALTIME/./} - since) / 1000)) ms; peak KiB of hvdrun: $(cat "$T/kib")"
    [ -n "$E2E_SANITIZE" ] || [ "$(cat "$T/kib")" -le 32768 ] || fail "hvdrun grew to $(cat "$T/kib") KiB"
}

case_one_that_does_not_read_holds_up_the_others_until_it_ends() {
    # shellcheck disable=SC2016
    much_input 20 4 --stdin all sh -c '[ $HOROVOD_RANK != 2 ] || exec sleep 1; wc -c'
    expect_count 3 '^20971520$' "$T/out"
    [ $((${EPOCHREALTIME/./} - since)) -ge 1000000 ] || fail "the others got all before rank 2 had ended"
}

case_one_that_closes_its_stdin_holds_up_nobody() {
    # shellcheck disable=SC2016
    start_ms=${EPOCHREALTIME/./}
    much_input 20 4 --stdin all sh -c '[ $HOROVOD_RANK != 2 ] || { exec <&-; exec sleep 5; }; wc -c; echo $(date +%s%3N) > "'"$T"'/done.$HOROVOD_RANK"'
    expect_count 3 '^20971520$' "$T/out"
    [ "$(cat "$T/done.0")" -lt $((start_ms / 1000 + 4000)) ] || [ -n "$E2E_SANITIZE" ] || fail "rank 0 had to wait for rank 2"
}

case_the_end_of_a_job_waits_for_no_reader() {
    # shellcheck disable=SC2016
    much_input 20 3 --stdin all sh -c 'exec sleep 0.5'
    head -c 20000000 /dev/zero > "$T/in"
    mark_time
    # shellcheck disable=SC2016
    hvd -np 3 --stdin all --grace 1 sh -c '[ $HOROVOD_RANK != 1 ] || exit 3; exec sleep 60'
    expect_status 3
    expect_within 5
}

slow_two_gigabytes_to_one_rank() {
    much_input 2048 3 --stdin 1 sh -c 'wc -c'
    expect_count 1 '^2147483648$' "$T/out"
}

slow_half_a_gigabyte_to_each_of_eight() {
    much_input 512 8 --stdin all sh -c 'wc -c'
    expect_count 8 '^536870912$' "$T/out"
}
