# shellcheck shell=bash disable=SC2016,SC2034,SC2154
# --preload over SSH: each host gets its own copy, and a host that cannot take it is named.
hosts=2
limit=45

case_each_host_gets_it() {
    head -c 5000000 /dev/urandom > "$T/data"
    printf '#!/bin/sh\nsha256sum < "$HVD_PRELOAD_DIR/data"; echo "$HVD_PRELOAD_DIR" >&2\n' > "$T/program"
    chmod 755 "$T/program" "$T"
    hvd --preload "$T/data" --preload "$T/program" -np 4 -H $H1:2,$H2:2 ./program
    expect_status 0
    expect_count 4 "^$(sha256sum < "$T/data")\$" "$T/out"
    [ "$(sort -u "$T/err" | wc -l)" = 2 ] || fail "not a directory for each host"
    local dir
    while read -r dir; do
        [ -z "$(each_host "ls -d $dir 2>/dev/null")" ] || fail "$dir is still there"
    done < "$T/err"
}

case_with_an_agent_that_was_sent() {
    head -c 5000000 /dev/urandom > "$T/data"
    hvd --send-agent --agent-path /no/such/hvdagent --preload "$T/data" -H $H1:1,$H2:1 sh -c 'sha256sum < "$HVD_PRELOAD_DIR/data"'
    expect_status 0
    expect_count 2 "^$(sha256sum < "$T/data")\$" "$T/out"
}

case_one_host_without_room() {
    needs_kind ns
    head -c 5000000 /dev/urandom > "$T/data"
    for host in 1 2; do on $host "mkdir /run/hvd-kept; mount --bind $BUILD /run/hvd-kept"; done
    on 2 'mount -t tmpfs -o size=2m small /tmp'
    trap 'on 2 "umount /tmp"; for host in 1 2; do on $host "umount /run/hvd-kept; rmdir /run/hvd-kept"; done' EXIT
    host_error "$H2: no room for 5000000 bytes of files" --agent-path /run/hvd-kept/hvdagent --preload "$T/data" -H $H1:1,$H2:1 touch "$T/started"
    [ ! -e "$T/started" ] || fail "a worker was started"
}
