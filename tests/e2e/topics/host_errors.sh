# shellcheck shell=bash disable=SC2034,SC2154
# A host that cannot be used is named with its phase and cause; the others are cleaned up; nothing of the command ran.
hosts=2
limit=45

case_unknown_host() {
    host_error 'no-such-host.invalid' -H $H1:1,no-such-host.invalid:1 touch "$T/started"
    expect_err 'resolve|not known|unknown'
    expect_within 12
}

case_closed_port() {
    host_error "$H2.*(refused|connect)" -p 1 -H $H2:1 touch "$T/started"
    expect_within 12
}

case_a_host_that_does_not_answer() {
    needs_kind ns
    host_error '10.91.200.200' --start-timeout 3 -H $H1:1,10.91.200.200:1 touch "$T/started"
    expect_within 8
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
    expect_err "^hvdrun: $H1 +agent start +no hvdagent: looked for /no/such/hvdagent"
    expect_err "^hvdrun: $H2 +agent start +no hvdagent: looked for /no/such/hvdagent"
}

case_agent_of_another_version() {
    # The same agent but for its version, in a binary copy: both are named.
    local version other
    version=$("$HVDRUN" --version | grep -oE '[0-9]+\.[0-9]+\.[0-9]+' | head -n 1)
    other=9${version#?}
    sed "s/${version//./\\.}/$other/g" "$BUILD/hvdagent" > "$T/hvdagent"
    chmod +x "$T/hvdagent"
    cp -r "$BUILD/modules" "$T/modules" 2>/dev/null
    host_error "$other" --agent-path "$T/hvdagent" -H $H1:1 touch "$T/started"
    expect_err "$version"
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
