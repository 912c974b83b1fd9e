# shellcheck shell=bash disable=SC2034,SC2154
# Resource limits of the shell for the workers. A "host" here is this one, reached through a script that sets limits of its own.
limit=30

# shellcheck disable=SC2016
show='echo $(ulimit -Sn) $(ulimit -Hn) $(ulimit -Ss) $(ulimit -Sf)'

host_with() { # ULIMIT COMMANDS: what the host has
    printf '#!/bin/bash\n%s\nshift\nexec sh -c "$*"\n' "$1" > "$T/rsh"
    chmod +x "$T/rsh"
}

# The limits of this shell must not stay for the cases that follow: each has its own process.
run_with_limits() {
    ulimit -Sf 4000000
    ulimit -Ss 7168
    ulimit -Sn 900
    run "$HVDRUN" --rsh "$T/rsh" -H elsewhere:1 "$@" sh -c "$show"
}

case_propagate_limits() {
    host_with 'ulimit -Sn 700; ulimit -Hn 2000; ulimit -Ss 4096; ulimit -Sf 1000000'
    run_with_limits
    expect_same '700 2000 4096 2000000' "$(cat "$T/out")" 'without it'
    run_with_limits --propagate-limits NOFILE,RLIMIT_stack
    expect_same '900 2000 7168 2000000' "$(cat "$T/out")" 'with two names'
    expect_no_err
    run_with_limits --propagate-limits all
    expect_same '900 2000 7168 8000000' "$(cat "$T/out")" 'with all'
    run_with_limits --propagate-limits NOFILE,NOPE
    expect_status 2
    expect_err "there is no limit 'NOPE'"
}

case_propagate_limits_no_further_than_the_hard_ones() {
    host_with 'ulimit -Sn 500; ulimit -Hn 600'
    run_with_limits --propagate-limits NOFILE,STACK
    expect_status 0
    expect_same '600 600 7168 8000000' "$(cat "$T/out")" 'the limits'
    expect_count 1 'elsewhere.*NOFILE is 600 for the workers here, not 900: the hard limit' "$T/err"
}
