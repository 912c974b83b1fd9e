# shellcheck shell=bash disable=SC2034,SC2154
# hvdctl and the managed agent: what it gives to whom, and that it takes no new jobs.
needs_root=1
limit=60
# shellcheck source=tests/e2e/systemd_host.sh
. "$top/tests/e2e/systemd_host.sh"

ctl_as() { # USER ARGUMENTS
    local who=$1
    shift
    timeout 20 "$machine" as "$who" /usr/local/bin/hvdctl "$@" > "$T/shown" 2> "$T/shown.err" < /dev/null
    status=$?
}

case_a_node_is_shown_and_drained() {
    boot
    start_job
    ctl_as alice node
    expect_status 0
    expect_count 1 '^managed agent [0-9.]+: 1 of 2 slots taken$' "$T/shown"
    expect_count 1 '^[0-9]+-[0-9a-f]+ +alice +1 ' "$T/shown"
    ctl_as bob node
    expect_count 1 '^- +alice +1 ' "$T/shown"
    ctl_as bob drain
    expect_status 1
    expect_count 1 '^hvdctl: .*root' "$T/shown.err"
    there /usr/local/bin/hvdctl drain --reason "a fan's noise" || fail "root may not drain"
    there systemctl restart hvdagent.service
    as bob -np 1 true
    expect_status 125
    expect_err "drained: a fan's noise"
    there /usr/local/bin/hvdctl node --json > "$T/shown"
    expect_count 1 "\"drained\": \"a fan's noise\"" "$T/shown"
    there /usr/local/bin/hvdctl undrain || fail "root may not undrain"
    as bob -np 1 true
    expect_status 0
    touch "$T/go"
    stop_job
    expect_status 0
    all_over
    shut
}

case_where_there_is_no_managed_agent() {
    [ ! -e /run/hvd/agent.sock ] || skip "this machine has one"
    run "$BUILD/hvdctl" node
    expect_status 1
    expect_err '^hvdctl: there is no managed agent on this host$'
    run "$BUILD/hvdctl" drain '-oProxyCommand=x'
    expect_status 2
    run "$BUILD/hvdctl" drain 'node7;x'
    expect_status 2
    expect_err '^hvdctl: that is no name of a host: node7;x$'
}
