# shellcheck shell=bash disable=SC2016,SC2034,SC2154
# hvdctl on the host where hvdrun runs, and on the hosts of the job.
hosts=2
limit=40

CTL=$BUILD/hvdctl
ticking='echo "ready $RANK"; trap "echo got TERM; exit 9" TERM; while :; do sleep 0.1; done'

ctl() {
    "$CTL" "$@" > "$T/shown" 2> "$T/shown.err" < /dev/null
    status=$?
}

case_all_hosts_are_shown_where_hvdrun_runs() {
    start --job-name wide -np 4 -H "$H1:2,$H2:2" sh -c "$ticking"
    until_out 15 ready 4
    ctl ps
    expect_count 2 '^wide-[0-9a-f]{12} .* 2/4 running ' "$T/shown"
    expect_count 1 "^wide-[0-9a-f]{12} .* $H1 +2/4 running " "$T/shown"
    expect_count 1 "^wide-[0-9a-f]{12} .* $H2 +2/4 running " "$T/shown"
    ctl status wide
    expect_count 4 '^ +[0-3] +[0-9]+ [a-z ]+ ' "$T/shown"
    ctl logs wide
    expect_count 4 '^[0-3]: ready [0-3]$' "$T/shown"
    ctl top -n 1
    expect_count 4 '^ +[0-3] +[0-9]+ [a-z ]+ ' "$T/shown"
    if [ "$KIND" = ns ]; then
        ctl metrics
        expect_no "$T/shown" 'job="wide'
    fi
    ctl kill wide
    expect_status 0
    stop_status
    expect_status 125
    expect_count 4 'got TERM' "$T/out"
    ctl ps
    expect_no "$T/shown" '^wide-'
}

# Where no hvdrun is, the session answers for its host.
case_a_host_of_the_job_shows_its_part() {
    needs_kind ns
    start --job-name part -np 2 -H "$H1:1,$H2:1" sh -c "$ticking"
    until_out 15 ready 2
    on 2 "$CTL ps" > "$T/shown"
    expect_count 1 "^part-[0-9a-f]{12} .* 1/2 running " "$T/shown"
    expect_count 1 "^part-[0-9a-f]{12} .* $H2 +1/2 running " "$T/shown"
    on 2 "$CTL kill part"
    stop_status
    expect_status 125
    expect_err "^hvdrun: host $H2: .* ended the job with hvdctl$"
}
