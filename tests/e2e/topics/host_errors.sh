# shellcheck shell=bash disable=SC2034,SC2154
# A host that cannot be used is named with its phase and cause; the others are cleaned up; nothing of the command ran.
hosts=2
limit=45

# It might get its name yet: said at once, waited for.
case_unknown_host() {
    host_error '^hvdrun: no-such-host.invalid does not resolve yet .*; trying until 2 s after the start' \
        --start-timeout 2 -H $H1:1,no-such-host.invalid:1 touch "$T/started"
    expect_err '^hvdrun: no-such-host.invalid \(resolve: .*\): the workers did not start within 2 s'
    expect_err 'hint: check the spelling, DNS'
    expect_within 5
}

case_unknown_hosts_are_told_in_one_line() {
    local names
    names=$(printf 'pod-%d.invalid:1,' $(seq 20))
    hvd --start-timeout 1 -H "${names%,}" touch "$T/started"
    expect_status 125
    expect_count 1 'do not resolve yet' "$T/err"
    expect_err '^hvdrun: pod-1.invalid, .* and 12 others do not resolve yet'
}

case_an_unknown_host_is_not_waited_for_when_another_fails() {
    mark_time
    hvd -p 1 -H $H2:1,no-such-host.invalid:1 touch "$T/started"
    expect_status 125
    expect_fault 'no-such-host.invalid \(resolve\): (cannot resolve its name|no such host): '
    expect_within 12
}

case_interrupted_while_a_name_is_waited_for() {
    start -H no-such-host.invalid:1 touch "$T/started"
    until_true 5 grep -q 'does not resolve yet' "$T/err" || fail 'nothing was said'
    mark_time
    kill -INT $pid
    stop_status
    expect_status 130
    expect_within 2
}

# /etc/hosts of this one hvdrun gains the name while it waits.
case_a_host_that_gets_its_name_later() {
    needs_kind ns
    use_home
    sed -n 's/^node1,[^ ]*/late-node/p' "$HOME/.ssh/known_hosts" >> "$HOME/.ssh/known_hosts"
    cp /etc/hosts "$T/hosts"
    # shellcheck disable=SC2016
    unshare -m bash -c 'mount --bind "$1" /etc/hosts; shift; exec "$@"' bash "$T/hosts" \
        "$HVDRUN" --verbose -H $H2:1,late-node:1 hostname > "$T/out" 2> "$T/err" &
    pid=$!
    until_true 5 grep -q 'late-node does not resolve yet' "$T/err" || fail 'nothing was said'
    sleep 0.5
    [ ! -s "$T/out" ] || fail "it ran without its host: $(cat "$T/out")"
    sed -n 's/ node1$/ late-node/p' /etc/hosts >> "$T/hosts"
    mark_time
    stop_status
    mend_home
    expect_status 0
    expect_within 5
    expect_sorted node1 node2
    expect_err 'late-node: its name has an address now'
}

case_closed_port() {
    host_error "$H2.*(refused|connect)" -p 1 -H $H2:1 touch "$T/started"
    expect_within 12
}

case_a_host_that_does_not_answer() {
    needs_kind ns
    host_error '10.91.200.200 .connect.: the workers did not start within 3 s' --start-timeout 3 \
        -H $H1:1,10.91.200.200:1 touch "$T/started"
    expect_within 8
    expect_err 'hint: no answer: is the host down, or a firewall between'
}

# A packet that is dropped has no answer; hvdrun does not wait for --start-timeout.
case_a_host_behind_a_firewall() {
    needs_kind ns
    ip neigh replace 10.91.200.201 lladdr 02:00:00:00:ff:fe nud permanent dev br0 # nobody has that one
    host_error '^hvdrun: 10.91.200.201: (connect: )?no answer from 10.91.200.201:22 for 8 s .host down, or a firewall\?.' \
        -H $H1:1,10.91.200.201:1 touch "$T/started"
    ip neigh del 10.91.200.201 dev br0
    expect_within 12
}

case_changed_host_key() {
    use_home
    sed -i "s/^\(\[\?${H2}[^ ]*\) .*/\1 $(wrong_key)/" "$HOME/.ssh/known_hosts"
    host_error "$H2.*key" -H $H1:1,$H2:1 touch "$T/started"
    mend_home
}

case_unknown_host_key() {
    use_home
    : > "$HOME/.ssh/known_hosts"
    host_error "key" -H $H1:1 touch "$T/started"
    expect_err 'known_hosts'
    mend_home
}

case_no_accepted_key() {
    use_home
    ssh-keygen -q -t ed25519 -N '' -f "$T/other"
    rm -f "$HOME/.ssh/id_ed25519"*
    reach=("${reach[@]/$HOSTS_DIR\/id/$T/other}")
    [ "$KIND" = loop ] || reach=(-i "$T/other")
    host_error "$H1.*(auth|key|accept|permission)" -H $H1:1 touch "$T/started"
    expect_err 'other'
    mend_home
}

case_agent_missing() {
    host_error "$H1" --agent-path /no/such/hvdagent -H $H1:1 touch "$T/started"
    expect_err '/no/such/hvdagent'
    hvd --agent-path /no/such/hvdagent -H $H1:1,$H2:1 touch "$T/started"
    expect_status 125
    expect_fault "$H1, $H2 \(agent start\): no hvdagent: looked for /no/such/hvdagent install hvdrun on that host"
}

# It says another version and another protocol than the agent behind it: both ends are named.
case_agent_of_another_version() {
    local version
    version=$("$HVDRUN" --version | grep -oE '[0-9]+\.[0-9]+\.[0-9]+' | head -n 1)
    cat > "$T/hvdagent" << END
#!/usr/bin/python3
import os, subprocess, sys
agent = subprocess.Popen(["$BUILD/hvdagent"] + sys.argv[1:], stdout=subprocess.PIPE)
ours = b"\x0a\x05$version\x10\x01"
while said := os.read(agent.stdout.fileno(), 65536):
    other = said.replace(ours, b"\x0a\x059.9.9\x10\x63").replace(b"\x98\x12\x01", b"\x98\x12\x63")
    os.write(1, other)
END
    chmod +x "$T/hvdagent"
    host_error 'hvdagent there is version 9\.9\.9 \(protocol 99\), this hvdrun is [0-9.]+ \(protocol 1\)' --agent-path "$T/hvdagent" -H $H1:1 touch "$T/started"
    expect_err "$version"
}

# The same agent but for its version, in a binary copy: the protocol is the same, so the job runs.
case_agent_of_another_release() {
    local version
    version=$("$HVDRUN" --version | grep -oE '[0-9]+\.[0-9]+\.[0-9]+' | head -n 1)
    sed "s/${version//./\\.}/9${version#?}/g" "$BUILD/hvdagent" > "$T/hvdagent"
    chmod +x "$T/hvdagent"
    hvd --agent-path "$T/hvdagent" -np 2 -H $H1:2 echo runs
    expect_status 0
    expect_sorted runs runs
}

case_an_agent_that_is_none() {
    printf '#!/bin/sh\necho this is no agent\nexit 3\n' > "$T/fake"
    chmod +x "$T/fake"
    host_error "$H1" --agent-path "$T/fake" -H $H1:1 touch "$T/started"
    expect_err 'this is no agent'
}

case_an_agent_that_says_nothing() {
    # It goes at the end of its input, as an agent does: sshd itself does not end what it started.
    printf '#!/bin/sh\nexec cat > /dev/null\n' > "$T/fake"
    chmod +x "$T/fake"
    host_error "$H1" --start-timeout 2 --agent-path "$T/fake" -H $H1:1 touch "$T/started"
    expect_within 8
    leave_within=5
}

case_command_not_found_on_one_host() {
    needs_kind ns
    local tool=/usr/local/bin/only-on-node1
    on 1 "printf '#!/bin/sh\nexec sleep 60\n' > $tool; chmod +x $tool"
    hvd -H $H1:1,$H2:1 $tool
    on 1 "rm $tool"
    expect_status 127
    expect_err "$H2"
}

case_command_not_executable_on_one_host() {
    needs_kind ns
    local tool=/usr/local/bin/odd
    on 1 "printf '#!/bin/sh\nexec sleep 60\n' > $tool; chmod +x $tool"
    on 2 "echo > $tool"
    hvd -H $H1:1,$H2:1 $tool
    on 1 "rm $tool"
    on 2 "rm $tool"
    expect_status 126
    expect_err "$H2"
}

case_wrong_wdir_on_one_host() {
    needs_kind ns
    on 1 'mkdir /srv/here'
    hvd --wdir /srv/here -H $H1:1,$H2:1 sleep 60
    on 1 'rmdir /srv/here'
    expect_status 125
    expect_err "$H2"
    expect_err '/srv/here'
}

case_an_rsh_command_that_fails() {
    printf '#!/bin/sh\necho "gateway says no" >&2\nexit 255\n' > "$T/my-rsh"
    chmod +x "$T/my-rsh"
    host_error 'node1' --rsh "$T/my-rsh" -H node1:1 touch "$T/started"
    expect_err 'gateway says no'
}

case_an_rsh_command_that_does_not_exist() {
    hvd --rsh "/no/such/rsh" -H node1:1 touch "$T/started"
    [ "$status" = 125 ] || [ "$status" = 2 ] || fail "exit status $status"
    expect_err '/no/such/rsh'
}

case_more_ranks_than_auto_slots() {
    hvd -np 99 -H $H1,$H2 touch "$T/started"
    [ "$status" = 2 ] || fail "exit status $status, not 2"
    expect_err '99'
    [ ! -e "$T/started" ] || fail "started all the same"
}

use_home() { # keys and known_hosts that the case may spoil
    if [ "$KIND" = ns ]; then
        cp -r "$HOME/.ssh" "$T/ssh.saved"
        # shellcheck disable=SC2064
        trap "rm -rf '$HOME/.ssh' '$XDG_RUNTIME_DIR'; cp -r '$T/ssh.saved' '$HOME/.ssh'" EXIT
    else
        cp -r "$HOME" "$T/home"
        export HOME=$T/home
    fi
}

# nothing_left reaches the hosts by ssh: before that, what was spoilt comes back.
mend_home() {
    [ "$KIND" != ns ] || cp -r "$T/ssh.saved/." "$HOME/.ssh/"
}

wrong_key() {
    ssh-keygen -q -t ed25519 -N '' -f "$T/wrong"
    cut -d' ' -f1,2 "$T/wrong.pub" | sed 's,/,\\/,g'
}
