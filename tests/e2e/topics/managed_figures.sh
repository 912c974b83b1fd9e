# shellcheck shell=bash disable=SC2016,SC2034,SC2154
# What the managed agent costs: a host that only waits, many jobs in a row, many who ask, and the start beside that of an agent for one job.
#
#   MANAGED_JOBS=10000 MANAGED_HOSTS=16   how many jobs (200); how many hosts (8)
alone=1
needs_root=1
limit=3000
# shellcheck source=tests/e2e/systemd_host.sh
. "$top/tests/e2e/systemd_host.sh"

cpu_us() { # PID...: what they have used, in microseconds
    local pid
    for pid in "$@"; do there sh -c "cat /proc/$pid/task/*/schedstat"; done | awk '{sum += $1} END {printf "%d", sum / 1000}'
}

resident() { # PID: KiB
    there sed -n 's/^VmRSS:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$1/status"
}

descriptors() { # PID
    there ls "/proc/$1/fd" | wc -l
}

percent() { # MICROSECONDS OF
    awk -v a="$1" -v b="$2" 'BEGIN {printf "%.3f", 100 * a / b}'
}

at_most() { # FOUND MOST WHAT
    awk -v a="$1" -v b="$2" 'BEGIN {exit !(a <= b)}' || fail "$3: $1, more than $2"
}

microseconds() {
    echo "${EPOCHREALTIME/./}"
}

slow_an_agent_that_waits() {
    boot
    as alice -np 1 true
    local agent used began
    agent=$(agent_pid)
    sleep 1
    used=$(cpu_us "$agent") began=$(microseconds)
    sleep 30
    used=$(percent $(($(cpu_us "$agent") - used)) $(($(microseconds) - began)))
    echo "# an idle agent: $used % of a core, $(resident "$agent") KiB"
    at_most "$used" 0.1 'percent of a core'
    at_most "$(resident "$agent")" 10240 'KiB'
    shut
}

slow_many_jobs_through_one_agent() {
    local agent jobs=${MANAGED_JOBS:-200} memory open files took
    boot
    printf 'for i in $(seq "$1"); do /usr/local/bin/hvdrun -np 2 true || echo "job $i: status $?"; done\n' > "$T/loop"
    "$machine" as alice sh "$T/loop" 30 > "$T/loop.out" 2>&1
    expect_same '' "$(cat "$T/loop.out")" 'what the first jobs said'
    all_over
    agent=$(agent_pid) memory=$(resident "$(agent_pid)") open=$(descriptors "$(agent_pid)")
    files=$(there find /run /tmp /dev/shm -not -path '/run/systemd/*' -not -path '/run/log/*' -not -path "$T/*" | sort)
    took=$(microseconds)
    "$machine" as alice sh "$T/loop" "$jobs" > "$T/loop.out" 2>&1
    took=$((($(microseconds) - took) / jobs))
    expect_same '' "$(cat "$T/loop.out")" 'what the jobs said'
    all_over
    expect_same "$agent" "$(agent_pid)" 'the agent'
    echo "# $jobs jobs, $((took / 1000)).$((took / 100 % 10)) ms each: resident $memory KiB before, $(resident "$agent") after; descriptors $open, $(descriptors "$agent")"
    expect_same "$open" "$(descriptors "$agent")" 'the descriptors of the agent'
    at_most "$(resident "$agent")" $((memory + 512)) 'KiB'
    expect_same "$files" "$(there find /run /tmp /dev/shm -not -path '/run/systemd/*' -not -path '/run/log/*' -not -path "$T/*" | sort)" 'the files'
    shut
}

# Each asks once a second, as hvdctl top does: half of them the session of the job, half the agent.
slow_a_hundred_ask_while_a_job_trains() {
    local session job used began
    boot
    mkdir -p "$T/bin/tests"
    cp "$BUILD/tests/steps" "$T/bin/tests"
    cp -P "$BUILD"/libhvd.so* "$T/bin"
    start_as alice -np 2 sh -c 'echo ready; exec "$0" 1000000' "$T/bin/tests/steps"
    until_job '^ready' 2
    session=$(there pgrep -P "$(there systemctl show -p MainPID --value "$(unit_of_the_job)")" | head -n 1)
    job=$("$machine" as alice /usr/local/bin/hvdctl ps | awk 'NR == 2 {print $1}')
    printf 'for i in $(seq 50); do for what in "status %s" node; do (for n in 1 2 3 4 5 6 7 8 9 10; do /usr/local/bin/hvdctl $what > /dev/null || echo "failed $what"; sleep 1; done) & done; done; wait\n' "$job" > "$T/ask"
    sleep 1
    used=$(cpu_us "$session" "$(agent_pid)") began=$(microseconds)
    "$machine" as alice sh "$T/ask" > "$T/asked" 2>&1
    used=$(($(cpu_us "$session" "$(agent_pid)") - used)) began=$(($(microseconds) - began))
    expect_same '' "$(sort -u "$T/asked")" 'what hvdctl said'
    echo "# 1000 questions of 100 clients in $((began / 1000)) ms: agent and session use $(percent $used $began) % of a core"
    [ -e "/proc/$pid" ] || fail "the job has ended: $(cat "$T/job.err")"
    at_most "$(percent $used $began)" 2 'percent of a core'
    "$machine" as alice /usr/local/bin/hvdctl kill "$job"
    stop_job
    all_over
    shut
}

# Hosts of their own, all on this machine; what carries the start there is nsenter.
slow_the_start_beside_that_of_an_agent_for_one_job() {
    local hosts=${MANAGED_HOSTS:-8} k names='' kind began
    boot # once, as it installs
    printf '#!/bin/bash\nexport SYSTEMD_DIR=%s/$1\nexec %s as alice sh -c "$2"\n' "$T" "$machine" > "$T/rsh"
    chmod 755 "$T/rsh"
    shut
    all_down() { for k in $(seq "$hosts"); do SYSTEMD_DIR=$T/n$k "$machine" down; done; }
    trap 'all_down; rm -rf "$XDG_RUNTIME_DIR"' EXIT
    for k in $(seq "$hosts"); do
        SYSTEMD_DIR=$T/n$k timeout 60 "$machine" up || fail "host $k does not boot"
        SYSTEMD_DIR=$T/n$k "$machine" exec systemctl start hvdagent.service
        names=$names${names:+,}n$k:1
    done
    for k in $(seq 11); do
        for kind in managed job; do
            began=$(microseconds)
            hvd --agent $kind --rsh "$T/rsh {host}" --agent-path /usr/local/bin/hvdagent -H "$names" -np "$hosts" true
            expect_status 0
            expect_no_err
            [ "$k" = 1 ] || echo $(($(microseconds) - began)) >> "$T/$kind.us" # the first one warms up
        done
    done
    for kind in managed job; do sort -n "$T/$kind.us" | awk -v k=$kind '{t[NR] = $1} END {printf "%s %.1f\n", k, t[int((NR + 1) / 2)] / 1000}'; done > "$T/medians"
    echo "# true on $hosts hosts, median of 10, ms: $(paste -sd, "$T/medians")"
    all_down
}
