# shellcheck shell=bash disable=SC2016,SC2034,SC2154
# --stop-on-exec, and the MPIR symbols by which a debugger finds the ranks.

state_of() { # PID
    sed -n 's/^State:[^A-Z]*\([A-Za-z]\).*/\1/p' "/proc/$1/status"
}

pid_of() { # RANK
    sed -n "s/^hvdrun: rank $1 on .*: pid \([0-9]*\)\$/\1/p" "$T/err"
}

case_workers_stop_until_hvdrun_is_let_go() {
    start --stop-on-exec -np 2 sh -c 'echo "went on $RANK"'
    until_true 10 grep -q "kill -CONT $pid here all" "$T/err" || fail "not said how to go on"
    for rank in 0 1; do
        expect_same T "$(state_of "$(pid_of $rank)")" "the state of rank $rank"
        expect_same sh "$(cat "/proc/$(pid_of $rank)/comm")" "the program of rank $rank"
    done
    sleep 0.3
    [ ! -s "$T/out" ] || fail "a worker did not stop"
    kill -CONT "$(pid_of 1)"
    until_out 5 '^went on 1$'
    [ "$(state_of "$(pid_of 0)")" = T ] || fail "rank 0 went on, too"
    kill -CONT "$pid"
    stop_status
    expect_status 0
    expect_out '^went on 0$'
}

case_a_job_of_stopped_workers_ends() {
    start --stop-on-exec --grace 3 -np 2 sleep 60
    until_true 10 grep -q "here all" "$T/err"
    mark_time
    kill "$pid"
    stop_status
    expect_status 143
    expect_within 3
}

case_what_cannot_be_executed_is_said() {
    printf '\1\2\3' > "$T/rubbish"
    chmod +x "$T/rubbish"
    hvd --stop-on-exec -np 2 "$T/rubbish"
    expect_status 126
    expect_err 'Exec format error'
}

case_gdb_takes_a_stopped_worker() {
    command -v gdb > /dev/null || skip "no gdb"
    start --stop-on-exec -np 1 sh -c 'exit 7'
    until_true 10 grep -q "here all" "$T/err"
    timeout 15 gdb -nx -batch -p "$(pid_of 0)" -ex 'handle SIGSTOP nostop noprint nopass' -ex 'catch syscall exit_group' -ex continue -ex detach > "$T/gdb" 2>&1 < /dev/null
    grep -q 'Catchpoint 1 (call to syscall exit_group)' "$T/gdb" || fail "gdb did not follow it: $(tail -n 5 "$T/gdb")"
    stop_status
    expect_status 7
}

# As a debugger does that starts hvdrun: the ranks wait until it has seen the table.
case_mpir() {
    command -v gdb > /dev/null || skip "no gdb"
    run timeout 18 gdb -nx -batch -ex 'set breakpoint pending on' -ex 'set confirm off' -ex starti -ex 'set var MPIR_being_debugged = 1' \
        -ex 'break MPIR_Breakpoint' -ex continue -ex 'print MPIR_debug_state' -ex 'print MPIR_proctable_size' \
        -ex 'print MPIR_proctable[1].pid' -ex 'print MPIR_proctable[1].host_name' -ex 'print MPIR_proctable[1].executable_name' \
        -ex 'shell sleep 0.3; ! grep ^pid '"$T"'/ranks' -ex 'print $_shell_exitcode' -ex 'print &MPIR_i_am_starter' -ex 'print &MPIR_partial_attach_ok' -ex continue \
        --args "$HVDRUN" -np 2 sh -c 'echo "pid $$" >> '"$T/ranks"
    expect_out '^\$1 = 1$'
    expect_out '^\$2 = 2$'
    expect_out "^\\\$4 = 0x[0-9a-f]* \"$(hostname)\"\$"
    expect_out "^\\\$5 = 0x[0-9a-f]* \".*sh\"\$"
    expect_out '^\$6 = 0$'
    expect_out 'MPIR_partial_attach_ok>$'
    expect_count 2 '^pid ' "$T/ranks"
    grep -q "^pid $(sed -n 's/^\$3 = //p' "$T/out")\$" "$T/ranks" || fail "the table has another process"
    expect_out 'exited normally'
}

# Attached later: the table stands there as long as the job runs, and the end of a job that fails has a word for it.
case_mpir_of_a_running_job() {
    command -v gdb > /dev/null || skip "no gdb"
    start -np 3 sh -c 'echo up; sleep 5; exit $((RANK * 3))'
    until_out 5 '^up$' 3
    timeout 15 gdb -nx -batch -p "$pid" -ex 'print MPIR_proctable_size' -ex 'set var MPIR_being_debugged = 1' -ex 'break MPIR_Breakpoint' \
        -ex continue -ex 'print MPIR_debug_state' -ex 'print MPIR_debug_abort_string' -ex detach > "$T/gdb" 2>&1 < /dev/null
    grep -q '^\$1 = 3$' "$T/gdb" || fail "no table: $(tail -n 5 "$T/gdb")"
    grep -q '^\$2 = 2$' "$T/gdb" || fail "not aborting"
    grep -q '^\$3 = .*exit status [36]' "$T/gdb" || fail "no cause: $(tail -n 3 "$T/gdb")"
    stop_status
}
