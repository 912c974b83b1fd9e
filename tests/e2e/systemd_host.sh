# shellcheck shell=bash disable=SC2034,SC2154
# For topics that need the managed agent under a real systemd, as `make install` leaves it: a host for each case, its users alice and bob,
# jobs of theirs, and what is left when all is over. A topic that reads this sets needs_root=1.
machine=$top/tests/hosts/systemd.sh

# boot [LINE of agent.conf...]: a host with two slots and the socket of the agent
boot() {
    local why root=$work/systemd-root
    why=$("$machine" can) || skip "no systemd host: $why"
    [ -e "$BUILD/modules/systemd.so" ] || skip "this build has no libsystemd (apt-get install libsystemd-dev)"
    if [ ! -e "$root/done" ]; then
        MAKEFLAGS='' make -C "$top" BUILD="$BUILD" SANITIZE="$E2E_SANITIZE" DESTDIR="$root" PREFIX=/usr/local install > "$T/make" 2>&1 || fail "make install: $(tail -n 3 "$T/make")"
        rm -r "$root/usr/local/share"
        touch "$root/done"
    fi
    export SYSTEMD_DIR=$T/host SYSTEMD_BIND=$T SYSTEMD_ROOT=$root
    trap '"$machine" down; rm -rf "$XDG_RUNTIME_DIR"' EXIT
    timeout 30 "$machine" up || fail "it does not boot"
    [ -z "$E2E_SANITIZE" ] || make_room_for_sanitizers
    conf 'slots: 2' "$@"
    there systemctl start hvdagent.socket
}

# What they need and the sandbox of the service forbids; what they find in the agent and in sessions comes to $T/reports.
make_room_for_sanitizers() {
    mkdir -m 1777 "$T/reports"
    there systemctl set-environment "ASAN_OPTIONS=detect_leaks=1:log_path=$T/reports/asan" "UBSAN_OPTIONS=print_stacktrace=1:log_path=$T/reports/ubsan"
    # shellcheck disable=SC2016
    printf '%s\n' '[Service]' MemoryDenyWriteExecute=no SystemCallFilter= PrivateTmp=no ProtectSystem=no WatchdogSec=300s | there sh -c \
        'mkdir -p /etc/systemd/system/hvdagent.service.d && cat > /etc/systemd/system/hvdagent.service.d/sanitizers.conf && systemctl daemon-reload'
}

shut() { # at the end of a case, so that what is left is looked for
    "$machine" down
    [ -z "$E2E_SANITIZE" ] || [ -z "$(ls -A "$T/reports")" ] || fail "a sanitizer found: $(cat "$T/reports"/*)"
}

there() { # COMMAND: as root on that host
    timeout 40 "$machine" exec "$@"
}

conf() { # LINE...
    # shellcheck disable=SC2016
    printf '%s\n' "$@" | there sh -c 'cat > /etc/hvd/agent.conf'
}

as() { # USER ARGUMENTS of hvdrun: to its end
    local who=$1
    shift
    run timeout 30 "$machine" as "$who" /usr/local/bin/hvdrun "$@"
}

start_as() { # USER ARGUMENTS: in the background; its output is in $T/job.out and $T/job.err until stop_job
    local who=$1
    shift
    : > "$T/job.out"
    "$machine" as "$who" /usr/local/bin/hvdrun "$@" < /dev/null > "$T/job.out" 2> "$T/job.err" &
    pid=$!
}

until_job() { # REGEX [COUNT]: so many lines of its output
    until_true 20 job_has "$1" "${2:-1}" || fail "the job did not say $1: $(cat "$T/job.err")"
}

job_has() {
    [ "$(grep -cE -- "$1" "$T/job.out")" -ge "$2" ]
}

stop_job() { # its end
    stop_status
    mv "$T/job.out" "$T/out"
    mv "$T/job.err" "$T/err"
}

leases() {
    there ls /run/hvd/leases
}

agent_pid() {
    there systemctl show -p MainPID --value hvdagent.service
}

agent_started() { # TIMES: anew, by systemd
    [ "$(there systemctl show -p NRestarts --value hvdagent.service)" -ge "$1" ] && [ "$(there systemctl is-active hvdagent.service)" = active ]
}

no_leases() {
    [ -z "$(leases)" ]
}

no_units() {
    [ -z "$(there systemctl list-units --all --plain --no-legend 'hvd-*')" ]
}

no_processes() { # of the users; one that has ended may wait a moment to be reaped
    [ -z "$(there ps -o args= -u alice -u bob)" ]
}

all_over() { # nothing of any job is left on that host
    until_true 10 no_leases || fail "leases were left: $(leases)"
    until_true 10 no_units || fail "units were left: $(there systemctl list-units --all --plain --no-legend 'hvd-*')"
    # shellcheck disable=SC2016
    expect_same '' "$(there find /dev/shm /tmp /run -maxdepth 1 -name 'hvd-*')" 'what is left of its files'
    expect_same '' "$(there find /sys/fs/cgroup -name 'hvdjob-*')" 'what is left of its cgroups'
    until_true 5 no_processes || fail "processes were left: $(there ps -o args= -u alice -u bob)"
}

unit_of_the_job() {
    there systemctl list-units --plain --no-legend 'hvd-*' | awk '{print $1}'
}

# A job of alice with one of the two slots, which ends when $T/go is there.
start_job() {
    # shellcheck disable=SC2016
    start_as alice -np 1 sh -c 'echo ready $$; until [ -e '"$T"'/go ]; do sleep 0.05; done; echo done'
    until_job '^ready'
}

job_goes_on_to_its_end() {
    touch "$T/go"
    stop_job
    expect_status 0
    expect_out '^done$'
    expect_no "$T/err" .
    all_over
}

complaints() {
    there journalctl -u hvdagent -o cat | grep -cE 'warning: '
}

# ---- several jobs, several nodes ---------------------------------------------------------------------------------------------
declare -A queued # pids by name

ended() { # NAME STATUS
    local status=0
    wait "${queued[$1]}" || status=$?
    expect_same "$2" "$status" "the status of $1 ($(tail -n 2 "$T/$1.err"))"
}

# Two nodes, reached as alice by any name that ends with their number; names in $T/late are reached once it is gone.
two_nodes() { # LINE of agent.conf...
    boot "$@" # once, as it installs
    shut
    cat > "$T/rsh" << END
#!/bin/bash
while [ -e $T/late ] && grep -qx "\$1" $T/late; do sleep 0.02; done
export SYSTEMD_DIR=$T/node\${1: -1}
exec $machine as alice sh -c "\$2"
END
    chmod 755 "$T/rsh"
    all_down() { for k in 1 2; do SYSTEMD_DIR=$T/node$k "$machine" down; done; }
    trap 'all_down; rm -rf "$XDG_RUNTIME_DIR"' EXIT
    printf '%s\n' "$@" > "$T/nodes.conf"
    for k in 1 2; do
        SYSTEMD_DIR=$T/node$k timeout 60 "$machine" up || fail "node $k does not boot"
        SYSTEMD_DIR=$T/node$k "$machine" exec sh -c "cat $T/nodes.conf > /etc/hvd/agent.conf; systemctl start hvdagent.socket"
    done
}

on_nodes() { # NAME ARGUMENTS of hvdrun: in the background
    local name=$1
    shift
    env --default-signal=INT "$HVDRUN" --rsh "$T/rsh {host}" --agent managed --agent-path /usr/local/bin/hvdagent "$@" < /dev/null > "$T/$name.out" 2> "$T/$name.err" &
    queued[$name]=$!
}
