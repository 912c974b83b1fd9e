# shellcheck shell=bash disable=SC2034,SC2154
# --send-agent: hosts without hvdagent get one, whole or not at all, and keep nothing of it.
hosts=2
limit=45

bare=(--send-agent --agent-path /no/such/hvdagent)

nothing_sent() {
    [ -z "$(each_host 'ls -d /tmp/hvd-sent-* /run/user/*/hvd-sent-* $TMPDIR/hvd-sent-* 2>/dev/null')" ]
}

case_hosts_without_an_agent_get_one() {
    # shellcheck disable=SC2016
    hvd --verbose "${bare[@]}" -H $H1:1,$H2:1 sh -c 'readlink /proc/$PPID/exe'
    expect_status 0
    expect_count 2 '^/.*/hvd-sent-[0-9a-z-]*\.[A-Za-z0-9]*/hvdagent$' "$T/out"
    expect_count 2 'hvdagent was sent: [0-9]+ KiB in' "$T/err"
    nothing_sent || fail "not removed at the end"
}

case_training_with_an_agent_that_was_sent() {
    hvd "${bare[@]}" -np 4 -H $H1:2,$H2:2 "$TRAIN" --steps 20
    expect_status 0
    expect_no_err
    nothing_sent || fail "not removed at the end"
}

case_an_installed_agent_is_taken() {
    # shellcheck disable=SC2016
    hvd --send-agent -H $H1:1,$H2:1 sh -c 'readlink /proc/$PPID/exe'
    expect_status 0
    expect_count 2 "^$BUILD/hvdagent\$" "$T/out"
}

case_without_the_option_it_is_named() {
    host_error "$H1" --agent-path /no/such/hvdagent -H $H1:1 touch "$T/started"
    expect_err 'send-agent'
}

case_through_another_program() {
    printf '#!/bin/sh\necho Welcome here; exec %s "$@"\n' "${ssh_command[*]}" > "$T/my-rsh"
    chmod +x "$T/my-rsh"
    hvd "${bare[@]}" --rsh "$T/my-rsh" -H node1:1,node2:1 echo fine
    expect_status 0
    expect_sorted fine fine
    nothing_sent || fail "not removed at the end"
}

# Between hvdrun and the host: a perl statement sees each piece in $b, after $n bytes in all.
through() { # STATEMENT
    # ssh makes the socket non-blocking that both have.
    # shellcheck disable=SC2016
    printf 'while (1) { vec($r, 0, 1) = 1; select $r, undef, undef, undef; defined(sysread STDIN, $b, 65536) or next; last if $b eq ""; $n += length $b; %s; syswrite STDOUT, $b }' \
        "$1" > "$T/filter"
    mkfifo "$T/pipe"
    printf '#!/bin/sh\nexec 3<&0\nperl %s <&3 > %s &\n%s "$@" < %s\ns=$?\nkill $! 2>/dev/null\nexit $s\n' \
        "$T/filter" "$T/pipe" "${ssh_command[*]}" "$T/pipe" > "$T/my-rsh"
    chmod +x "$T/my-rsh"
}

spoilt() { # REGEX STATEMENT
    through "$2"
    host_error "$1" "${bare[@]}" --start-timeout 15 --rsh "$T/my-rsh" -H node1:1 touch "$T/started"
    until_true 5 nothing_sent || fail "not removed after the failure"
}

case_a_damaged_transfer() {
    spoilt 'node1: sending the agent: .*damaged.*SHA-256' 'substr($b, 9, 2) = "xx" if $n > 1000000 && !$d++'
}

case_a_truncated_transfer() {
    spoilt 'node1: sending the agent: .*not received whole: [0-9]+ of [0-9]+ bytes' 'exit if $n > 1000000'
}

case_no_room() {
    needs_kind ns
    on 1 'mount -t tmpfs -o size=2m small /tmp'
    trap 'on 1 "umount /tmp"' EXIT # what later cases need may be below it
    host_error "$H1: .*no room for [0-9]+ bytes" "${bare[@]}" -H $H1:1 touch "$T/started"
    on 1 'umount /tmp'
    trap - EXIT
}

case_another_platform() {
    printf '#!/bin/sh\nPATH=%s:$PATH\nexport PATH\nshift\nexec "$@"\n' "$T" > "$T/run"
    printf '#!/bin/sh\n[ "$1" = -m ] && echo vax || echo Linux\n' > "$T/uname"
    printf '#!/bin/sh\nshift\nPATH=%s:$PATH exec sh -c "$1"\n' "$T" > "$T/my-rsh"
    chmod +x "$T/uname" "$T/my-rsh"
    host_error "node1: .*this host is Linux/vax, hvdrun's is Linux/" "${bare[@]}" --rsh "$T/my-rsh" -H node1:1 touch "$T/started"
}

case_a_host_where_it_does_not_run() {
    # It is another program than hvdrun's at the far end: as where a library is missing.
    printf '#!/bin/sh\n[ "$1" != 700 ] || case $2 in */hvdagent) printf "#!/bin/sh\\necho no libc >&2\\n" > "$2" ;; esac\nexec /bin/chmod "$@"\n' > "$T/chmod"
    printf '#!/bin/sh\nexit 0\n' > "$T/sha256sum"
    printf '#!/bin/sh\nshift\nPATH=%s:$PATH exec sh -c "$1"\n' "$T" > "$T/my-rsh"
    chmod +x "$T/chmod" "$T/sha256sum" "$T/my-rsh"
    host_error "node1: .*does not run here: no libc" "${bare[@]}" --rsh "$T/my-rsh" -H node1:1 touch "$T/started"
}

case_the_cache_is_used_again() {
    needs_kind ns
    # shellcheck disable=SC2016
    hvd --verbose --send-agent=cache --agent-path /none -H $H1:1 sh -c 'readlink /proc/$PPID/exe'
    expect_status 0
    expect_count 1 'hvdagent was sent' "$T/err"
    expect_out '/\.cache/hvd/[0-9.]+-[0-9a-f]{16}/hvdagent$'
    local agent
    agent=$(cat "$T/out")
    hvd --verbose --send-agent=cache --agent-path /none -H $H1:1 true
    expect_status 0
    expect_count 0 'hvdagent was sent' "$T/err"
    on 1 "printf x | dd of='$agent' bs=1 seek=5000 conv=notrunc 2>/dev/null"
    hvd --verbose --send-agent=cache --agent-path /none -H $H1:1 true
    expect_status 0
    expect_count 1 'hvdagent was sent' "$T/err"
    expect_same 1 "$(on 1 'ls -A ~/.cache/hvd | wc -l')" 'the number of entries in the cache'
    expect_same 700 "$(on 1 'stat -c %a ~/.cache/hvd')" 'the mode of the cache'
    on 1 'rm -r ~/.cache/hvd; ln -s /tmp ~/.cache/hvd'
    host_error "$H1: .*is no directory of this user" --send-agent=cache --agent-path /none -H $H1:1 touch "$T/started"
    on 1 'rm ~/.cache/hvd'
}

case_kill_9_of_hvdrun_leaves_nothing() {
    start "${bare[@]}" -H $H1:1,$H2:1 sh -c 'echo ready; exec sleep 60'
    until_out 15 ready 2
    kill -KILL $pid
    stop_status
    until_true 10 nothing_sent || fail "not removed after hvdrun was killed"
}

case_kill_9_of_hvdrun_while_it_sends() {
    through 'next if $n > 1000000'
    start "${bare[@]}" --rsh "$T/my-rsh" -H node1:1 true
    until_true 10 sent_something || fail "nothing was sent"
    kill -KILL $pid
    stop_status
    until_true 10 nothing_sent || fail "not removed after hvdrun was killed"
}

sent_something() {
    ! nothing_sent
}

# Guard and session gone at once: hvdrun goes there again, and sweeps with what is there.
case_kill_9_of_both_agents_is_swept() {
    needs_kind ns
    start --grace 1 --heartbeat-timeout 5 "${bare[@]}" -H $H1:1,$H2:1 sh -c 'echo ready; exec sleep 60'
    until_out 15 ready 2
    on 2 "for d in /proc/[0-9]*; do case \$(readlink \$d/exe) in */hvd-sent-*/hvdagent) echo \${d#/proc/} ;; esac; done | xargs kill -9"
    stop_status
    expect_status 125
    expect_err "$H2"
    until_true 10 nothing_sent || fail "not removed after the agents were killed"
}

# As of a session that was killed while it removed its directory: hvdagent has gone, and the rest is there.
case_half_a_directory_is_swept() {
    needs_kind ns
    start --grace 1 --heartbeat-timeout 5 "${bare[@]}" -H $H1:1,$H2:1 sh -c 'echo ready; exec sleep 60'
    until_out 15 ready 2
    on 2 "for d in /run/user/*/hvd-sent-* /tmp/hvd-sent-*; do [ ! -d \$d ] || mkdir -m 700 \${d%.*}.-half \${d%.*}.-half/modules; done"
    on 2 "for d in /proc/[0-9]*; do case \$(readlink \$d/exe) in */hvd-sent-*/hvdagent) echo \${d#/proc/} ;; esac; done | xargs kill -9"
    stop_status
    expect_status 125
    until_true 10 nothing_sent || fail "not removed after the agents were killed"
}

case_kill_9_of_the_guard() {
    needs_kind ns
    start --grace 1 "${bare[@]}" -H $H1:1 sh -c 'echo ready; exec sleep 60'
    until_out 15 ready
    on 1 "for d in /proc/[0-9]*; do case \$(readlink \$d/exe) in */hvd-sent-*/hvdagent) echo \${d#/proc/} ;; esac; done | sort -n | head -n 1 | xargs kill -9"
    stop_status
    expect_status 125
    until_true 10 nothing_sent || fail "not removed after the guard was killed"
}
