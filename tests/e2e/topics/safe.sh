# shellcheck shell=bash disable=SC2034,SC2154
# What one ordinary user of a host can do to the jobs of another and to the managed agent: alice has a job, bob is the stranger. Each
# attempt is refused or survived, and her job does not notice. SECURITY.md says what each case stands for.
needs_root=1
limit=120
# shellcheck source=tests/e2e/systemd_host.sh
. "$top/tests/e2e/systemd_host.sh"

STRANGER=$top/tests/safe/stranger.py

# boot, with a stranger there
boot_with_stranger() { # LINE of agent.conf...
    command -v /usr/bin/python3 > /dev/null || skip "no python3 here"
    boot "$@"
    cp "$STRANGER" "$T/stranger.py"
}

stranger() { # USER ARGUMENTS of stranger.py
    local who=$1
    shift
    timeout 40 "$machine" as "$who" /usr/bin/python3 "$T/stranger.py" "$@"
}

agent_is_the_first() {
    expect_same 0 "$(there systemctl show -p NRestarts --value hvdagent.service)" 'restarts of the agent'
}

# alice trains with libhvd on both slots, 500 steps for each second: no machine was faster. An engine, its arenas, the ports of the rendezvous.
train() { # SECONDS
    mkdir -p "$T/bin/tests"
    cp "$BUILD/tests/steps" "$T/bin/tests"
    cp -P "$BUILD"/libhvd.so* "$T/bin"
    # shellcheck disable=SC2016
    start_as alice --rendezvous gloo,pmix -np 2 sh -c 'echo ready; exec "$0" "$1"' "$T/bin/tests/steps" $(($1 * 500))
    until_job '^ready' 2
    until_true 10 there pgrep -x hvd-engine > "$T/engine" || fail "there is no engine: $(cat "$T/job.err")"
}

training_goes_on_to_its_end() {
    [ -e "/proc/$pid" ] || fail "the job has ended already: $(cat "$T/job.err")"
    stop_job
    expect_status 0
    expect_count 2 '^rank [01]: [0-9a-f]{16}$' "$T/out"
    all_over
}

# ---- the job of another ------------------------------------------------------------------------------------------------------------
# What alice herself reaches shows that the stranger would have found it.
slow_nothing_of_a_job_is_anothers() {
    boot_with_stranger
    local what
    train 8
    stranger alice reach 20001 > "$T/own" 2> "$T/own.err" || fail "$(cat "$T/own.err")"
    stranger bob reach 20001 > "$T/reached" 2> "$T/listens" || fail "$(cat "$T/listens")"
    for what in 'socket @hvdrun-' 'socket .*/status' 'socket .*/worker' 'process .*: environ' 'process .*: mem' 'process .*: fd' 'process .*: ptrace' 'process .*: pidfd' 'file /tmp/hvd-20001/' 'writes /sys/fs/cgroup'; do
        grep -qE "^$what" "$T/own" || fail "alice does not reach \"$what\" either: $(head -c 2000 "$T/own")"
    done
    grep -q '^listens' "$T/listens" || fail 'there were no ports'
    expect_same '' "$(cat "$T/reached")" 'what bob reached'
    training_goes_on_to_its_end
    expect_same '' "$(grep -v "a connection to the rendezvous was closed: user 20002 is not the job's" "$T/err")" 'what alice was told beside that'
    [ "$(wc -l < "$T/err")" -le "$(wc -l < "$T/listens")" ] || fail "more than a line for each port: $(cat "$T/err")"
    shut
}

# The kernel shows arguments to everybody, the journal goes to administrators: neither the token of the workers nor the key of the job is
# there, and no environment but the workers' holds the token. The managed agent never had either. A core file of any process of ours would hold
# neither; the workers' own token is theirs. The key is read out of the session, which only root and alice can.
slow_secrets_are_told_to_nobody() {
    [ -z "$E2E_SANITIZE" ] || skip "all of its memory is looked at, and a sanitizer has terabytes"
    local token key session found
    command -v gdb > /dev/null || skip "no gdb here"
    boot
    train 15
    # shellcheck disable=SC2016
    token=$(there sh -c 'for p in $(pgrep -u alice); do tr "\0" "\n" < /proc/$p/environ; done' | sed -n 's/^HVD_JOB_TOKEN=//p' | sort -u)
    [ ${#token} = 32 ] || fail "the token is \"$token\""
    session=$(there pgrep -P "$(there systemctl show -p MainPID --value "$(unit_of_the_job)")" | head -n 1)
    key=$(there gdb -q -batch "$BUILD/hvdagent" "$session" -ex 'x/32xb session_main::session.job.secrets->key' 2> /dev/null | sed -n 's/^0x[^:]*:\t0x/0x/p' | tr -d '\n\t' | sed 's/0x//g')
    [ ${#key} = 64 ] || fail "the key is \"$key\""
    cp "$top/tests/safe/copies.py" "$T"
    # shellcheck disable=SC2046
    there /usr/bin/python3 "$T/copies.py" "$key" $(there pgrep '^hvd|^steps') > "$T/copies"
    echo "# copies of the key in memory: $(sed 's/ /: /' "$T/copies" | paste -sd,)"
    for found in hvdrun hvdagent; do
        grep -qE "^$found 0 [1-9]" "$T/copies" || fail "the key was not even found in $found"
    done
    expect_no "$T/copies" ' [1-9][0-9]* [0-9]*$'
    expect_no "$T/copies" '^(hvd-pmix|steps) 0 [1-9]'
    # shellcheck disable=SC2046
    for found in "$token" "$(printf %s "$token" | od -An -tx1 | tr -d ' \n')"; do
        there /usr/bin/python3 "$T/copies.py" "$found" $(there pgrep '^hvd') > "$T/copies"
        grep -qE '^hvdagent 0 [1-9]' "$T/copies" || fail 'the token was not even found in the session'
        expect_no "$T/copies" ' [1-9][0-9]* [0-9]*$'
    done
    expect_same 'hvdagent 0 0' "$(there /usr/bin/python3 "$T/copies.py" "$key" "$(agent_pid)")" 'the copies in the managed agent'
    there sh -c 'cat /proc/[0-9]*/cmdline 2>/dev/null | tr "\0" " "' > "$T/arguments"
    there journalctl -o export > "$T/journal"
    for found in arguments journal; do
        grep -q hvd "$T/$found" || fail "there is nothing of ours among the $found"
        ! grep -aqiE "$token|$key" "$T/$found" || fail "a secret is among the $found"
    done
    # shellcheck disable=SC2016
    there sh -c 'for p in $(pgrep .); do ! grep -qa "HVD_JOB_TOKEN" /proc/$p/environ || cat /proc/$p/comm; done' > "$T/holders"
    expect_same steps "$(sort -u "$T/holders" | paste -sd' ')" 'who has the token in its environment'
    training_goes_on_to_its_end
    shut
}

# What the kernel itself writes when one of ours crashes, as the user who started the job.
slow_core_files_hold_no_secret() {
    [ -z "$E2E_SANITIZE" ] || skip "a sanitizer leaves no core files"
    local victim name key core own=$BUILD/tests/steps
    command -v gdb > /dev/null || skip "no gdb here"
    [ "$(cat /proc/sys/kernel/core_pattern)" = core ] || skip "core files go elsewhere here"
    ulimit -c unlimited || skip "no core files here"
    cd "$T" || fail "there is no $T"
    for name in hvdrun hvdagent hvd-engine steps; do
        start -np 1 --agent job sh -c 'echo "$HVD_JOB_TOKEN" > "$1"; exec "$0" 100000' "$own" "$T/token"
        until_true 10 descendants_have hvd-engine || fail 'there is no engine'
        victim=$pid
        for core in $(descendants "$pid"); do
            key=$(gdb -q -batch -p "$core" -ex 'x/32xb session_main::session.job.secrets->key' 2> /dev/null | sed -n 's/^0x[^:]*:\t0x/0x/p' | tr -d '\n\t' | sed 's/0x//g')
            [ ${#key} != 64 ] || break
        done
        [ ${#key} = 64 ] || fail "the key is \"$key\""
        [ $name = hvdagent ] && victim=$core
        for core in $(descendants "$pid"); do
            [ "$(cat "/proc/$core/comm")" != "$name" ] || [ $name = hvdagent ] || victim=$core
        done
        kill -ABRT "$victim"
        stop_status
        [ "$status" != 0 ] || fail "a job whose $name has crashed ends with status 0"
        core=$(ls core*) || fail "$name left no core file"
        grep -qa "$name" "$core" || fail "that is no core file of $name"
        expect_same "$([ $name != steps ] || echo token)" "$(in_core "$core" "$key" "$(cat "$T/token")")" "what a core file of $name holds"
        rm "$core"
    done
}

in_core() { # FILE KEY TOKEN: which of them
    /usr/bin/python3 -c 'import sys
core = open(sys.argv[1], "rb").read()
for name, secret in ("key", sys.argv[2]), ("token", sys.argv[3]):
    if bytes.fromhex(secret) in core or secret.encode() in core:
        print(name)' "$@"
}

descendants() { # PID
    local child
    # shellcheck disable=SC2013 # words are what that file holds
    for child in $(cat "/proc/$1/task/"*/children 2>/dev/null); do
        echo "$child"
        descendants "$child"
    done
}

descendants_have() { # NAME
    local child
    for child in $(descendants "$pid"); do
        [ "$(cat "/proc/$child/comm")" != "$1" ] || return 0
    done
    return 1
}

# The same user, so that nothing but the token is in the way: that of a job which is over, at that job's socket and at another's.
slow_a_token_of_a_job_that_is_over() {
    local steps=$BUILD/tests/steps
    hvd -np 1 sh -c 'env | grep ^HVD_ > "$0"' "$T/over"
    expect_status 0
    # shellcheck disable=SC2046 # words without blanks
    run env $(cat "$T/over") timeout 20 "$steps" 1
    [ "$status" != 0 ] && [ "$status" != 124 ] || fail "a rank of a job that is over ends with status $status"
    one_clear_line 'hvd_init' 'a rank of a job that is over'
    # shellcheck disable=SC2016
    start -np 1 sh -c 'echo ready; HVD_JOB_TOKEN=$(sed -n s/^HVD_JOB_TOKEN=//p "$2") timeout 20 "$0" 1 > "$1" 2>&1; echo "status $?"; exec "$0" 1' "$steps" "$T/stolen" "$T/over"
    stop_status
    expect_status 0
    expect_no "$T/out" '^status (0|124)$'
    grep -q hvd_init "$T/stolen" || fail "$(cat "$T/stolen")"
    expect_out '^rank 0: '
}

# ---- the managed agent -----------------------------------------------------------------------------------------------------------
# A descriptor costs whoever closes it last what its owner wants: the agent must never be the one that waits, and systemd neither.
slow_descriptors_that_take_an_hour_to_close() {
    boot_with_stranger 'share_slots: yes'
    start_job
    local kind
    for kind in asked more unread; do
        : > "$T/given"
        there kill -STOP "$(agent_pid)" # or it would let go of them before bob does
        stranger bob heavy $kind > "$T/given" &
        until_true 10 test -s "$T/given" || fail "nothing was given ($kind)"
        there kill -CONT "$(agent_pid)"
        mark_time
        as alice -np 1 echo fine
        expect_status 0
        expect_out '^fine$'
        expect_within 5
    done
    there systemctl reload hvdagent.service
    agent_is_the_first
    there pkill -KILL -u bob python3
    wait -n
    job_goes_on_to_its_end
    shut
}

# What is no pipe does not go to the agent, and what the session says arrives there nevertheless.
slow_an_agent_whose_stderr_is_a_file() {
    boot
    printf '#!/bin/sh\nexec sh -c "$2" 2>> %s/carried\n' "$T" > "$T/rsh"
    chmod 755 "$T/rsh"
    as alice --agent managed --log-level debug --rsh "$T/rsh {host}" -np 1 -H somewhere:1 echo fine
    expect_status 0
    expect_out '^fine$'
    grep -q 'hvdagent: debug: ' "$T/carried" || fail 'what the session said is not in the file'
    all_over
    shut
}

# What alice asks for is hers to open: the agent is watched while she names a command, a directory, files and libraries that would show it.
slow_root_opens_nothing_that_a_user_names() {
    [ -z "$E2E_SANITIZE" ] || skip "what is preloaded must not be found before a sanitizer"
    command -v strace > /dev/null || skip "no strace here"
    boot
    as alice -np 1 true # the agent runs
    mkdir -p "$T/canary"
    mkfifo -m 666 "$T/canary/library.so"
    chmod 777 "$T/canary"
    printf '#!/bin/sh\necho ran\n' > "$T/canary/command"
    chmod 755 "$T/canary/command"
    : > "$T/strace.err"
    there strace -f -e trace=all -s 4096 -o "$T/strace" -p "$(agent_pid)" 2> "$T/strace.err" &
    until_true 10 grep -q attached "$T/strace.err" || fail "$(cat "$T/strace.err")"
    as alice -x HVD_CANARY=canary -x LD_LIBRARY_PATH="$T/canary" --output-filename "$T/canary/logs" -np 1 --wdir "$T/canary" "$T/canary/command"
    expect_status 0
    expect_out '^ran$'
    timeout 3 "$machine" as alice env LD_PRELOAD="$T/canary/library.so" /usr/local/bin/hvdagent attach < /dev/null > "$T/attached" 2>&1
    friends "$T/canary"
    there pkill -x strace
    wait -n 2> /dev/null
    grep -q accept4 "$T/strace" || fail 'nothing of the agent was seen'
    grep -q 'sendmsg.*StartTransientUnit' "$T/strace" || fail 'the start of the session was not seen'
    expect_no "$T/strace" canary
    agent_is_the_first
    all_over
    shut
}

# 10,000 connections that say a byte a second: to the agent, its metrics, and all that a job of alice listens at. The job goes on as fast, and so does
# whoever wants a new one; nobody runs out of descriptors, and there is no line for each.
slow_ten_thousand_half_open_connections() {
    [ -z "$E2E_SANITIZE" ] || skip "too slow with a sanitizer"
    boot_with_stranger 'metrics: yes' 'share_slots: yes'
    as alice -np 1 true # the agent runs, or nobody would have bound that socket
    local alone under session count
    train_timed alone
    training=1 train_timed under
    count=$(sed -n 's/^made //p' "$T/held")
    [ "$count" = 10000 ] || fail "not all were made: $(tail -n 8 "$T/held"; cat "$T/held.err")"
    grep -q '^port [1-9]' "$T/held" && grep -q '^/run/hvd/agent.sock [1-9]' "$T/held" && grep -q '^/run/hvd/metrics.sock [1-9]' "$T/held" || fail "$(tail -n 8 "$T/held")"
    expect_no "$T/held" '^/[^ ]*hvd-20001/[^ ]* [1-9]'
    echo "# training alone $alone ms, meanwhile $under ms; open of those made: $(tail -n 12 "$T/held" | sort -u | grep -v made | awk '{print $1, $3 "/" $2}' | paste -sd,)"
    [ "$under" -le $((2 * alone + 200)) ] || fail "the training took $under ms, and $alone ms alone"
    agent_is_the_first
    count=$(complaints)
    [ "$count" -ge 1 ] && [ "$count" -le 20 ] || fail "$count lines in the journal"
    all_over
    shut
}

# the time of a training of alice in $1; with $training set, while bob does that
train_timed() {
    local bob='' most=0 was job
    [ -z "${training:-}" ] || sleep 1 # what the last one sent to the journal
    train 4
    mark_time
    if [ -n "${training:-}" ]; then
        stranger bob hold 20001 10000 > "$T/held" 2> "$T/held.err" &
        bob=$!
        sleep 3
        job=$(there pgrep -u alice -x hvdagent | sort -n | tail -n 1)
        for was in "$(agent_pid)" "$job"; do
            most=$(there sh -c "ls /proc/$was/fd | wc -l")
            [ "$most" -le 700 ] || fail "$(there cat "/proc/$was/cmdline" | tr '\0' ' ') has $most descriptors"
        done
        as alice -np 1 echo fine
        expect_status 0
        expect_out '^fine$'
    fi
    pid=$pid stop_job
    printf -v "$1" %s $(((${EPOCHREALTIME/./} - since) / 1000))
    expect_status 0
    expect_count 2 '^rank [01]: [0-9a-f]{16}$' "$T/out"
    [ "$(wc -l < "$T/err")" -le 8 ] || fail "alice is told too much: $(head -n 12 "$T/err")"
    if [ -n "$bob" ]; then
        until_true 20 grep -q '^made' "$T/held"
        there pkill -KILL -u bob python3
        wait $bob
    fi
}

# While bob makes and renames things where her jobs would have their directory, alice starts one after the other: each runs, or is refused with one line.
slow_a_directory_that_changes_hands() {
    [ -z "$E2E_SANITIZE" ] || skip "too slow with a sanitizer to meet the moment"
    boot_with_stranger
    local bob ran=0 refused=0
    "$machine" as bob mkdir -m 777 /home/bob/trap
    there chmod 755 /home/bob
    stranger bob race /tmp/hvd-20001 /home/bob/trap > "$T/racing" 2> "$T/racing.err" &
    bob=$!
    until_true 10 grep -q racing "$T/racing" || fail "$(cat "$T/racing.err")"
    for _ in $(seq 30); do
        as alice -np 1 echo fine
        if [ "$status" = 0 ]; then
            expect_out '^fine$'
            ran=$((ran + 1))
        else
            expect_status 125
            one_clear_line '^hvdrun: (host )?localhost: .*/tmp/hvd-20001' 'a directory that changes hands'
            refused=$((refused + 1))
        fi
    done
    there pkill -KILL -u bob python3
    wait $bob
    echo "# of alice's jobs $ran ran and $refused were refused"
    [ $refused -ge 1 ] || fail 'bob was never in the way'
    expect_no "$T/racing" '^caught'
    expect_same '' "$(there find /home/bob /tmp/hvd-20001.aside -user alice 2> /dev/null)" 'what alice made there'
    there rm -rf /tmp/hvd-20001 /tmp/hvd-20001.aside
    as alice -np 1 echo fine
    expect_status 0
    agent_is_the_first
    all_over
    shut
}

# Root's hvdctl goes through the directories of all users: alice lays traps for it beside a job of hers, and for her own next jobs, which sweep.
slow_traps_beside_a_job() {
    boot_with_stranger
    local alice i
    start_job
    there mkdir -m 700 /root/secret
    stranger alice traps /tmp/hvd-20001 /root/secret > "$T/trapping" 2> "$T/trapping.err" &
    alice=$!
    until_true 10 grep -q trapping "$T/trapping" || fail "$(cat "$T/trapping.err")"
    for i in 1 2 3 4 5; do
        run timeout 20 "$machine" exec /usr/local/bin/hvdctl ps
        [ "$status" != 124 ] || fail 'hvdctl ps waits'
        expect_out "$(leases | sed 's/^hvd-//')"
        ! LC_ALL=C grep -q '[^[:print:][:space:]]' "$T/out" "$T/err" || fail 'what a trap says steers the terminal'
        as alice -np 1 echo fine
        expect_status 0
    done
    there test -d /root/secret || fail 'root swept what alice named'
    there pkill -KILL -u alice python3
    wait $alice
    there sh -c 'cd /tmp/hvd-20001 && rm -rf trap-* new old link' # hers to remove: no job made them
    as alice -np 1 echo fine
    expect_status 0
    job_goes_on_to_its_end
    shut
}

# 30 listeners of alice that accept and say nothing: five seconds for all of them together, and a longer name that begins like that of bob's job.
slow_silent_sessions_hold_up_no_hvdctl() {
    boot_with_stranger
    local own begin
    start_as bob -np 1 sh -c 'echo ready; exec sleep 60'
    until_job '^ready'
    own=$(leases | sed 's/^hvd-//')
    : > "$T/silent"
    cat > "$T/silent.py" << 'END'
import os, socket, sys, time
os.makedirs("/tmp/hvd-20001", 0o700, exist_ok=True)
kept = []
for name in [sys.argv[1] + "-x-0"] + ["1-%d-0" % i for i in range(30)]:
    os.mkdir("/tmp/hvd-20001/" + name, 0o700)
    kept.append(socket.socket(socket.AF_UNIX))
    kept[-1].bind("/tmp/hvd-20001/" + name + "/status")
    kept[-1].listen(8)
print("silent", flush=True)
time.sleep(60)
END
    "$machine" as alice /usr/bin/python3 "$T/silent.py" "$own" > "$T/silent" 2>&1 &
    until_true 10 grep -q silent "$T/silent" || fail "$(cat "$T/silent")"
    begin=$SECONDS
    run timeout 30 "$machine" exec /usr/local/bin/hvdctl ps
    expect_status 0
    expect_out "$own"
    expect_err '30 more jobs were not asked'
    [ $((SECONDS - begin)) -le 10 ] || fail "it took $((SECONDS - begin)) s"
    run timeout 30 "$machine" exec /usr/local/bin/hvdctl status "$own"
    expect_status 0
    expect_out "^job $own of bob: running"
    run timeout 30 "$machine" exec /usr/local/bin/hvdctl kill "$own"
    expect_status 0
    stop_job
    there pkill -KILL -u alice python3
    wait
    shut
}

# ---- a date that jumps ---------------------------------------------------------------------------------------------------------------
# jumping COMMAND...: with a date that is a day off now and then, to and fro
jumping() {
    LD_PRELOAD=$BUILD/tests/clock-jumps.so "$@"
}

slow_a_date_that_jumps() {
    [ -z "$E2E_SANITIZE" ] || skip "what is preloaded must not be found before a sanitizer"
    local agents agent
    # shellcheck disable=SC2016
    jumping hvd --agent job -np 1 sh -c 'for i in 1 2 3 4 5 6 7 8 9; do date +%s; sleep 0.07; done'
    expect_status 0
    [ $(($(sort -n "$T/out" | tail -n 1) - $(sort -n "$T/out" | head -n 1))) -gt 80000 ] || fail 'the date does not jump'
    mark_time
    hvd --agent job --heartbeat-timeout 1 -np 2 "$BUILD/tests/steps" 400
    expect_status 0
    mv "$T/out" "$T/wanted"
    jumping hvd --agent job --heartbeat-timeout 1 --stall-check-warning-time-seconds 1 -np 2 "$BUILD/tests/steps" 400
    expect_status 0
    expect_no_err
    expect_same "$(sort "$T/wanted")" "$(sort "$T/out")" 'what was reduced'
    mark_time
    jumping hvd --agent job --timeout 2 -np 1 sleep 50
    expect_status 124
    expect_within 6
    [ "${EPOCHREALTIME/./}" -ge $((since + 2000000)) ] || fail '--timeout 2 ended the job too early'
    # An agent that is silent is noticed by its heartbeats.
    jumping start --agent job --heartbeat-timeout 2 -np 1 sh -c 'echo ready; exec sleep 50'
    until_out 10 '^ready'
    agents=$(descendants "$pid")
    mark_time
    for agent in $agents; do
        [ "$(cat "/proc/$agent/comm")" != hvdagent ] || kill -STOP "$agent"
    done
    stop_status
    expect_status 125
    expect_within 12
    [ "${EPOCHREALTIME/./}" -ge $((since + 1000000)) ] || fail 'it was noticed before the heartbeats said so'
}

slow_leases_and_a_date_that_jumps() {
    [ -z "$E2E_SANITIZE" ] || skip "what is preloaded must not be found before a sanitizer"
    boot 'request_timeout: 1'
    cp "$BUILD/tests/clock-jumps.so" "$T"
    there install -m 755 "$T/clock-jumps.so" /usr/local/lib # the agent does not see our directory
    there systemctl set-environment LD_PRELOAD=/usr/local/lib/clock-jumps.so # of the agent and of all sessions
    start_job
    there grep -q clock-jumps "/proc/$(agent_pid)/maps" || fail 'the agent sees the true date'
    there grep -q clock-jumps "/proc/$(there pgrep -u alice -x hvdagent | tail -n 1)/maps" || fail 'the session sees the true date'
    sleep 2
    expect_same 1 "$(leases | wc -l)" 'the leases'
    mark_time
    as bob --wait=3 -np 2 touch "$T/started"
    expect_status 125
    expect_within 10
    [ "${EPOCHREALTIME/./}" -ge $((since + 3000000)) ] || fail '--wait=3 ended too early'
    there kill -KILL "$(agent_pid)"
    until_true 10 agent_started 1 || fail 'it was not started again'
    as bob -np 2 touch "$T/started"
    expect_status 125
    expect_err 'busy'
    [ ! -e "$T/started" ] || fail 'the command was started'
    # Whoever says nothing is still sent away in time.
    timeout 20 "$machine" as bob perl -MIO::Socket::UNIX -e '$c = IO::Socket::UNIX->new("/run/hvd/agent.sock"); exit(sysread($c, $b, 1) ? 1 : 0)' || fail 'a silent connection was not closed'
    there systemctl show -p NRestarts --value hvdagent.service | grep -qx 1 || fail 'the watchdog ended it'
    touch "$T/go"
    stop_job
    expect_status 0
    expect_out '^done$'
    all_over
    shut
}

# All that libraries and programs of ours would look at, in the environment of whoever asks: the session and the agent have none of it.
friends() { # DIR that the values name
    local name values=()
    for name in LD_LIBRARY_PATH GCONV_PATH LOCPATH NLSPATH HOSTALIASES TMPDIR TZDIR MALLOC_TRACE OPENSSL_CONF OPENSSL_MODULES OPENSSL_ENGINES SSL_CERT_FILE \
        SSL_CERT_DIR SSLKEYLOGFILE BASH_ENV ENV PYTHONPATH PERL5LIB NCCL_CONF_FILE NCCL_NET_PLUGIN NCCL_TOPO_FILE PMIX_MCA_mca_base_component_path PMIX_INSTALL_PREFIX \
        OMPI_MCA_mca_base_component_path HWLOC_XMLFILE HWLOC_PLUGINS_PATH SYSTEMD_UNIT_PATH DBUS_SYSTEM_BUS_ADDRESS NOTIFY_SOCKET XDG_CONFIG_HOME CANARY; do
        values+=("$name=$1/$name")
    done
    values+=("LD_PRELOAD=$1/jumps.so" GLIBC_TUNABLES=glibc.malloc.check=3 MALLOC_PERTURB_=7 LISTEN_FDS=5 WATCHDOG_USEC=1)
    cp "$BUILD/tests/clock-jumps.so" "$1/jumps.so"
    chmod 755 "$1/jumps.so"
    # shellcheck disable=SC2016
    run timeout 30 "$machine" as alice env "${values[@]}" /usr/local/bin/hvdrun -np 1 sh -c 'echo worker "$CANARY"; tr "\0" "\n" < /proc/$PPID/environ | sed "s/^/session /"; sed "s/^/session /" /proc/$PPID/maps'
    expect_status 0
    expect_out '^worker .*/CANARY$'
    expect_out '^session PATH='
    expect_no "$T/out" '^session .*(canary|LD_|GLIBC_TUNABLES|MALLOC_|LISTEN_|WATCHDOG)'
    there cat "/proc/$(agent_pid)/environ" "/proc/$(agent_pid)/maps" | tr '\0' '\n' > "$T/agent"
    grep -q hvdagent "$T/agent" || fail 'the agent was not looked at'
    expect_no "$T/agent" '(canary|^LD_|GLIBC_TUNABLES|MALLOC_)'
}

# ---- when something is short ---------------------------------------------------------------------------------------------------------
slow_a_full_disk_refuses_jobs_and_ends_none() {
    boot
    there mount -t tmpfs -o size=8k,mode=700 full /run/hvd/leases
    start_job
    there sh -c 'cat /dev/zero > /run/hvd/leases/full' 2> /dev/null
    as bob -np 1 touch "$T/started"
    expect_status 125
    one_clear_line 'the managed agent refuses: .*No space left on device' 'a full disk'
    [ ! -e "$T/started" ] || fail 'the command was started'
    there rm /run/hvd/leases/full
    as bob -np 1 true
    expect_status 0
    agent_is_the_first
    job_goes_on_to_its_end
    shut
}

slow_an_agent_without_descriptors() {
    boot 'request_timeout: 2'
    there mkdir -p /etc/systemd/system/hvdagent.service.d
    there sh -c 'printf "[Service]\nLimitNOFILE=24\n" > /etc/systemd/system/hvdagent.service.d/test.conf'
    there systemctl daemon-reload
    start_job
    # shellcheck disable=SC2016
    timeout 40 "$machine" as bob perl -MIO::Socket::UNIX -e 'push @c, IO::Socket::UNIX->new("/run/hvd/agent.sock") for 1 .. 60; print "open\n"; sleep 1' > "$T/open" &
    sleep 0.5
    as alice -np 1 echo fine
    expect_status 0
    expect_out '^fine$'
    wait -n
    there journalctl -u hvdagent -o cat | grep -q 'cannot accept connections: Too many open files' || fail 'it was not short of descriptors'
    [ "$(complaints)" -le 6 ] || fail "$(complaints) lines in the journal"
    agent_is_the_first
    job_goes_on_to_its_end
    shut
}

lease_of_one() {
    [ "$(leases | wc -l)" = 1 ]
}

# It gets not a page more than it has: requests are answered, refused or lost with one line, and its jobs go on. With memory again all is as before.
slow_an_agent_without_memory() {
    [ -z "$E2E_SANITIZE" ] || skip "a sanitizer ends what has no memory"
    boot 'request_timeout: 2'
    start_job
    local size agent refused=0
    agent=$(agent_pid)
    size=$(there sed -n 's/^VmSize:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$agent/status")
    there prlimit --pid "$agent" --as=$((size * 1024 - 4096))
    for _ in 1 2 3 4; do
        # shellcheck disable=SC2016
        timeout 40 "$machine" as alice perl -MIO::Socket::UNIX -e '$SIG{PIPE} = "IGNORE"; for (1 .. 60) { my $c = IO::Socket::UNIX->new("/run/hvd/agent.sock") or next; $c->autoflush(1); print $c pack("VCCCC", 4096, 1, 0, 0, 0), "\0" x 12, "x" x 2000; push @c, $c } sleep 1' &
        sleep 0.5
        as bob -np 1 echo fine
        if [ "$status" = 0 ]; then
            expect_out '^fine$'
        else
            expect_status 125
            one_clear_line '^hvdrun: (host )?localhost: ' 'an agent without memory'
            refused=$((refused + 1))
        fi
        wait -n
        until_true 10 lease_of_one || fail "the leases: $(leases)"
    done
    echo "# $refused of 4 jobs were refused, $(complaints) lines in the journal, $(there systemctl show -p NRestarts --value hvdagent.service) restarts"
    [ "$(complaints)" -le 20 ] || fail "$(complaints) lines in the journal"
    agent_is_the_first
    there prlimit --pid "$agent" --as=unlimited
    as bob -np 1 echo fine
    expect_status 0
    job_goes_on_to_its_end
    shut
}

# bob makes the directory first in which alice's jobs would have theirs, as a link or as his own.
slow_a_directory_that_a_stranger_has_prepared() {
    boot
    local prepared
    for prepared in 'ln -s /home/bob /tmp/hvd-20001' 'mkdir -m 777 /tmp/hvd-20001' 'mkfifo -m 666 /tmp/hvd-20001'; do
        # shellcheck disable=SC2086
        "$machine" as bob $prepared
        as alice -np 1 touch "$T/started"
        expect_status 125
        one_clear_line '^hvdrun: (host )?localhost: .*/tmp/hvd-20001' "$prepared"
        [ ! -e "$T/started" ] || fail 'the command was started'
        there rm -rf /tmp/hvd-20001
    done
    as alice -np 1 echo fine
    expect_status 0
    all_over
    shut
}
