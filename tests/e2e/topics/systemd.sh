# shellcheck shell=bash disable=SC2034,SC2154
# The managed agent under a real systemd, as `make install` leaves it: hvdrun of ordinary users on that host, who reach it through
# attach as over SSH. Each case has a host of its own, for half a second.
needs_root=1
limit=60
# shellcheck source=tests/e2e/systemd_host.sh
. "$top/tests/e2e/systemd_host.sh"

# ---- starting -----------------------------------------------------------------------------------------------------------
case_a_job_of_an_ordinary_user_through_the_socket() {
    boot
    expect_same inactive "$(there systemctl is-active hvdagent.service)" 'the agent before anybody asks'
    # shellcheck disable=SC2016
    as alice --verbose -np 2 sh -c 'id -un; sed -n "s/^0:://p" /proc/self/cgroup'
    expect_status 0
    expect_count 2 '^alice$' "$T/out"
    expect_count 2 '^/hvd.slice/hvd-[0-9a-f-]*\.service/hvdjob-' "$T/out"
    expect_err 'slots 2, containment systemd unit'
    expect_same active "$(there systemctl is-active hvdagent.service)" 'the agent afterwards'
    all_over
    shut
}

slow_what_is_installed_is_sound() {
    boot
    local unit
    for unit in hvdagent.service hvdagent.socket hvd.slice; do
        there systemd-analyze verify --man=no "/usr/local/lib/systemd/system/$unit" > "$T/verify" 2>&1 || fail "$unit: $(cat "$T/verify")"
        [ ! -s "$T/verify" ] || fail "$unit: $(cat "$T/verify")"
    done
    there systemd-analyze security --offline=true --threshold=35 /usr/local/lib/systemd/system/hvdagent.service > "$T/security" ||
        fail "$(tail -n 1 "$T/security")"
    echo "# $(tail -n 1 "$T/security" | grep -oE 'Overall.*[0-9.]+')"
    there getent group hvd > /dev/null || fail "there is no group hvd"
    expect_same 'root 700' "$(there stat -c '%U %a' /run/hvd/leases)" 'who owns the leases'
    expect_same 'root 666' "$(there stat -c '%U %a' /run/hvd/agent.sock)" 'who owns the socket'
    shut
}

slow_the_session_has_the_groups_of_its_user_and_a_clean_environment() {
    [ -z "$E2E_SANITIZE" ] || skip "its options are in the environment"
    boot
    there usermod -aG audio alice
    # shellcheck disable=SC2016
    as alice -np 1 sh -c 'id; tr "\0" "\n" < /proc/$PPID/environ; echo slots; ls -l /proc/$PPID/fd'
    expect_status 0
    expect_out '^uid=20001\(alice\) gid=20001\(alice\) groups=20001\(alice\),29\(audio\)$'
    sed '/^slots$/,$d' "$T/out" | grep -vE '^(uid=|LANG=|PATH=|HOME=|LOGNAME=|USER=|SHELL=|INVOCATION_ID=|SYSTEMD_EXEC_PID=)' > "$T/more"
    expect_same '' "$(cat "$T/more")" 'what else is in the environment of the session'
    shut
}

slow_without_a_managed_agent() {
    boot
    there systemctl stop hvdagent.socket
    as alice --verbose -np 1 echo fine
    expect_status 0
    expect_out '^fine$'
    expect_no "$T/err" 'systemd unit'
    as alice --agent managed -np 1 touch "$T/started"
    expect_status 125
    one_clear_line '^hvdrun: (host )?localhost: .*there is no managed agent on this host' 'no managed agent'
    there systemctl start hvdagent.socket
    as alice --verbose --agent job -np 1 echo fine
    expect_status 0
    expect_no "$T/err" 'systemd unit'
    shut
}

# ---- who may, and with how much ---------------------------------------------------------------------------------------------
refused() { # REGEX USER ARGUMENTS of hvdrun
    local wanted=$1
    shift
    as "$@" touch "$T/started"
    expect_status 125
    one_clear_line "^hvdrun: (host )?localhost: .*the managed agent refuses: $wanted" "$*"
    [ ! -e "$T/started" ] || fail 'the command was started'
}

slow_slots_belong_to_one_job() {
    boot
    start_job
    expect_count 1 '^slots: 1$' <(there sh -c 'cat /run/hvd/leases/*')
    refused 'it is busy: 2 slots are wanted, 1 of 2 are free \(alice 1\)' bob -np 2
    expect_err '^hvdrun: hint: hvdrun --wait waits until they are free$'
    refused '3 slots are wanted, it has 2' bob -np 3
    run timeout 30 "$machine" as bob /usr/local/bin/hvdrun -np 1 echo 'there is room for one'
    expect_status 0
    touch "$T/go"
    stop_job
    expect_status 0
    until_true 10 no_leases || fail "the lease was left: $(leases)"
    as bob -np 2 echo fine
    expect_status 0
    all_over
    shut
}

slow_one_job_right_after_the_other() {
    boot
    # shellcheck disable=SC2016
    run timeout 50 "$machine" as alice sh -c 'for i in $(seq 10); do hvdrun -np 2 true || exit; done'
    expect_status 0
    expect_no "$T/err" .
    all_over
    shut
}

slow_slots_that_are_shared() {
    boot 'share_slots: yes' 'max_jobs_per_user: 1'
    start_job
    refused 'alice runs 1 jobs there, and more are not allowed to a user' alice -np 1
    as bob -np 2 echo fine
    expect_status 0
    touch "$T/go"
    stop_job
    expect_status 0
    all_over
    shut
}

slow_whoever_may_not_is_told() {
    boot 'users: [bob]' 'groups: [audio]'
    refused 'alice may not run jobs there' alice -np 1
    as bob -np 1 true
    expect_status 0
    there usermod -aG audio alice
    as alice -np 1 true
    expect_status 0
    all_over
    shut
}

slow_the_configuration_is_read_again() {
    boot
    start_job
    conf 'slots: 2' 'drain: until Friday'
    there systemctl reload hvdagent.service
    refused 'it is drained: until Friday' bob -np 1
    conf 'slots: many'
    there systemctl reload hvdagent.service
    refused 'it is drained: until Friday' bob -np 1
    there journalctl -u hvdagent -o cat | grep -q 'stays as it was.*agent.conf:1: slots' || fail 'the journal does not say what is wrong'
    conf 'slots: 5'
    there chmod 666 /etc/hvd/agent.conf
    there systemctl reload hvdagent.service
    refused 'it is drained: until Friday' bob -np 1
    there chmod 644 /etc/hvd/agent.conf
    there systemctl reload hvdagent.service
    as bob -np 4 true
    expect_status 0
    touch "$T/go"
    stop_job
    expect_status 0
    all_over
    shut
}

# USER BYTES: a message to the agent, in perl's words; what it answers, with a dot for what cannot be printed
say() {
    # shellcheck disable=SC2016
    timeout 20 "$machine" as "$1" perl -MIO::Socket::UNIX -e '$c = IO::Socket::UNIX->new("/run/hvd/agent.sock"); $m = "'"$2"'"; $c->autoflush(1);
        print $c pack("VCCCC", length $m, 1, 0, 0, 0), "\0" x 12, $m; $a .= $b while sysread $c, $b, 4096; $a =~ s/[^ -~]/./g; print "$a\n"'
}

slow_drained_by_root_and_asked_by_anybody() {
    local drain='\x1a\x0a\x08\x01\x12\x06repair' undrain='\x1a\x00' query='\x12\x00' job
    boot
    start_job
    job=$(leases)
    say alice "$query" | grep -q "alice.*${job#hvd-}.*$job.service" || fail "alice is not told of her job: $(say alice "$query")"
    say bob "$query" | grep -q alice || fail "bob is not told who has slots: $(say bob "$query")"
    ! say bob "$query" | grep -q "${job#hvd-}" || fail "bob is told the name of a job of alice"
    say bob "$drain" | grep -q 'only root may drain a node' || fail 'bob may drain'
    as bob -np 1 true
    expect_status 0
    say root "$drain" | grep -q repair || fail 'root may not drain'
    refused 'it is drained: repair' bob -np 1
    there kill -KILL "$(agent_pid)"
    until_true 10 agent_started 1 || fail 'it was not started again'
    refused 'it is drained: repair' bob -np 1
    say root "$undrain" | grep -q alice || fail 'root may not undrain'
    as bob -np 1 true
    expect_status 0
    touch "$T/go"
    stop_job
    expect_status 0
    all_over
    shut
}

# ---- the agent's own ends ------------------------------------------------------------------------------------------------
slow_the_watchdog_starts_it_again() {
    boot
    there mkdir -p /etc/systemd/system/hvdagent.service.d
    there sh -c 'printf "[Service]\nWatchdogSec=1s\nTimeoutAbortSec=1s\n" > /etc/systemd/system/hvdagent.service.d/test.conf'
    there systemctl daemon-reload
    start_job
    sleep 1.5 # it is fed
    expect_same 0 "$(there systemctl show -p NRestarts --value hvdagent.service)" 'the restarts of an agent that moves'
    there kill -STOP "$(agent_pid)"
    until_true 15 agent_started 1 || fail 'it was not started again'
    refused 'it is busy' bob -np 2
    job_goes_on_to_its_end
    shut
}

slow_stopped_while_a_job_runs() {
    boot
    start_job
    there systemctl stop hvdagent.socket hvdagent.service
    expect_same 1 "$(leases | wc -l)" 'the leases on disk'
    there systemctl start hvdagent.socket
    refused 'it is busy' bob -np 2
    there systemctl stop hvdagent.socket hvdagent.service
    touch "$T/go"
    stop_job
    expect_status 0
    expect_out '^done$'
    expect_same 1 "$(leases | wc -l)" 'the leases on disk that nobody watches'
    there systemctl start hvdagent.service
    all_over
    shut
}

slow_killed_and_replaced_while_a_job_runs() {
    boot
    start_job
    local before
    before=$(leases)
    there sh -c 'cp /usr/local/bin/hvdagent /usr/local/bin/new && mv /usr/local/bin/new /usr/local/bin/hvdagent'
    there kill -KILL "$(agent_pid)"
    until_true 10 agent_started 1 || fail 'it was not started again'
    expect_same "$before" "$(leases)" 'the leases'
    refused 'it is busy' bob -np 2
    run timeout 30 "$machine" as bob /usr/local/bin/hvdrun -np 1 echo fine
    expect_status 0
    touch "$T/go"
    stop_job
    expect_status 0
    all_over
    shut
}

slow_systemd_reads_its_units_or_executes_itself_anew() {
    boot
    start_job
    there systemctl daemon-reload
    refused 'it is busy' bob -np 2
    expect_same 0 "$(there systemctl show -p NRestarts --value hvdagent.service)" 'restarts'
    there systemctl daemon-reexec
    until_true 10 agent_started 1 || fail 'it was not started again'
    refused 'it is busy' bob -np 2
    job_goes_on_to_its_end
    shut
}

# ---- ends of jobs ----------------------------------------------------------------------------------------------------------
# What the job leaves behind in its cgroup, deaf to SIGTERM and out of its session.
start_stubborn() {
    # shellcheck disable=SC2016
    start_as alice --grace 1 -np 2 sh -c 'trap "" TERM; setsid sh -c "trap \"\" TERM; while :; do sleep 1; done" & echo ready; while :; do sleep 1; done'
    until_job '^ready' 2
}

ends_with() { # STATUS REGEX
    stop_job
    expect_status "$1"
    expect_err "$2"
    all_over
}

slow_the_guard_is_killed() {
    boot
    start_stubborn
    there kill -KILL "$(there systemctl show -p MainPID --value "$(unit_of_the_job)")"
    ends_with 125 'the guard of the job \(pid [0-9]+\) was killed'
    shut
}

slow_the_session_is_killed() {
    boot
    start_stubborn
    there pkill -KILL -P "$(there systemctl show -p MainPID --value "$(unit_of_the_job)")"
    ends_with 125 'the session of the job \(pid [0-9]+\) was killed by signal 9'
    shut
}

slow_the_bridge_is_killed() {
    boot
    start_stubborn
    there pkill -KILL -f '^/usr/local/bin/hvdagent attach'
    ends_with 125 'host localhost: hvdagent attach, which led to the session of the job, was killed by signal 9 \(Killed\)'
    shut
}

slow_hvdrun_is_killed() {
    boot
    start_stubborn
    there pkill -KILL -x hvdrun
    stop_job
    all_over
    shut
}

slow_the_unit_is_stopped() {
    boot
    start_stubborn
    there systemctl stop "$(unit_of_the_job)"
    ends_with 125 'was asked to end by signal 15'
    shut
}

slow_a_session_that_cannot_start() {
    boot
    there chmod 700 /usr/local/bin/hvdagent
    there cp /usr/local/bin/hvdagent /usr/local/bin/attach
    there chmod 755 /usr/local/bin/attach
    as alice --agent-path /usr/local/bin/attach -np 1 touch "$T/started"
    expect_status 125
    one_clear_line 'the managed agent refuses: systemd did not start the session: failed \(journalctl -u hvd-' 'an agent that cannot be executed'
    all_over
    shut
}

# ---- hostile connections -----------------------------------------------------------------------------------------------------
# PERL: as bob, with knock(): a new connection
hostile() {
    timeout 40 "$machine" as bob perl -MIO::Socket::UNIX -e 'sub knock { my $c = IO::Socket::UNIX->new("/run/hvd/agent.sock"); $c and $c->autoflush(1); $c } $SIG{PIPE} = "IGNORE"; '"$1"
}

slow_a_user_with_too_many_connections() {
    boot 'max_connections: 8' 'request_timeout: 20'
    # shellcheck disable=SC2016
    hostile '$| = 1; push @c, knock() for 1 .. 2; print "open\n"; sleep 3' > "$T/open" &
    local holder=$!
    until_true 5 test -s "$T/open" || fail "no connections"
    as bob -np 1 true
    expect_status 125
    one_clear_line 'the managed agent refuses: uid [0-9]* has 2 connections to it, and gets no more: try again' 'a connection too many'
    # shellcheck disable=SC2016
    there runuser -u bob -- hvdctl node > "$T/ctl" 2>&1 && fail 'hvdctl had a connection too many'
    expect_count 1 'the managed agent refuses: uid [0-9]* has 2 connections' "$T/ctl"
    as alice -np 1 true
    expect_status 0
    wait $holder
    shut
}

slow_connections_of_somebody_hostile() {
    boot 'request_timeout: 1'
    start_job
    # shellcheck disable=SC2016
    {
        hostile '$c = knock(); print $c pack("VCCCC", 0xffffffff, 1, 0, 0, 0), "\0" x 12; exit(sysread($c, $b, 1) ? 1 : 0)' || fail '4 GiB were accepted'
        hostile '$c = knock(); print $c "GET / HTTP/1.0\r\n\r\n", "x" x 100; exit(sysread($c, $b, 1) ? 1 : 0)' || fail 'garbage was accepted'
        hostile '$c = knock(); for (1 .. 30) { print $c "\0" or exit 0; select undef, undef, undef, 0.1 } exit 1' || fail 'a byte at a time was accepted'
        hostile '$c = knock(); print $c pack("VCCCC", 8, 1, 0, 0, 0), "\0" x 12, "\x0a\x06\x08\x01\x12\x02zz"; sysread $c, $b, 4096; exit($b =~ /without its descriptors/ ? 0 : 1)' ||
            fail 'a request without descriptors was accepted'
        hostile 'push @c, knock() for 1 .. 2000; sleep 3; print "open\n"' > "$T/open" &
    }
    local attacker=$!
    sleep 1
    as alice -np 1 echo fine
    expect_status 0
    wait $attacker
    expect_out '^fine$'
    local lines pid_now
    # shellcheck disable=SC2016
    hostile 'for (1 .. 3000) { $c = knock(); print $c pack("VCCCC", 8, 1, 0, 0, 0), "\0" x 12, "\x0a\x06\x08\x01\x12\x02zz"; sysread $c, $b, 4096; close $c } print "asked\n"' > "$T/asked"
    expect_count 1 asked "$T/asked"
    lines=$(there journalctl -o cat -u hvdagent.service | grep -c 'was refused: a request without')
    [ "$lines" -ge 1 ] && [ "$lines" -le 800 ] || fail "3000 refusals are $lines lines in the journal"
    lines=$(complaints)
    [ "$lines" -ge 3 ] && [ "$lines" -le 15 ] || fail "$lines lines in the journal"
    pid_now=$(agent_pid)
    expect_same 0 "$(there systemctl show -p NRestarts --value hvdagent.service)" 'restarts'
    [ "$(there sh -c "ls /proc/$pid_now/fd | wc -l")" -le 20 ] || fail "descriptors were left open"
    echo "# resident, KiB: $(there sed -n 's/^VmRSS:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$pid_now/status")"
    touch "$T/go"
    stop_job
    expect_status 0
    all_over
    shut
}

# A machine may have mounted cgroup2 nowhere; the host then has a cgroup of its own all the same, and nothing of it stays in /.
case_a_machine_without_a_cgroup2_hierarchy() {
    local why before group
    why=$("$machine" can) || skip "no systemd host: $why"
    export SYSTEMD_DIR=$T/host SYSTEMD_BIND=$T SYSTEMD_ROOT=
    # shellcheck disable=SC2016 # of the inner shell
    local bare=(unshare -m sh -c 'mount --make-rprivate / && mount -t tmpfs -o mode=755 none /sys/fs/cgroup && exec "$@"' sh timeout 30 "$machine")
    trap '"${bare[@]}" down; rm -rf "$XDG_RUNTIME_DIR"' EXIT
    before=$(ls -A /)
    "${bare[@]}" up || fail "it does not boot"
    group=hvd-systemd.$(stat -c %i "$SYSTEMD_DIR")
    expect_same "0::/$group/init.scope" "$(grep '^0:' "/proc/$(cat "$SYSTEMD_DIR/pid")/cgroup" | sed "s|^0::.*/$group|0::/$group|")" 'the cgroup of its systemd'
    mark_time
    "${bare[@]}" down || fail "it is not removed"
    expect_within 5
    expect_same "$before" "$(ls -A /)" 'what is in /'
    expect_same '' "$(find /sys/fs/cgroup -maxdepth 2 -name "$group")" 'what is left of its cgroups'
}

slow_what_install_says_of_units_in_another_prefix() {
    local why
    why=$("$machine" can) || skip "no systemd host: $why"
    [ -e "$BUILD/modules/systemd.so" ] || skip "this build has no libsystemd (apt-get install libsystemd-dev)"
    [ -z "$E2E_SANITIZE" ] || skip 'its sandbox is not for sanitizers'
    export SYSTEMD_DIR=$T/host SYSTEMD_BIND=$T SYSTEMD_ROOT=$T/root
    MAKEFLAGS='' make -C "$top" BUILD="$BUILD" DESTDIR="$T/root" PREFIX=/opt/hvd install > "$T/make" 2>&1 || fail "make install: $(tail -n 3 "$T/make")"
    MAKEFLAGS='' make -s -C "$top" BUILD="$BUILD" PREFIX=/opt/hvd unit-note | sed -n 's/^    //p' > "$T/commands"
    trap '"$machine" down; rm -rf "$XDG_RUNTIME_DIR"' EXIT
    timeout 30 "$machine" up || fail 'it does not boot'
    echo 'slots: 3' | there sh -c 'cat > /opt/hvd/etc/hvd/agent.conf'
    there sh -e "$T/commands" > "$T/said" 2>&1 || fail "these commands fail: $(cat "$T/commands" "$T/said")"
    run timeout 30 "$machine" as alice /opt/hvd/bin/hvdrun --agent managed --verbose sh -c 'echo ran'
    expect_status 0
    expect_count 3 '^ran$' "$T/out"
    shut
}
