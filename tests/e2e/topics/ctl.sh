# shellcheck shell=bash disable=SC2016,SC2034,SC2154
# hvdctl: what it shows of jobs, to whom, and how it ends them.
limit=30

CTL=$BUILD/hvdctl
ticking='echo "ready $RANK"; trap "echo got TERM; exit 9" TERM; while :; do sleep 0.1; done'

# hvdctl ARGUMENTS, whose output does not go where the job's is.
ctl() {
    "${as[@]}" "$CTL" "$@" > "$T/shown" 2> "$T/shown.err" < /dev/null
    status=$?
}
as=()

expect_shown() { # LINE...: in any order
    expect_same "$(printf '%s\n' "$@" | sort)" "$(sort "$T/shown")" 'what hvdctl shows'
}

begin() { # RANKS ARGUMENTS of hvdrun...: a job, and its name
    local programs
    start -np "$@"
    until_out 10 ready "$1"
    programs=$(own_programs "$pid" | tr '\n' ' ')
    job=$("$CTL" ps --json | awk -v pids="$programs" '/"job":/ { name = $2 } /"session_pid":/ && index(" " pids " ", " " ($2 + 0) " ") { gsub(/[",]/, "", name); print name }')
    [ -n "$job" ] || fail "hvdctl ps does not show the job: $("$CTL" ps)"
}

end() {
    kill -KILL $pid
    stop_status
}

case_a_job_and_its_ranks_are_shown() {
    begin 3 sh -c "$ticking"
    ctl ps
    expect_status 0
    expect_count 1 "^$job .* 3/3 running .* sh -c echo" "$T/shown"
    ctl status "${job%?}"
    expect_status 0
    expect_count 1 "^job $job of [^ ]+: running" "$T/shown"
    expect_count 3 '^ +[0-2] +[0-9]+ [a-z ]+ ' "$T/shown"
    end
}

case_a_name_that_the_user_gave() {
    start -np 1 --job-name my-train sh -c "$ticking"
    until_out 10 ready 1
    ctl ps
    expect_count 1 '^my-train-[0-9a-f]{12} .* 1/1 running ' "$T/shown"
    ctl status my-train
    expect_status 0
    ctl ps localhost
    expect_count 1 '^my-train-[0-9a-f]{12} ' "$T/shown"
    end
    bad_input "^hvdrun: --job-name 'My Job': a name is 1 to 32 of a-z, 0-9 and -$" --job-name 'My Job' touch "$T/started"
}

# Two sessions of one job; hvdrun is asked for both.
case_all_hosts_of_a_job_where_it_was_started() {
    start -np 3 --job-name both -H localhost:2,127.0.0.1:1 sh -c "$ticking"
    until_out 10 ready 3
    ctl ps
    expect_count 1 '^both-[0-9a-f]{12} +[^ ]+ +localhost +2/3 running ' "$T/shown"
    expect_count 1 '^both-[0-9a-f]{12} +[^ ]+ +127.0.0.1 +1/3 running ' "$T/shown"
    ctl status both
    expect_count 1 '^host: localhost, number 0 of 2; 2 of the job.s 3 ranks run here' "$T/shown"
    expect_count 1 '^host: 127.0.0.1, number 1 of 2; 1 of the job.s 3 ranks run here' "$T/shown"
    expect_count 3 '^ +[0-2] +[0-9]+ [a-z ]+ ' "$T/shown"
    job=$(sed -n 's/^job \([^ ]*\) of.*/\1/p' "$T/shown")
    ctl status "$job-1"
    expect_count 1 '^host: ' "$T/shown"
    expect_count 1 '^host: 127.0.0.1, ' "$T/shown"
    ctl logs both
    expect_shown '0: ready 0' '1: ready 1' '2: ready 2'
    ctl logs -r 2 both
    expect_shown 'ready 2'
    ctl resize both 2
    expect_status 1
    expect_count 1 "^hvdctl: job $job: the job is not elastic: " "$T/shown.err"
    ctl kill both
    expect_status 0
    stop_status
    expect_status 125
    expect_err '^hvdrun: .* ended the job with hvdctl$'
    expect_count 3 'got TERM' "$T/out"
}

case_a_host_that_is_silent_has_its_last_figures() {
    start -np 2 --job-name still --heartbeat-timeout 20 -H localhost:1,127.0.0.1:1 sh -c "$ticking"
    until_out 10 ready 2
    ctl status still
    local session
    session=$(sed -n '/^host: 127.0.0.1/,$s/^processes: session \([0-9]*\),.*/\1/p' "$T/shown")
    kill -STOP "$session"
    mark_time
    ctl ps
    expect_within 4
    kill -CONT "$session"
    expect_count 1 '^still-[0-9a-f]{12} .* localhost +1/2 running ' "$T/shown"
    expect_count 1 '^still-[0-9a-f]{12} .* 127.0.0.1 +1/2 no answer ' "$T/shown"
    ctl ps
    expect_count 1 '^still-[0-9a-f]{12} .* 127.0.0.1 +1/2 running ' "$T/shown"
    end
}

# A host that cannot be reached for now, and no epoch after the end by hvdctl.
case_a_job_that_is_on_its_way() {
    printf '#!/bin/sh\nexec sleep 30\n' > "$T/rsh" && chmod +x "$T/rsh"
    start -np 1 --job-name way --max-restarts 3 --rsh "$T/rsh {host}" -H 192.0.2.1:1 true
    shown() { ctl ps && grep -q '^way-' "$T/shown"; }
    until_true 5 shown || fail "hvdctl ps does not show the job: $(cat "$T/shown")"
    expect_count 1 '^way-[0-9a-f]{12} +[^ ]+ +192.0.2.1 +0/0 [a-z]+ .* true$' "$T/shown"
    ctl kill way
    stop_status
    expect_status 125
    expect_count 1 'ended the job with hvdctl' "$T/err"
}

# On a terminal of 80 columns, then of 120; a key ends it.
case_top_on_a_terminal() {
    command -v python3 > /dev/null || skip "no python3 here"
    begin 2 sh -c "$ticking"
    cat > terminal.py <<-'END'
	import fcntl, os, pty, select, signal, struct, sys, termios, time
	def size(fd, columns):
	    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
	def read(fd, seconds):
	    got, until = b"", time.time() + seconds
	    while time.time() < until:
	        if select.select([fd], [], [], 0.1)[0]:
	            try:
	                got += os.read(fd, 65536)
	            except OSError:
	                break
	    return got.decode().replace("\r", "").split("\033[H\033[2J")[-1].split("\n")
	master, slave = pty.openpty()
	size(master, 80)
	pid = os.fork()
	if pid == 0:
	    os.close(master)
	    os.login_tty(slave) if hasattr(os, "login_tty") else (os.setsid(), fcntl.ioctl(slave, termios.TIOCSCTTY, 0),
	                                                          [os.dup2(slave, n) for n in range(3)])
	    os.execv(sys.argv[1], [sys.argv[1], "top", "--interval", "60"])
	os.close(slave)
	narrow = read(master, 1.5)
	size(master, 120)
	os.kill(pid, signal.SIGWINCH)
	broad = read(master, 1.5)
	os.write(master, b"q")
	status = os.waitpid(pid, 0)[1]
	assert max(map(len, narrow)) <= 80 and "USER" not in narrow[0] and narrow[0].startswith("JOB"), narrow
	assert "USER" in broad[0] and max(map(len, broad)) > 80, broad
	assert status == 0, status
	END
    timeout 20 python3 terminal.py "$CTL" 2> "$T/python" || fail "$(tail -n 1 "$T/python")"
    end
}

case_the_figures_are_those_of_the_ranks() {
    command -v python3 > /dev/null || skip "no python3 here"
    begin 2 sh -c 'echo ready; [ $RANK = 0 ] || exec sleep 60; x=$(head -c 30000000 /dev/zero | tr "\0" a); while :; do :; done'
    sleep 1
    "$CTL" status "$job" --json | python3 -c 'import json, sys
j = json.load(sys.stdin)
r = j["ranks"]
assert j["size"] == 2 and j["hosts"] == 1 and j["phase"] == "running" and j["command"][0] == "sh", j
assert r[0]["memory_kib"] > 28000 and r[0]["cpu_seconds"] > 0.2, r[0]
assert r[1]["memory_kib"] < 20000 and r[1]["cpu_seconds"] < 0.2 and r[1]["state"] == "sleeping", r[1]
assert not r[0]["ended"] and r[0]["seconds"] >= 1, r[0]' 2> "$T/python" || fail "$(cat "$T/python")"
    end
}

case_a_rank_that_ended_is_told() {
    begin 2 --on-failure continue sh -c 'echo ready; [ $RANK = 0 ] || exit 3; exec sleep 60'
    says_so() { ctl status "$job" && grep -q 'exit status 3' "$T/shown"; }
    until_true 5 says_so || fail "$(cat "$T/shown")"
    expect_count 1 '^ +1 +[0-9]+ exit status 3 ' "$T/shown"
    end
}

case_what_was_reduced_and_who_is_waited_for() {
    command -v python3 > /dev/null || skip "no python3 here"
    start --job-name laggard -np 3 "$BUILD/tests/laggard" 6000 1
    stalled() {
        job=$("$CTL" ps | awk '/^laggard-/ { print $1 }')
        [ -n "$job" ] && ctl status "$job" && grep -q '^stall: ' "$T/shown"
    }
    until_true 10 stalled || fail "no stall is shown: $(cat "$T/shown" "$T/shown.err")"
    expect_count 1 '^stall: tensor "grad.3": allreduce has waited [1-5].[0-9] s for rank 1 on ' "$T/shown"
    expect_count 1 '^allreduce +1 +12 B ' "$T/shown"
    "$CTL" status "$job" --json | python3 -c 'import json, sys
c = json.load(sys.stdin)["counters"]
k = {x["kind"]: x for x in c["collectives"]}
assert k["allreduce"]["operations"] == 1 and k["allreduce"]["operations_of_all_ranks"] == 3, k
assert k["allreduce"]["bytes"] == 12 and 0 < k["allreduce"]["seconds"] < 3, k
assert k["barrier"]["operations"] == 1 and "broadcast" not in k, k
assert c["stalled_tensors"] == 1 and c["stalls"][0]["tensor"] == "grad.3" and c["age_seconds"] < 2, c
assert c["link_bytes_sent"] == 0, c' 2> "$T/python" || fail "$(cat "$T/python")"
    ctl metrics
    expect_status 0
    local labels="job=\"[^\"]+\",user=\"[^\"]+\",host=\"[^\"]+\""
    expect_count 1 "^hvd_collective_operations_total\{$labels,kind=\"allreduce\"\} 3$" "$T/shown"
    expect_count 1 "^hvd_collective_bytes_total\{$labels,kind=\"allreduce\"\} 12$" "$T/shown"
    expect_count 1 "^hvd_job_ranks\{$labels\} 3$" "$T/shown"
    expect_count 1 "^hvd_job_stalled_tensors\{$labels\} 1$" "$T/shown"
    ! grep -vE '^(# (HELP|TYPE) hvd_[a-z_]+ .+|hvd_[a-z_]+(\{([a-z]+="[^"]*",?)+\})? [0-9.e+-]+)$' "$T/shown" || fail 'that is no line of the format'
    kill -KILL $pid
    stop_status
}

case_logs_are_what_ranks_wrote() {
    begin 2 sh -c 'echo "ready $RANK"; echo "to stderr $RANK" >&2; exec sleep 60'
    ctl logs "$job"
    expect_status 0
    expect_shown '0: ready 0' '0: to stderr 0' '1: ready 1' '1: to stderr 1'
    ctl logs --rank 1 "$job"
    expect_shown 'ready 1' 'to stderr 1'
    ctl logs --rank 7 "$job"
    expect_status 1
    end
}

case_logs_follow_to_the_end() {
    begin 1 sh -c 'echo ready; i=0; while [ ! -e "$0/go" ]; do sleep 0.05; done; while [ $i -lt 5000 ]; do echo line $i; i=$((i+1)); done' "$T"
    timeout 20 "$CTL" logs -f "$job" > "$T/followed" &
    local follower=$!
    until_true 5 grep -q ready "$T/followed" || fail "it shows nothing"
    : > "$T/go"
    wait $follower || fail "hvdctl logs -f ends with $?"
    stop_status
    expect_status 0
    expect_count 5000 '^line [0-9]+$' "$T/followed"
}

case_kill_ends_the_job() {
    begin 2 sh -c "$ticking"
    ctl kill "$job"
    expect_status 0
    stop_status
    expect_status 125
    expect_count 2 'got TERM' "$T/out"
    expect_err 'its user ended the job with hvdctl'
    ctl status "$job"
    expect_status 1
}

case_a_slow_reader_stops_nobody() {
    begin 1 sh -c 'echo ready; while [ ! -e "$0/go" ]; do sleep 0.05; done; seq 1000000' "$T"
    mkfifo "$T/pipe"
    "$CTL" logs -f "$job" > "$T/pipe" 2> "$T/err.follower" &
    local follower=$!
    exec 7< "$T/pipe"
    : > "$T/go"
    stop_status
    expect_status 0
    cat <&7 > "$T/followed"
    wait $follower
    expect_count 1 '^1000000$' "$T/out"
}

case_only_root_and_the_user_see_a_job() {
    [ "$(id -u)" = 0 ] || skip "needs root"
    open_to_others
    (cd / && exec runuser -u nobody -- "$HVDRUN" -np 1 sh -c 'echo ready; exec sleep 60') > "$T/out" 2> "$T/err" < /dev/null &
    pid=$!
    until_out 10 ready
    ctl ps
    expect_count 1 ' nobody .* 1/1 running' "$T/shown"
    local name
    name=$(awk '$2 == "nobody" { print $1 }' "$T/shown")
    as=(runuser -u nobody --)
    ctl ps
    expect_count 1 "^$name " "$T/shown"
    as=(runuser -u daemon --)
    ctl ps
    expect_count 0 "$name" "$T/shown"
    ctl kill "$name"
    expect_status 1
    as=()
    ctl kill "$name"
    expect_status 0
    wait $pid
    status=$?
    expect_status 125
    expect_err 'root ended the job with hvdctl'
}

case_words_that_are_wrong() {
    local words
    for words in 'metrics x' 'status' 'frobnicate' 'logs --rank'; do
        # shellcheck disable=SC2086
        ctl $words
        expect_status 2
        expect_count 1 '^hvdctl: [^h]' "$T/shown.err"
    done
    ctl status nosuchjob
    expect_status 1
    expect_count 1 '^hvdctl: no job on this host is named nosuchjob$' "$T/shown.err"
}
