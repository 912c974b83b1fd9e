# shellcheck shell=bash disable=SC2016,SC2034,SC2154
# --timeout tells where each rank is before it ends the job.
alone=1
limit=30

needs_tool() {
    command -v eu-stack > /dev/null || command -v gdb > /dev/null || skip "neither eu-stack nor gdb here"
}

# A PATH with what these cases run, and no tool but the one that is put there.
own_path() {
    local program
    mkdir -p "$T/bin"
    for program in sh bash sleep env; do
        ln -s "$(command -v $program)" "$T/bin/$program"
    done
}

case_asleep_in_c() {
    needs_tool
    command -v gcc > /dev/null || skip "no gcc here"
    printf '#include <unistd.h>\nvoid asleep_in_c(void) { for (;;) sleep(60); }\nint main(void) { asleep_in_c(); }\n' > "$T/asleep.c"
    gcc -g -O0 -o "$T/asleep" "$T/asleep.c" || fail "cannot compile"
    hvd --report "$T/report.json" --timeout 0.7 -np 3 bash -c '[ $RANK != 1 ] || exec sleep 60; "$0"; true' "$T/asleep"
    expect_status 124
    expect_err '^hvdrun: the time limit of 0.7 s \(--timeout\) is over; where the ranks are:'
    expect_err '^hvdrun: ranks 0,2 on [^ ]*: asleep is sleeping in clock_nanosleep'
    expect_err '^hvdrun:     .*sleep < asleep_in_c < main'
    expect_err '^hvdrun: rank 1 on [^ ]*: sleep \(pid [0-9]+\) is sleeping'
    command -v python3 > /dev/null || return 0
    python3 -c 'import json, sys
r = json.load(open(sys.argv[1]))["ranks"]
assert all(len(k["where"]) == 1 and k["where"][0]["state"] == "sleeping" for k in r), r
assert "asleep_in_c < main" in r[0]["where"][0]["stack"] and r[0]["where"][0]["pid"] != r[0]["pid"]
assert r[1]["where"][0]["name"] == "sleep" and r[1]["where"][0]["pid"] == r[1]["pid"]' "$T/report.json" 2> "$T/python" || fail "$(cat "$T/python" "$T/report.json")"
}

# As hvdctl why says it.
case_the_reason_stands_first() {
    hvd --timeout 4 -np 3 "$BUILD/tests/culprit" stop 1
    expect_status 124
    expect_err '^hvdrun: 2 ranks wait for [0-9.]+ s in allreduce "layer.1.weight" for rank 1 on localhost, which is stopped \(pid [0-9]+\); kill -CONT [0-9]+ on localhost lets it go on$'
    hvd --timeout 4 -np 3 "$BUILD/tests/culprit" order 1
    expect_err '^hvdrun: rank 1 on localhost is in allreduce "layer.2.weight", but ranks 0,2 on localhost are in allreduce "layer.1.weight" '
}

case_hosts_that_have_not_answered_when_the_time_is_over() {
    # shellcheck disable=SC2016
    printf '#!/bin/sh\ncase $1 in quick) exec sh -c "$2" ;; silent) exec sleep 60 ;; noisy) echo hello; exec sleep 60 ;; esac\n' > "$T/rsh"
    chmod 755 "$T/rsh"
    mark_time
    hvd --timeout 1 --rsh "$T/rsh {host}" -H quick:1,silent:1,noisy:1 true
    expect_within 5
    expect_status 124
    expect_err '^hvdrun: the time limit of 1 s \(--timeout\) is over, before the workers started: silent \([a-z ]+\), noisy \(agent start\)$'
}

case_a_stopped_and_a_running_rank() {
    needs_tool
    hvd --timeout 0.7 -np 2 bash -c '[ $RANK = 0 ] || kill -STOP $$; while :; do :; done'
    expect_status 124
    expect_err '^hvdrun: rank 0 on [^ ]*: bash \(pid [0-9]+\) is running, CPU time 0\.[0-9]*[1-9]'
    expect_err '^hvdrun: rank 1 on [^ ]*: bash \(pid [0-9]+\) is stopped'
}

case_without_a_tool() {
    own_path
    PATH=$T/bin "$HVDRUN" --timeout 0.5 -np 2 sh -c 'exec sleep 60' < /dev/null > "$T/out" 2> "$T/err"
    status=$?
    expect_status 124
    expect_err '^hvdrun: ranks 0,1 on [^ ]*: sleep is sleeping'
    expect_count 1 '^hvdrun: no stacks: neither eu-stack \(elfutils\) nor gdb was found on ' "$T/err"
    expect_no "$T/err" '^hvdrun:     '
}

hanging_tool() {
    own_path
    printf '#!/bin/sh\nsleep 60 &\nsleep 60\n' > "$T/bin/eu-stack"
    chmod 755 "$T/bin/eu-stack"
}

case_a_tool_that_hangs() {
    hanging_tool
    mark_time
    PATH=$T/bin "$HVDRUN" --timeout 0.3 -np 3 sh -c 'exec sleep 60' < /dev/null > "$T/out" 2> "$T/err"
    status=$?
    expect_within 5
    expect_status 124
    expect_err '^hvdrun: ranks 0-2 on [^ ]*: sleep is sleeping'
    expect_err '^hvdrun:     no stack: the tool did not end within 2 s'
}

# More of them than there is time for.
slow_tools_that_hang() {
    hanging_tool
    mark_time
    PATH=$T/bin "$HVDRUN" --timeout 0.3 -np 20 sh -c 'exec sleep 60' < /dev/null > "$T/out" 2> "$T/err"
    status=$?
    expect_within 8
    expect_status 124
    expect_err 'no stack: there was no time for one'
}

case_a_tool_that_may_not_look() {
    own_path
    printf '#!/bin/sh\necho "tool: \033[1mnot permitted" >&2\nexit 1\n' > "$T/bin/eu-stack"
    chmod 755 "$T/bin/eu-stack"
    PATH=$T/bin "$HVDRUN" --timeout 0.3 -np 2 sh -c 'exec sleep 60' < /dev/null > "$T/out" 2> "$T/err"
    status=$?
    expect_status 124
    expect_err '^hvdrun:     no stack: tool: \?\[1mnot permitted'
}

case_a_signal_ends_the_look() {
    hanging_tool
    PATH=$T/bin HVDRUN_LOG_LEVEL=debug start --timeout 0.5 -np 2 sh -c 'exec sleep 60'
    until_true 10 grep -q 'running -> inspecting' "$T/err" || fail "nobody asked"
    mark_time
    kill -TERM $pid
    stop_status
    expect_within 1
    expect_status 124
    expect_err '^hvdrun: ranks 0,1 on [^ ]*: no answer'
}

# A rank that fails meanwhile is a consequence; all that have ended are none of those who are somewhere.
case_all_end_meanwhile() {
    hanging_tool
    mark_time
    PATH=$T/bin "$HVDRUN" --timeout 0.5 -np 2 sh -c 'sleep 1' < /dev/null > "$T/out" 2> "$T/err"
    status=$?
    expect_within 3
    expect_status 124
    expect_no "$T/err" 'where the ranks are'
}
