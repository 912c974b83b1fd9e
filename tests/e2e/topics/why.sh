# shellcheck shell=bash disable=SC2034,SC2154
# hvdctl why: ranks that do not go on are named, with what they do instead, and jobs that go on are left in peace.
limit=60

CTL=$BUILD/hvdctl
CULPRIT=$BUILD/tests/culprit

why() { # KIND RANKS RANK SENTENCE: a job of that kind, and the first line of hvdctl why
    local name=why-$1
    start --job-name "$name" -np "$2" -H "localhost:$2" "$CULPRIT" "$1" "$3"
    [ "$1" = late ] || until_out 20 ready "$2"
    until_true 20 found "$name" "$4" || fail "hvdctl why does not say \"$4\": $(cat "$T/shown" "$T/shown.err")"
    "$CTL" kill "$name" > /dev/null
    stop_status
}

found() { # JOB SENTENCE
    "$CTL" why "$1" > "$T/shown" 2> "$T/shown.err" < /dev/null || return
    head -n 1 "$T/shown" | grep -qE -- "$2"
}

waits='for [0-9.]+ s in allreduce "layer.1.weight" for rank 2 on localhost, which'

case_a_rank_that_computes() {
    why loop 4 2 "^3 ranks wait $waits computes \([0-9]+ % of a processor\)"
    grep -q '^allreduce "layer.1.weight", [0-9.]* s: 0,1,3 in it, not 2$' "$T/shown" || fail "$(cat "$T/shown")"
    grep -q '^  rank 2 on localhost: culprit (pid [0-9]*) is running' "$T/shown" || fail "$(cat "$T/shown")"
}

case_a_rank_that_is_stopped() {
    why stop 3 1 '^2 ranks wait for [0-9.]+ s in allreduce "layer.1.weight" for rank 1 on localhost, which is stopped \(pid [0-9]+\)$'
    grep -q '^kill -CONT [0-9]* on localhost lets it go on$' "$T/shown" || fail "$(cat "$T/shown")"
}

case_a_rank_that_waits_elsewhere() {
    why pipe 4 2 "^3 ranks wait $waits waits in read \(.*pipe_read\)"
    why child 4 2 "^3 ranks wait $waits has a process sleep \(pid [0-9]+\) that waits in "
}

case_another_order() {
    why order 4 2 '^rank 2 on localhost is in allreduce "layer.2.weight", but ranks 0,1,3 on localhost are in allreduce "layer.1.weight" '
}

case_a_chain_ends_with_the_rank_that_waits_for_nobody() {
    why set 4 2 '^1 rank waits for [0-9.]+ s in allreduce "pair" for rank 2 on localhost, .*; 2 more ranks wait behind that$'
}

case_the_beginning_and_the_end() {
    why late 4 2 'for rank 2 on localhost, which has not called hvd_init; it waits in '
    why shutdown 4 2 '^3 ranks wait for [0-9.]+ s in shutdown .* for rank 2 on localhost, which computes'
}

case_a_job_that_goes_on() {
    why healthy 4 2 '^the job goes on: [0-9]+ operations ended in the last [0-9.]+ s($|; no rank is much slower )'
    start --job-name json -np 2 "$CULPRIT" healthy 0
    until_out 20 ready 2
    "$CTL" why json --json > "$T/shown"
    python3 - "$T/shown" << 'END' || fail "$(cat "$T/shown")"
import json, sys
why = json.load(open(sys.argv[1]))
assert why["verdict"] == "healthy" and why["culprits"] == [] and not why["guess"] and why["operations_ended"] > 0
assert [rank["rank"] for rank in why["ranks"]] == [0, 1] and all(rank["host"] == "localhost" for rank in why["ranks"])
END
    "$CTL" kill json > /dev/null
    stop_status
}

case_a_rank_that_is_slow() {
    why slow 2 1 '^the job goes on: .*; rank 1 on localhost is always late: [0-9]+ % of all waiting for others is for it.*; it '
}

# The process that calls hvd_init is not the one that hvdrun has started.
case_a_script_with_a_slow_rank() {
    start --job-name script -np 2 -H localhost:2 sh -c '"$0" slow 1; exit $?' "$CULPRIT"
    until_out 20 ready 2
    until_true 20 found script '; rank 1 on localhost is (always|often) late: ' || fail "$(cat "$T/shown" "$T/shown.err")"
    "$CTL" kill script > /dev/null
    stop_status
}

# The rank puts itself into a cgroup that may use a twentieth of a processor, of the version of cgroups that this machine has for that.
slow_cgroup() { # its directory
    if [ -e /sys/fs/cgroup/cpu/cpu.cfs_quota_us ]; then
        mkdir "/sys/fs/cgroup/cpu/hvd-slow-$$" && echo 5000 > "/sys/fs/cgroup/cpu/hvd-slow-$$/cpu.cfs_quota_us" && echo "/sys/fs/cgroup/cpu/hvd-slow-$$"
    else
        echo +cpu > /sys/fs/cgroup/cgroup.subtree_control && mkdir "/sys/fs/cgroup/hvd-slow-$$" && echo 5000 > "/sys/fs/cgroup/hvd-slow-$$/cpu.max" &&
            echo "/sys/fs/cgroup/hvd-slow-$$"
    fi
}

case_a_rank_that_a_limit_holds_back() {
    local slow
    slow=$(slow_cgroup 2> /dev/null) || skip 'no cgroup with a limit of processors can be made here'
    start --job-name held -np 2 -H localhost:2 sh -c '[ "$HVD_RANK" = 0 ] || echo 0 > '"$slow"'/cgroup.procs; exec "$0" slow 9' "$CULPRIT"
    until_out 20 ready 2
    until_true 20 found held '; rank 1 on localhost is (always|often) late: .*; a limit of its cgroup \(cpu.max\) holds it back [0-9]+ % of the time' || fail "$(cat "$T/shown" "$T/shown.err")"
    "$CTL" kill held > /dev/null
    stop_status
    rmdir "$slow"
}

# Two busy loops on the rank's processor leave little to a rank of a lower priority. They are of the rank's session: where the kernel
# groups tasks by sessions (CONFIG_SCHED_AUTOGROUP), priorities count within a group only.
beside_busy_loops() { # JOB SENTENCE COMMAND ...: rank 1 is started by the command, on the first processor that we may use
    local name=$1 sentence=$2 core
    shift 2
    core=$(taskset -pc $$ | sed 's/.*: *//; s/[-,].*//')
    start --job-name "$name" -np 2 -H localhost:2 sh -c '[ "$HVD_RANK" = 0 ] && exec "$0" slow 9
        core=$1; shift
        for i in 1 2; do taskset -c "$core" sh -c "while :; do :; done" & done
        exec taskset -c "$core" "$@" "$0" slow 9' "$CULPRIT" "$core" "$@"
    until_out 40 ready 2
    until_true 25 found "$name" "$sentence" || fail "hvdctl why does not say \"$sentence\": $(cat "$T/shown" "$T/shown.err")"
    "$CTL" kill "$name" > /dev/null
    stop_status
}

case_a_rank_of_a_low_priority() {
    beside_busy_loops nice '; rank 1 on localhost is (always|often) late: .*; it runs at nice 19 and waits for a processor [0-9]+ % of the time' nice -n 19
}

slow_a_rank_of_the_idle_class() {
    beside_busy_loops idle '; rank 1 on localhost is (always|often) late: .*; it runs under SCHED_IDLE and waits for a processor [0-9]+ % of the time' chrt -i 0
}

slow_a_rank_whose_cgroup_has_a_small_weight() {
    local small
    if [ -e /sys/fs/cgroup/cpu/cpu.shares ]; then
        small=/sys/fs/cgroup/cpu/hvd-small-$$
        mkdir "$small" 2> /dev/null && echo 2 > "$small/cpu.shares" || skip 'no cgroup with a weight can be made here'
    else
        small=/sys/fs/cgroup/hvd-small-$$
        echo +cpu 2> /dev/null > /sys/fs/cgroup/cgroup.subtree_control && mkdir "$small" && echo 1 > "$small/cpu.weight" || skip 'no cgroup with a weight can be made here'
    fi
    beside_busy_loops small '; rank 1 on localhost is (always|often) late: .*; it has 1 % of the usual weight by its cgroup .* and waits for a processor [0-9]+ % of the time' \
        sh -c 'echo $$ > "$0/cgroup.procs"; exec "$@"' "$small"
    rmdir "$small"
}

# The host's processors are those of a sysfs of our own: they slow down ten times a second, for 40 ms.
case_a_host_that_is_too_hot() {
    unshare -m true 2> "$T/why" || skip "no mount namespace of our own: $(cat "$T/why")"
    local hot=$T/cpu/cpu0/thermal_throttle i
    mkdir -p "$hot" && cp /sys/devices/system/cpu/online "$T/cpu/" && echo 5 | tee "$hot/core_throttle_count" "$hot/core_throttle_total_time_ms" > "$T/why"
    printf '#!/bin/bash\nexec unshare -m sh -c '\''mount --bind "%s" /sys/devices/system/cpu && exec "$0" "$@"'\'' "%s" "$@"\n' "$T/cpu" "$HVDRUN" > "$T/hot"
    chmod +x "$T/hot"
    HVDRUN=$T/hot start --job-name hot -np 2 -H localhost:2 "$CULPRIT" slow 1
    until_out 20 ready 2
    "$CTL" status hot > "$T/shown"
    expect_no "$T/shown" '^heat:'
    (for i in {6..9999}; do echo "$i" > "$hot/core_throttle_count" && echo $((i * 40)) > "$hot/core_throttle_total_time_ms" && sleep 0.1 || exit; done) 2> "$T/why" &
    local heater=$!
    until_true 25 found hot '; rank 1 on localhost is (always|often) late: .*; it .*, and its host.s processors are too hot and slower than usual [0-9]+ % of the time' ||
        { kill "$heater"; fail "$(cat "$T/shown" "$T/shown.err")"; }
    "$CTL" status hot > "$T/shown"
    kill "$heater"
    wait "$heater" 2> "$T/why"
    expect_count 1 '^heat: processors of this host have made themselves slower [0-9]+ times, [0-9.]+ s$' "$T/shown"
    "$CTL" kill hot > "$T/why"
    stop_status
}

with_gpus() { # JOB KIND LINE...: a job of two ranks with GPUs of the driver's double (tests/e2e/nvml_double.c)
    local name=$1 kind=$2
    printf '%s\n' "${@:3}" > "$T/nvml"
    export LD_LIBRARY_PATH=$BUILD/tests/nvml HVD_TEST_NVML=$T/nvml
    start --job-name "$name" -np 2 -H localhost:2 "$CULPRIT" "$kind" 1
    unset LD_LIBRARY_PATH HVD_TEST_NVML
    until_out 20 ready 2
}

case_a_gpu_that_is_too_hot() {
    with_gpus hotgpu slow 'gpus 2' 'slowed 1 48'
    until_true 25 found hotgpu '; rank 1 on localhost is (always|often) late: .*, and its GPU makes itself slower \(heat\)$' || fail "$(cat "$T/shown" "$T/shown.err")"
    "$CTL" kill hotgpu > "$T/why"
    stop_status
    with_gpus hotloop loop 'gpus 2' 'slowed 1 84'
    until_true 25 found hotloop '^1 rank waits .* for rank 1 on localhost, which .*, while its GPU makes itself slower \(power brake, power cap\)' ||
        fail "$(cat "$T/shown" "$T/shown.err")"
    "$CTL" kill hotloop > "$T/why"
    stop_status
}

slow_a_driver_that_hangs_delays_no_answer() {
    with_gpus hangs loop 'gpus 2'
    echo 'hang slowed' >> "$T/nvml"
    sleep 1.5
    mark_time
    found hangs '^1 rank waits .* for rank 1 on localhost, which computes' || fail "$(cat "$T/shown" "$T/shown.err")"
    expect_within 7
    "$CTL" kill hangs > "$T/why"
    stop_status
}

case_ranks_that_wait_without_a_tensor() {
    why join 4 2 '^3 ranks wait in hvd_join for rank 2 on localhost, which computes'
    why circle 3 0 '^ranks 0-2 on localhost wait for each other in a circle: rank [0-2] is in hvd_send or hvd_recv "activation.[0-2]" and waits for rank [0-2], and so on$'
    why finish 3 1 '^2 of 3 ranks have finished, and rank 1 on localhost has not: rank 1 waits in .*sleep < main'
}

# What another client asks meanwhile takes nothing away.
case_others_ask_too() {
    local looker i
    start --job-name beside -np 4 "$CULPRIT" loop 2
    until_out 20 ready 4
    (while :; do "$CTL" status beside > /dev/null 2>&1; done) &
    looker=$!
    sleep 2
    for i in 1 2 3 4 5 6; do
        found beside "^3 ranks wait $waits (computes|is running|is ready and has no processor)" || break
    done
    kill "$looker"
    wait "$looker" 2> /dev/null
    [ "$i" = 6 ] && grep -q "^3 ranks wait" "$T/shown" || fail "hvdctl why: $(cat "$T/shown" "$T/shown.err")"
    "$CTL" kill beside > /dev/null
    stop_status
}

slow_further_kinds() {
    why file 4 2 "^3 ranks wait $waits waits in flock \(.*\) of .*culprit.lock"
    why extra 4 2 '^rank 2 on localhost is in allreduce "validation", but ranks 0,1,3 on localhost are in allreduce "layer.1.weight" '
    why mutex 4 2 "^3 ranks wait $waits waits in futex"
    why sleep 4 2 "^3 ranks wait $waits waits in "
    why socket 4 2 "^3 ranks wait $waits waits in read \(unix_stream"
    why barrier 4 2 '^rank 2 on localhost is in hvd_barrier, but ranks 0,1,3 on localhost are in allreduce "layer.1.weight" '
    why broadcast 4 2 '^3 ranks wait for [0-9.]+ s in broadcast "start" for rank 2 on localhost, '
}

plain() { # KIND RANK SENTENCE
    start --job-name "plain-$1" -np 4 python3 "$top/tests/e2e/plain.py" "$1" "$2" "$T"
    until_out 20 ready 4
    until_true 20 found "plain-$1" "$3" || fail "hvdctl why does not say \"$3\": $(cat "$T/shown" "$T/shown.err")"
    "$CTL" kill "plain-$1" > /dev/null
    stop_status
}

guess='^a guess, from outside: 3 ranks wait in recvfrom of a connection, and rank 2 on localhost does not: rank 2'

slow_plain_programs() {
    plain loop 2 "$guess computes \([0-9]+ % of a processor\)"
    plain pipe 2 "$guess waits in read \(.*\) of a pipe from sh \(pid [0-9]+\), which is stopped"
    plain exit 2 "$guess has ended \(exit status 0\)"
    exec 8> "$T/lock.lock"
    flock 8
    plain lock 2 "$guess waits in flock \(.*\) of .*/lock.lock, locked by "
    exec 8>&-
    plain holder 2 '^a guess, from outside: rank 0 waits in flock \(.*\) of .*/holder.lock, locked by python3.* \(pid [0-9]+\); that is rank 2 on localhost, which waits in .*nanosleep'
}

slow_further_plain_programs() {
    plain sleep 2 "$guess waits in .*nanosleep"
    plain full 2 "$guess waits in write \(.*\) of a pipe to sleep \(pid [0-9]+\)"
    plain leak 2 "$guess waits in read \(.*\) of a pipe that only this process holds"
    plain fifo 2 "$guess waits in openat \(.*\) of .*/nobody"
    plain child 2 "$guess has a process sleep \(pid [0-9]+\) that waits in "
    plain thread 2 "$guess waits in futex"
}

# Needs a place to swap to.
slow_a_rank_that_is_swapped_out() {
    [ "$(id -u)" = 0 ] && fallocate -l 256M "$T/swap" && chmod 600 "$T/swap" && mkswap "$T/swap" > "$T/why" 2>&1 && swapon "$T/swap" 2> "$T/why" ||
        skip "no swap file of our own: $(cat "$T/why")"
    cat > "$T/swap.py" << 'END'
import mmap, os, socket, time
if os.environ["RANK"] == "1":
    memory = mmap.mmap(-1, 150 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.write(b"x" * len(memory))
    memory.madvise(21)  # MADV_PAGEOUT
    print("ready", flush=True)
    time.sleep(1000)
with socket.create_server(("127.0.0.1", 0)) as server:
    server.accept()
END
    start --job-name swapped -np 3 python3 "$T/swap.py"
    until_out 20 ready 1
    until_true 20 found swapped 'rank 1 on localhost does not: rank 1 waits in .*nanosleep.*, with 0\.[12] GB of its memory swapped out' ||
        { swapoff "$T/swap"; fail "$(cat "$T/shown")"; }
    "$CTL" kill swapped > /dev/null
    stop_status
    swapoff "$T/swap"
}

ras_job() { # MODE
    port=$(python3 -c 'import socket; print(socket.create_server(("127.0.0.1", 0)).getsockname()[1])')
    start --job-name "ras-$1" -np 2 -x "NCCL_RAS_ADDR=localhost:$port" python3 "$top/tests/e2e/ras.py" "$1"
    until_out 20 ready 2
}

# Programs without libhvd: NCCL tells of itself. The process of a rank stands in for it.
case_the_word_of_nccl() {
    ras_job well
    found ras-well . || fail "$(cat "$T/shown" "$T/shown.err")"
    expect_count 1 "^NCCL's own word, of its RAS service in process [0-9]+ on localhost:$" "$T/shown"
    expect_count 1 '^    Communicator ranks have different collective operation counts$' "$T/shown"
    expect_no "$T/shown" 'NCCL version'
    "$CTL" why ras-well --json > "$T/shown"
    expect_count 1 'Communicator ranks have different' "$T/shown"
    "$CTL" kill ras-well > "$T/why"
    stop_status
}

# One that does not answer delays nobody for long; one that is not of the job is not asked.
slow_others_than_nccl_at_its_port() {
    local server
    ras_job mute
    mark_time
    found ras-mute . || fail "$(cat "$T/shown" "$T/shown.err")"
    expect_within 7
    expect_no "$T/shown" "NCCL's own word"
    "$CTL" kill ras-mute > "$T/why"
    stop_status
    ras_job foreign
    NCCL_RAS_ADDR=localhost:$port RANK=0 python3 "$top/tests/e2e/ras.py" well > "$T/foreign" &
    server=$!
    until_true 10 grep -q ready "$T/foreign"
    found ras-foreign . || fail "$(cat "$T/shown" "$T/shown.err")"
    kill "$server"
    wait "$server" 2> "$T/why"
    expect_no "$T/shown" "NCCL's own word"
    "$CTL" kill ras-foreign > "$T/why"
    stop_status
}

# Without libhvd: what is seen from outside.
case_a_program_of_another_kind() {
    # shellcheck disable=SC2016
    start --job-name plain -np 3 sh -c 'echo ready; [ $RANK = 1 ] && kill -STOP $$; while :; do sleep 0.1; done'
    until_out 10 ready 3
    until_true 10 found plain '^rank 1 on localhost is stopped \(pid [0-9]+\)$' || fail "$(cat "$T/shown")"
    "$CTL" kill plain > /dev/null
    stop_status
    "$CTL" why plain > "$T/shown" 2> "$T/shown.err"
    expect_count 1 '^hvdctl: no job on this host is named plain$' "$T/shown.err"
}
