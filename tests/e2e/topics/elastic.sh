# shellcheck shell=bash disable=SC2034,SC2154
# Elastic jobs on one host: a rank dies and the others go on, in the same processes; others take its place; too few are left.
# Cases with the names of Horovod's elastic tests are here and in elastic_hosts.sh: single rank failure, fault tolerance without
# scaling, all ranks failure, all hosts blacklisted, min hosts timeout, reset limit, resurrecting blacklisted hosts, hosts added and
# removed.
limit=60

TRAINEE_PROGRAM=$BUILD/tests/trainee # its source says what it does

# shellcheck source=tests/neighbours/neighbours.sh
. "$top/tests/neighbours/neighbours.sh"
# shellcheck source=tests/e2e/losses.sh
. "$top/tests/e2e/losses.sh"

# A worker that tells its pid, and becomes the program that follows.
# shellcheck disable=SC2016
telling=(sh -c 'echo worker $HVD_WORKER is $$; exec "$@"' sh)

whole_losses() { # OPTION... of the trainer: the losses of a job in which nothing happens
    hvd -np 3 "$TRAIN" "$@"
    losses "$T/out" > "$T/whole"
}

# The step at which rank 0 has died may be told by nobody, or twice.
expect_whole_losses() { # DEATHS
    losses "$T/out" | awk '!seen[$1]++' > "$T/broken"
    [ "$(wc -l < "$T/broken")" -ge $((100 - $1)) ] || fail 'losses are missing'
    awk 'NR == FNR { told[$1]; next } $1 in told' "$T/broken" "$T/whole" > "$T/same"
    same_losses "$T/same" "$T/broken"
}

# Each worker that goes on has one pid in all its memberships.
expect_same_processes() {
    awk '$1 == "enter" && $2 in pid && pid[$2] != $3 {exit 1} $1 == "enter" {pid[$2] = $3}' "$T/out" || fail 'a worker has another process'
}

case_single_rank_failure() {
    TRAINEE=1:5:kill hvd --report "$T/report.json" -np 3 --min-np 1 "$TRAINEE_PROGRAM" 30
    expect_status 0
    expect_count 3 '^enter . [0-9]+ . 3 1 0$' "$T/out"
    expect_out '^enter 0 [0-9]+ 0 2 2 5$'
    expect_out '^enter 2 [0-9]+ 1 2 2 5$'
    expect_count 2 '^done . 30$' "$T/out"
    expect_same_processes
    expect_same 1 "$(wc -l < "$T/err")" 'the number of lines on stderr'
    expect_err '^hvdrun: rank 1 on localhost \(worker 1, pid [0-9]+\) failed: killed by signal 9 \(Killed\); the job goes on with 2 ranks \(membership 2: 1 left, 0 came\)$'
    command -v python3 > /dev/null || return 0
    python3 -c 'import json, sys
m = json.load(open(sys.argv[1]))["memberships"]
assert len(m) == 1 and m[0]["number"] == 2 and m[0]["size"] == 2 and m[0]["left"] == 1 and "rank 1" in m[0]["cause"], m
assert 0 < m[0]["entered_after"] < 5, m' "$T/report.json" 2> "$T/python" || fail "$(tail -n 1 "$T/python")"
}

# Rank 0 has the state: the next rank takes its place.
case_rank_0_dies() {
    TRAINEE=0:5:kill hvd -np 3 --min-np 2 "$TRAINEE_PROGRAM" 20
    expect_status 0
    expect_out '^enter 1 [0-9]+ 0 2 2 5$'
    expect_out '^enter 2 [0-9]+ 1 2 2 5$'
    expect_count 2 '^done . 20$' "$T/out"
}

case_two_die_one_after_the_other() {
    TRAINEE=1:5:kill,2:8:exit hvd -np 4 --min-np 1 "$TRAINEE_PROGRAM" 20
    expect_status 0
    expect_out '^enter 3 [0-9]+ 1 2 3 8$'
    expect_count 2 '^done . 20$' "$T/out"
    expect_err 'rank 1 on localhost \(worker 2, pid [0-9]+\) failed: exit status 3; the job goes on with 2 ranks'
}

# Both at the same step: one change, or one that replaces the other.
case_two_die_at_once() {
    TRAINEE=1:5:kill,3:5:kill hvd -np 5 --min-np 1 "$TRAINEE_PROGRAM" 20
    expect_status 0
    expect_count 3 '^done . 20$' "$T/out"
    expect_same_processes
}

case_a_rank_that_gives_up() {
    TRAINEE=1:5:abort hvd -np 3 --min-np 1 "$TRAINEE_PROGRAM" 20
    expect_status 0
    expect_count 2 '^done . 20$' "$T/out"
    expect_err 'rank 1 .*gave up: it was told to'
}

# hvdctl asks before workers come, and after that.
case_hvdctl_shows_those_that_came() {
    TRAINEE=1:5:kill,2:250:kill,3:500:kill start -np 2 --min-np 1 --blacklist-cooldown-range 1 1 "$TRAINEE_PROGRAM" 700
    until_out 10 '^enter' 2
    while kill -0 "$pid" 2> /dev/null; do
        "$BUILD/hvdctl" ps > "$T/ps" 2>&1 || fail "hvdctl: $(cat "$T/ps")"
        [ "$(wc -l < "$T/ps")" -lt 2 ] || cp "$T/ps" "$T/shown"
        sleep 0.2
    done
    stop_status
    expect_status 0
    expect_count 2 '^done . 700$' "$T/out"
    grep -qE ' localhost +[0-9/]+ ' "$T/shown" || fail "hvdctl did not show the job: $(cat "$T/shown")"
}

# A host that has failed is taken again after its cool-down.
case_another_takes_its_place() {
    TRAINEE=1:5:kill hvd -np 3 --min-np 1 --blacklist-cooldown-range 1 2 "$TRAINEE_PROGRAM" 400
    expect_status 0
    expect_out '^enter 3 [0-9]+ 2 3 3 0$'
    expect_count 3 '^done . 400$' "$T/out"
    expect_same_processes
    expect_err 'the job goes on with 3 ranks \(membership 3: 0 left, 1 came\)'
}

# The second cool-down is twice as long as the first one. Each is up to a second longer, by chance.
slow_resurrecting_blacklisted_hosts_exponential_backoff() {
    command -v python3 > /dev/null || skip 'no python3'
    TRAINEE=1:5:kill,3:400:kill hvd --report "$T/report.json" -np 3 --min-np 1 --blacklist-cooldown-range 1 8 "$TRAINEE_PROGRAM" 1000
    expect_status 0
    expect_count 3 '^done . 1000$' "$T/out"
    python3 -c 'import json, sys
died, came, died_again, came_again = [m["at"] for m in json.load(open(sys.argv[1]))["memberships"]]
assert 1 <= came - died and 2 <= came_again - died_again, (died, came, died_again, came_again)' "$T/report.json" 2> "$T/python" || fail "$(tail -n 1 "$T/python")"
}

case_without_a_cool_down_it_is_not_taken_again() {
    TRAINEE=1:5:kill hvd -np 2 --min-np 1 --max-np 4 -H localhost:2 "$TRAINEE_PROGRAM" 150
    expect_status 0
    expect_no "$T/out" '^enter [2-9]'
}

# The job grows to --max-np at once when there are slots.
case_it_begins_as_large_as_it_may() {
    hvd -np 2 --max-np 3 -H localhost:4 "$TRAINEE_PROGRAM" 5
    expect_status 0
    expect_count 3 '^done . 5$' "$T/out"
}

# It would fail again: the host gets no others, and the ranks train on.
case_a_newcomer_that_fails() {
    # shellcheck disable=SC2016
    TRAINEE=2:5:kill hvd -np 3 --min-np 1 --blacklist-cooldown-range 1 60 sh -c '[ $HVD_WORKER -lt 3 ] || exit 4; exec "$@"' sh "$TRAINEE_PROGRAM" 200
    expect_status 0
    expect_count 1 '^hvdrun: warning: worker 3 on localhost ended before it was a rank: exit status 4$' "$T/err"
    expect_no "$T/err" 'worker 4 '
    expect_count 2 '^done . 200$' "$T/out"
}

case_too_few_are_left() {
    TRAINEE=1:5:exit hvd -np 2 --min-np 2 "$TRAINEE_PROGRAM" 30
    expect_status 3
    expect_err 'the job cannot go on: 1 rank is left of at least 2 \(--min-np\)'
    expect_err 'rank 1 on localhost \(worker 1, pid [0-9]+\) failed: exit status 3'
}

case_too_few_wait_for_a_cool_down() {
    TRAINEE=1:5:exit hvd -np 2 --min-np 2 --blacklist-cooldown-range 1 2 "$TRAINEE_PROGRAM" 30
    expect_status 0
    expect_err '1 rank is left of at least 2 \(--min-np\); waiting for hosts'
    expect_out '^enter 0 [0-9]+ 0 2 2 5$'
    expect_out '^enter 2 [0-9]+ 1 2 2 0$'
    expect_count 2 '^done . 30$' "$T/out"
}

case_min_hosts_timeout() {
    mark_time
    TRAINEE=1:5:exit hvd -np 2 --min-np 2 --blacklist-cooldown-range 60 90 --elastic-timeout 1 "$TRAINEE_PROGRAM" 30
    expect_status 3
    expect_within 10
    expect_err '1 rank is left of at least 2 \(--min-np\), and no others came within 1 s \(--elastic-timeout\)'
}

case_all_ranks_failure() {
    TRAINEE=0:5:exit,1:5:exit hvd -np 2 --min-np 1 "$TRAINEE_PROGRAM" 30
    expect_status 3
    expect_err 'the job cannot go on: no rank is left that has the state of the training'
}

# After that the whole job may start again.
case_elastic_first_then_restarts() {
    TRAINEE=0:5:exit,1:5:exit hvd -np 2 --min-np 1 --max-restarts 1 sh -c "[ \$HVD_RESTART_COUNT = 0 ] || unset TRAINEE; exec '$TRAINEE_PROGRAM' 20"
    expect_status 0
    expect_err 'restart 1 of 1'
    expect_count 2 '^done . 20$' "$T/out"
}

case_reset_limit() {
    TRAINEE=1:5:kill,2:10:kill hvd -np 4 --min-np 1 --reset-limit 1 "$TRAINEE_PROGRAM" 30
    expect_status 137
    expect_err 'worker 2, pid [0-9]+\) failed: killed by signal 9'
    expect_out '^enter 0 [0-9]+ 0 3 2 5$'
}

# It is named and ended, and the others go on without it.
case_a_survivor_that_does_not_enter() {
    TRAINEE=1:5:kill,2:5:hang hvd -np 3 --min-np 1 --elastic-timeout 1 "$TRAINEE_PROGRAM" 20
    expect_status 0
    expect_err 'worker 2 on localhost has not entered membership 2 within 1 s \(--elastic-timeout\): it is ended'
    expect_out '^done 0 20$'
}

# Worker 0 is stopped while it waits in hvd_reset for worker 1, which comes late. It is ended, as the other one has entered.
slow_a_survivor_that_is_stopped_in_the_call() {
    TRAINEE=1:5:late,2:5:kill start -np 3 --min-np 1 --elastic-timeout 3 --grace 1 "$TRAINEE_PROGRAM" 20
    until_true 10 grep -q 'the job goes on with 2 ranks' "$T/err"
    sleep 0.5
    kill -STOP "$(sed -n 's/^enter 0 \([0-9]*\) .*/\1/p' "$T/out")"
    stop_status
    expect_status 0
    expect_err 'worker 0 on localhost has not entered membership 2 within 3 s \(--elastic-timeout\): it is ended'
    expect_out '^done 1 20$'
}

case_a_program_that_is_not_elastic() {
    TRAINEE='' hvd -np 3 --min-np 1 "$BUILD/tests/mourner"
    expect_status 137
    expect_err 'the job cannot go on: no rank is left'
}

# A rank that ends well in the middle means that the work is done: others that fail behind it fail the job.
case_a_rank_that_leaves_the_others() {
    TRAINEE=1:5:leave hvd -np 2 --min-np 1 "$TRAINEE_PROGRAM" 20
    expect_status 0
    expect_out '^done 0 20$'
}

case_without_libhvd() {
    hvd -np 2 --min-np 1 sh -c 'echo rank $HVD_WORKER'
    expect_status 0
    expect_sorted 'rank 0' 'rank 1'
}

case_a_signal_ends_it() {
    start -np 2 --min-np 1 "$TRAINEE_PROGRAM" 100000
    until_out 10 '^enter' 2
    kill -INT "$pid"
    stop_status
    expect_status 130
}

case_a_time_limit_ends_it() {
    hvd --timeout 1 -np 2 --min-np 1 "$TRAINEE_PROGRAM" 100000
    expect_status 124
}

case_a_trainer_that_must_be_told() {
    hvd -np 2 "$TRAIN" --elastic
    expect_status 2
    expect_err 'train: --elastic is for elastic jobs: start it with hvdrun --min-np'
}

# A rank is killed, and after a cool-down another one takes its place. The losses are those of a job in which nothing happened.
slow_the_trainer_learns_the_same() {
    local options=(--steps 300 --global-batch 4096)
    whole_losses "${options[@]}"
    start --report "$T/report.json" -np 3 --min-np 1 --blacklist-cooldown-range 1 1 "${telling[@]}" "$TRAIN" --elastic "${options[@]}"
    until_out 20 '^step 20 '
    kill -KILL "$(sed -n 's/^worker 0 is //p' "$T/out")"
    stop_status
    expect_status 0
    expect_out '^train: 2 ranks at step [0-9]+, [01] received the state$'
    expect_out '^train: 3 ranks at step [0-9]+, 1 received the state$'
    expect_whole_losses 1
    command -v python3 > /dev/null || return 0
    python3 -c 'import json, sys
for m in json.load(open(sys.argv[1]))["memberships"]:
    assert m["decided_after"] <= m["entered_after"] <= m["state_after"] <= m["step_after"] < m["decided_after"] + 5, m' "$T/report.json" 2> "$T/python" || fail "$(tail -n 1 "$T/python")"
}

living_workers() { # [since]: prints the pids of those that have told theirs; since: that many tenths of a second ago
    local one now began
    now=$(date +%s%1N)
    sed -n 's/^worker [0-9]* is //p' "$T/out" | while read -r one; do
        began=$(stat -c %.1Y "/proc/$one" 2> /dev/null | tr -d .)
        [ -z "$began" ] || [ $((now - began)) -lt "${1:-0}" ] || echo "$one"
    done
}

# One death after the other, also while others come and while the ranks change. Two ranks that have the state are left always.
# HVD_SEED repeats a run.
slow_deaths_at_random() {
    local seed=${HVD_SEED:-$RANDOM} kills=0 living=() options=(--steps 600 --global-batch 4096)
    whole_losses "${options[@]}"
    RANDOM=$seed
    start -np 4 --min-np 1 --blacklist-cooldown-range 1 1 "${telling[@]}" "$TRAIN" --elastic "${options[@]}"
    until_out 20 '^step 3 '
    while kill -0 "$pid" 2> /dev/null && ! out_has '^step 500 ' 1; do
        mapfile -t living < <(living_workers)
        if [ $kills -lt 12 ] && [ "$(living_workers 4 | wc -l)" -gt 2 ] && [ ${#living[@]} -gt 0 ] && kill -KILL "${living[RANDOM % ${#living[@]}]}" 2> /dev/null; then
            kills=$((kills + 1))
        fi
        sleep "0.0$((RANDOM % 10))"
    done
    stop_status
    echo "HVD_SEED=$seed, $kills deaths" >> "$T/err"
    expect_status 0
    [ $kills -ge 5 ] || fail "only $kills were killed"
    expect_whole_losses "$kills"
}

# Without a server each rank would be a job of its own, and nobody would be told.
case_programs_of_mpi_are_refused() {
    mpi_program mpi_ring
    hvd -np 2 --min-np 1 "$program"
    expect_status 125
    expect_err 'localhost: the program uses MPI or PMIx, which an elastic job cannot serve'
    expect_err '^hvdrun: hint: --rendezvous env starts it anyway, for a program that makes no use of it$'
    hvd -np 1 --min-np 1 --rendezvous env sh -c true "$program"
    expect_status 0
}

case_programs_of_mpich_are_refused() {
    mpich_program mpi_ring
    hvd -np 2 --min-np 1 "$program"
    expect_status 125
    expect_err 'the program uses MPI or PMIx, which an elastic job cannot serve'
}

# Two workers that are ready at different times come in one membership.
# shellcheck disable=SC2016
case_newcomers_come_together() {
    echo 'localhost:1' > "$T/hosts"
    start -np 1 --min-np 1 --host-discovery-script "cat $T/hosts" \
        sh -c '[ "$HVD_WORKER" != 2 ] || sleep 0.4; exec "$@"' sh "$TRAINEE_PROGRAM" 400
    until_out 10 '^enter' 1
    echo 'localhost:3' > "$T/hosts"
    until_out 15 '^enter [12]' 2
    expect_count 2 '^enter [12] [0-9]+ [12] 3 2 0$' "$T/out"
    stop_status
    expect_status 0
    expect_err 'the job goes on with 3 ranks \(membership 2: 0 left, 2 came\)'
}

# ---- hvdctl --------------------------------------------------------------------------------------------

ctl() { # ARGUMENT...: hvdctl, whose output does not go where the job's is
    "$BUILD/hvdctl" "$@" > "$T/shown" 2>&1
}

has_job() {
    local programs
    programs=$(own_programs "$pid" | tr '\n' ' ')
    job=$("$BUILD/hvdctl" ps --json | awk -v pids="$programs" '/"job":/ { name = $2 } /"session_pid":/ && index(" " pids " ", " " ($2 + 0) " ") { gsub(/[",]/, "", name); print name }')
    [ -n "$job" ]
}

find_job() { # the one that was started last
    until_true 10 has_job || fail "hvdctl ps does not show the job: $("$BUILD/hvdctl" ps)"
}

expect_shown() {
    grep -Eq -- "$1" "$T/shown" || fail "hvdctl does not say \"$1\": $(cat "$T/shown")"
}

case_resize_takes_ranks_away_and_gives_them_back() {
    start -np 3 --min-np 1 --max-np 3 -H localhost:3 "$TRAINEE_PROGRAM" 600
    until_out 10 '^enter' 3
    find_job
    ctl resize "$job" 1 || fail "hvdctl: $(cat "$T/shown")"
    until_out 10 '^left [12]$' 2
    until_out 10 '^enter 0 [0-9]+ 0 1 2 [0-9]+$'
    ctl status "$job"
    expect_shown '^elastic: membership 2 of 1 rank'
    expect_shown '^membership 2, [0-9]+s ago: 1 rank, 2 left, 0 came; decided after '
    ctl status --json "$job"
    expect_shown '"membership": *2'
    ctl resize "$job" 3
    until_out 15 '^enter [34] [0-9]+ [12] 3 [34] 0$' 2
    stop_status
    expect_status 0
    expect_count 3 '^done . 600$' "$T/out"
    expect_err '^hvdrun: its user asks for 1 rank \(hvdctl resize\)$'
}

case_resize_says_why_not() {
    start -np 2 --min-np 2 --max-np 3 "$TRAINEE_PROGRAM" 150
    until_out 10 '^enter' 2
    find_job
    ! ctl resize "$job" 1 || fail 'fewer than --min-np were taken'
    expect_shown 'job .*: 1 ranks? (are|is) less than --min-np 2$'
    ! ctl resize "$job" 4 || fail 'more than --max-np were taken'
    expect_shown 'job .*: 4 ranks are more than --max-np 3$'
    ! ctl resize "$job" || fail 'no number was taken'
    expect_shown 'how many ranks\?'
    ! ctl resize "$job" 2x || fail '2x was taken'
    expect_shown '2x is no number of ranks'
    stop_status
    expect_status 0
    expect_count 2 '^done . 150$' "$T/out"
}

case_resize_of_a_job_that_is_not_elastic() {
    start -np 1 sleep 30
    find_job
    ! ctl resize "$job" 2 || fail 'it was taken'
    expect_shown 'the job is not elastic: it was started without --min-np'
    ! ctl leave "$job" || fail 'it was taken'
    expect_shown 'the job is not elastic'
    ctl kill "$job"
    stop_status
}

# Nobody could take over: the ranks stay, and the user is told.
case_the_only_host_shall_leave() {
    start -np 2 --min-np 1 "$TRAINEE_PROGRAM" 150
    until_out 10 '^enter' 2
    find_job
    ctl leave --reason 'the room is painted' "$job"
    stop_status
    expect_status 0
    expect_count 2 '^done . 150$' "$T/out"
    expect_err '^hvdrun: the ranks on localhost leave at their next commit: its user asked for that with hvdctl: the room is painted$'
    expect_err '^hvdrun: without the hosts that are to go, 0 ranks are left of at least 1 \(--min-np\); the ranks go on until others come$'
}

# A rank that hangs is ended, and the others go on.
case_a_stalled_rank_is_ended() {
    TRAINEE=1:5:hang hvd -np 3 --min-np 1 --stall-check-warning-time-seconds 1 \
        --stall-check-shutdown-time-seconds 2 "$TRAINEE_PROGRAM" 30
    expect_status 0
    expect_count 2 '^done . 30$' "$T/out"
    expect_err 'tensor "[^"]*": allreduce was given up after 2 s .*rank 1 on localhost; the job goes on with 2 ranks'
}
