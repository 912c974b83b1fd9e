# shellcheck shell=bash disable=SC2016,SC2034,SC2154
# The job's cgroup, which somebody else removes between Hello and Spawn.
needs_root=1

# Two hosts that are this machine, in a cgroup of the test's own. The second one's agent starts when the cgroup of the first
# one's has gone; $1 is what is done then.
removed_between() { # COMMAND LINE, OPTIONS and command for hvdrun
    local tree
    tree=$(awk '/ - cgroup2 / { print $5; exit }' /proc/self/mountinfo)
    group=$tree/hvd-test-$$
    [ -d "$tree" ] || skip 'the kernel gives no cgroup (v2) of our own here'
    mkdir "$group" 2> /dev/null || skip 'the kernel lets no cgroup (v2) be made here'
    printf '%s\n' '#!/bin/sh' 'host=$1; shift' "group=$group" \
        '[ $host = first ] || until rmdir "$group"/hvdjob-*-0/processes "$group"/hvdjob-*-0 2> /dev/null; do [ $((n += 1)) -lt 1000 ] || exit 9; sleep 0.01; done' \
        "[ \$host = first ] || { $1; }" 'exec sh -c "$*"' > "$T/rsh"
    chmod +x "$T/rsh"
    run bash -c 'echo $$ > "$0/cgroup.procs"; exec "$@"' "$group" "$HVDRUN" --rsh "$T/rsh {host}" -H first:1,second:1 "${@:2}"
    until_true 5 rmdir "$group" || fail "cgroups were left: $(ls "$group")"
}

case_a_cgroup_that_was_removed_is_made_again() {
    removed_between : sh -c 'sed -n "s,^0::.*/hvdjob-.*-\([01]\)/processes$,cgroup \1,p" /proc/self/cgroup'
    expect_status 0
    expect_sorted 'cgroup 0' 'cgroup 1'
    expect_err "^hvdrun: warning: first: somebody has removed the job's cgroup $group/hvdjob-[^ ]*-0: it was made again$"
    expect_count 1 . "$T/err"
}

case_a_job_goes_on_without_its_cgroup() {
    removed_between 'echo 0 > $group/cgroup.max.descendants' \
        sh -c 'grep -c "^0::.*hvdjob" /proc/self/cgroup; [ $HVD_RANK = 1 ] || { setsid sleep 300 & }'
    expect_sorted 0 0 # the second one has none either
    expect_status 0
    expect_err "^hvdrun: warning: first: somebody has removed the job's cgroup $group/hvdjob-[^ ]*-0: the agent alone holds the job together \(subreaper\)$"
}
