# shellcheck shell=bash disable=SC2034,SC2154
# What one ordinary user of a host can do to the jobs of another and to the managed agent: alice has a job, bob is the stranger. Each
# attempt is refused or survived, and her job does not notice. SECURITY.md says what each case stands for.
needs_root=1
limit=60
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
