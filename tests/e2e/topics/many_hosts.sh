# shellcheck shell=bash disable=SC2034,SC2154
# Many ranks, and much output, over two hosts.
hosts=2
limit=120

case_a_host_with_too_few_descriptors_is_named_before_any_worker_starts() {
    cat > "$T/agent" <<EOF
#!/bin/bash
case \$(hostname)\$SSH_CONNECTION in *node2*|*127.0.0.3*) ulimit -n 400 ;; esac
exec "$BUILD/hvdagent" "\$@"
EOF
    chmod 755 "$T/agent"
    chmod 777 "$T"
    hvd --agent-path "$T/agent" -np 310 -H "$H1:10,$H2:300" touch "$T/started"
    expect_status 125
    one_clear_line "^hvdrun: $H2: 300 ranks need about 6[0-9]{2} descriptors, but the limit is 400 \(RLIMIT_NOFILE, ulimit -Hn\)\$" limits
    [ ! -e "$T/started" ] || fail "a worker was started"
    hvd --agent-path "$T/agent" -np 110 -H "$H1:10,$H2:100" true
    expect_status 0
}

slow_a_thousand_ranks_on_two_hosts() {
    mark_time
    # shellcheck disable=SC2016
    hvd -np 1000 -H "$H1:500,$H2:500" sh -c 'echo up $HOROVOD_RANK'
    expect_status 0
    expect_no_err
    expect_count 1000 '^up [0-9]+$' "$T/out"
    echo "# 2 x 500 ranks: $(((${EPOCHREALTIME/./} - since) / 1000)) ms"
}

case_ranks_of_two_hosts_through_a_slow_reader() {
    through_a_slow_reader 16 2000000 3 -H "$H1:8,$H2:8"
}

slow_64_ranks_of_two_hosts_through_a_slow_reader() {
    through_a_slow_reader 64 1000000 8 -H "$H1:32,$H2:32"
}
