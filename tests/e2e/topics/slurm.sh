# hvdrun in a job of a real Slurm, which runs on the namespaced hosts: no -H anywhere.
# shellcheck shell=bash disable=SC2154,SC2034,SC2016
hosts=4
limit=60

# The first case starts Slurm; the hosts' end is its end. Slurm's daemons are not the case's: they must not look as if.
slurm() {
    local why
    needs_kind ns
    why=$("$top/tests/hosts/slurm.sh" can) || skip "$why"
    leave_within=3
    [ ! -e "$work/slurm.up" ] || return 0
    env -u HVD_TEST_CASE SLURM_SHARED="$work/slurm" "$top/tests/hosts/slurm.sh" start 4 > "$T/slurm.log" 2>&1 ||
        fail "Slurm did not start: $(tail -n 3 "$T/slurm.log")"
    touch "$work/slurm.up"
}

# Who submits; an ordinary user has no cgroup of his own on the hosts.
as=()
ordinary=(setpriv --reuid hvduser --regid hvduser --init-groups env HOME=/home/hvduser USER=hvduser)

script() { # LINES...: the batch script; TMPDIR and what else is this case's stays with it
    printf '%s\n' '#!/bin/bash' 'unset TMPDIR XDG_RUNTIME_DIR' "$@" > "$T/job.sh"
    chmod +x "$T/job.sh"
}

# Files must be writable where the script runs, and both streams of it are looked at.
batch() { # OPTIONS of sbatch: to the job's end; $status is sbatch's, which is the job's
    "${as[@]}" timeout 40 sbatch -W --parsable -o "$T/out" -e "$T/err" "$@" "$T/job.sh" > "$T/id" 2> "$T/sbatch.err"
    status=$?
    read -r id < "$T/id" || fail "sbatch: $(cat "$T/sbatch.err")"
}

batch_start() { # OPTIONS of sbatch: $id is the job's
    : > "$T/out"
    chmod 666 "$T/out"
    id=$("${as[@]}" timeout 10 sbatch --parsable -o "$T/out" -e "$T/err" "$@" "$T/job.sh") || fail "sbatch failed"
}

job_field() { # NAME
    scontrol show job "$id" | grep -oE "(^| )$1=[^ ]*" | head -n 1 | cut -d= -f2
}

job_is_over() {
    case $(job_field JobState) in PENDING | RUNNING | COMPLETING | CONFIGURING) return 1 ;; esac
}

show='echo "rank $RANK of $WORLD_SIZE, $LOCAL_RANK of $LOCAL_WORLD_SIZE, on $(hostname)"'

slow_tasks_of_a_job() {
    slurm
    script "exec '$HVDRUN' --verbose sh -c '$show'"
    batch -N3 -n5
    expect_status 0
    expect_err "hosts from Slurm job $id: node1:3,node2:1,node3:1, reached by srun"
    expect_sorted 'rank 0 of 5, 0 of 3, on node1' 'rank 1 of 5, 1 of 3, on node1' 'rank 2 of 5, 2 of 3, on node1' \
        'rank 3 of 5, 0 of 1, on node2' 'rank 4 of 5, 0 of 1, on node3'
    expect_same COMPLETED "$(job_field JobState)" "Slurm's word for the job"
}

slow_gpus_of_a_job() {
    slurm
    script "exec '$HVDRUN' --verbose sh -c '$show'"
    batch -N2 --gpus-per-node=2
    expect_status 0
    expect_err "hosts from Slurm job $id: node1:2,node2:2, reached by srun"
    expect_count 2 'on node2' "$T/out"
    batch -N2 --gres=gpu:1
    expect_err "node1:1,node2:1, reached by srun"
    expect_count 1 'on node2' "$T/out"
}

slow_nothing_asked_for() {
    slurm
    script "'$HVDRUN' -np 6 sh -c '$show'; '$HVDRUN' sh -c '$show'"
    batch -N2
    expect_status 0
    expect_count 3 'of 6.* on node1' "$T/out"
    expect_count 3 'of 6.* on node2' "$T/out"
    expect_count 2 'of 2, 0 of 1' "$T/out"
}

slow_exit_status_of_a_rank() {
    slurm
    script "exec '$HVDRUN' sh -c '[ \$RANK != 2 ] || exit 7; sleep 30'"
    batch -N2 -n4 --ntasks-per-node=2
    expect_status 7
    expect_err 'rank 2 on node2 .* failed first: exit status 7'
    expect_same FAILED "$(job_field JobState)" "Slurm's word for the job"
    expect_same 7:0 "$(job_field ExitCode)" "Slurm's exit code"
}

slow_ssh_instead() {
    slurm
    script "'$HVDRUN' --verbose --rsh ssh sh -c '$show'; '$HVDRUN' --verbose -p 22 -np 2 sh -c '$show'"
    batch -N2 -n2
    expect_status 0
    expect_err 'node1:1,node2:1, reached by ssh'
    expect_no "$T/err" 'reached by srun'
    expect_count 2 'on node2' "$T/out"
}

# Every byte value, both ways, through srun; a label or a terminal would change some.
slow_clean_bytes() {
    slurm
    head -c 3000000 /dev/urandom > "$T/bytes"
    script "export SLURM_LABELIO=1" "'$HVDRUN' --stdin 1 sh -c '[ \$RANK = 0 ] || cat' < '$T/bytes' > '$T/back'"
    batch -N2 -n2
    expect_status 0
    cmp -s "$T/bytes" "$T/back" || fail 'the bytes have changed on their way'
}

slow_environment_of_workers() {
    slurm
    script "exec '$HVDRUN' sh -c 'env | sed -n \"s/^\\(SLURM[^=]*\\)=.*/\\1/p\"'"
    batch -N2 -n2 --ntasks-per-node=1
    expect_status 0
    expect_count 2 '^SLURM_JOB_ID$' "$T/out"
    expect_no "$T/out" '^SLURM_(PROCID|LOCALID|NODEID|STEP_.*|STEPID|NTASKS|NPROCS|LAUNCH_NODE_IPADDR)$'
}

slow_agent_that_is_missing() {
    slurm
    script "cp '$BUILD/hvdagent' /tmp/agent-here" "'$HVDRUN' --agent-path /tmp/agent-here true" 's=$?' 'rm /tmp/agent-here' 'exit $s'
    batch -N2 -n2
    expect_status 125
    expect_err 'node2: .*hvdagent was not found|node2: .*no hvdagent'
}

slow_under_srun() {
    slurm
    script "srun -n2 '$HVDRUN' touch '$T/started'"
    batch -N2 -n2
    expect_status 2
    expect_err 'this is task [01] of the 2 that srun started: each of them would start the whole job'
    [ ! -e "$T/started" ] || fail 'a rank was started'
    script "srun -n1 -N1 --overlap '$HVDRUN' -np 2 sh -c '$show'"
    batch -N2 -n2
    expect_status 0
    expect_count 1 'on node2' "$T/out"
}

# The example of contrib/, as it is, in the directory of the case.
slow_example_in_contrib() {
    slurm
    id=$(cd "$T" && PATH=$BUILD:$PATH timeout 30 sbatch -W --parsable --gpus-per-node=1 -o "$T/out" -e "$T/err" \
        "$top/contrib/slurm.sbatch" sh -c "$show")
    status=$?
    expect_status 0
    expect_sorted 'rank 0 of 2, 0 of 1, on node1' 'rank 1 of 2, 0 of 1, on node2'
    grep -q '"exit_status": *0' "$T/train-$id.json" || fail "no report of job $id"
}

slow_shell_of_salloc() {
    slurm
    run timeout 30 salloc -Q -N2 -n4 --ntasks-per-node=2 env -u TMPDIR "$HVDRUN" --verbose sh -c "$show"
    expect_status 0
    expect_err 'node1:2,node2:2, reached by srun'
    expect_count 2 'on node2' "$T/out"
}

slow_heterogeneous_job() {
    slurm
    run timeout 30 salloc -Q -N1 -n2 : -N2 -n3 env -u TMPDIR "$HVDRUN" --verbose sh -c "$show"
    expect_status 0
    expect_err 'reached by ssh'
    expect_count 5 'of 5' "$T/out"
    expect_count 2 'on node1' "$T/out"
}

# ---- the end of a job that Slurm or somebody ends -----------------------------------------------------------------
# A worker that ignores SIGTERM, and a child of it, on each node; the files say that they were there.
stubborn='trap "" TERM; sh -c "trap : TERM; sleep 321; sleep 321" & echo "up on $(hostname)"; while :; do sleep 321; done'

running_job() { # OPTIONS of hvdrun
    slurm
    script "exec '$HVDRUN' $* sh -c '$stubborn'"
    batch_start -N3 -n3
    until_out 20 'up on' 3
}

slow_scancel_with_srun() {
    running_job --grace 1
    mark_time
    scancel "$id"
    until_true 15 job_is_over || fail "the job is still $(job_field JobState)"
    expect_same CANCELLED "$(job_field JobState)" "Slurm's word for the job"
    nothing_left
    expect_within 15
}

slow_scancel_with_ssh() {
    running_job --grace 1 --rsh ssh
    scancel "$id"
    until_true 15 job_is_over || fail "the job is still $(job_field JobState)"
    nothing_left
}

# SIGKILL at once, for the steps and the batch script: nobody tells the agents that were started by ssh.
slow_scancel_kill_with_ssh() {
    running_job --grace 1 --heartbeat-timeout 4 --rsh ssh
    scancel --full --signal=KILL "$id"
    until_true 15 job_is_over || fail "the job is still $(job_field JobState)"
    leave_within=8
    nothing_left
}

kill_hvdrun() {
    local launcher
    launcher=$(on 1 "pgrep -x hvdrun")
    [ -n "$launcher" ] || fail 'no hvdrun on node1'
    on 1 "kill -9 $launcher"
    until_true 15 job_is_over || fail "the job is still $(job_field JobState)"
    expect_same FAILED "$(job_field JobState)" "Slurm's word for the job"
    leave_within=8
    nothing_left
}

slow_hvdrun_is_killed_with_srun() {
    running_job --grace 1 --heartbeat-timeout 4
    kill_hvdrun
}

slow_hvdrun_is_killed_with_ssh() {
    running_job --grace 1 --heartbeat-timeout 4 --rsh ssh
    kill_hvdrun
}

slow_srun_itself_is_killed() {
    local carrier
    running_job --grace 1 --heartbeat-timeout 4
    carrier=$(on 1 "pgrep -x srun | head -n 1")
    on 1 "kill -9 $carrier"
    until_true 20 job_is_over || fail "the job is still $(job_field JobState)"
    expect_err 'node[23]'
    leave_within=8
    nothing_left
}

# Slurm kills every process of every step at once, so nobody can clean up; the next agent on a host does.
slow_scancel_kill_with_srun() {
    running_job --grace 1 --heartbeat-timeout 4
    scancel --full --signal=KILL "$id"
    until_true 15 job_is_over || fail "the job is still $(job_field JobState)"
    until_true 8 no_processes || fail "processes were left: $(leftover_processes)"
    script "exec '$HVDRUN' true"
    batch -N3 -n3
    expect_status 0
    nothing_left
}

slow_an_ordinary_user() {
    slurm
    as=("${ordinary[@]}")
    script "'$HVDRUN' --verbose sh -c 'echo \"\$RANK is \$(id -un)\"'" "'$HVDRUN' -p 22 true"
    batch -N2 -n2
    expect_status 0
    expect_err 'reached by srun'
    expect_err 'containment subreaper'
    expect_sorted '0 is hvduser' '1 is hvduser'
}

slow_scancel_of_an_ordinary_user() {
    as=("${ordinary[@]}")
    running_job --grace 1 --heartbeat-timeout 4 -p 22
    scancel --full --signal=KILL "$id"
    until_true 15 job_is_over || fail "the job is still $(job_field JobState)"
    leave_within=8
    nothing_left
}

# A node is given back while the job runs: its rank leaves, the others go on.
slow_an_elastic_job_shrinks() {
    slurm
    script 'export SLURM_HOSTS_SECONDS=1' \
        "exec '$HVDRUN' -np 2 --min-np 1 --host-discovery-script '$top/contrib/slurm-hosts.sh 1' '$BUILD/tests/trainee' 1000"
    batch_start -N2 -n2
    until_out 20 '^enter . [0-9]+ . 2 1 0$' 2
    scontrol update JobId="$id" NumNodes=1 || fail 'scontrol update'
    until_true 30 job_is_over || fail "the job is still $(job_field JobState)"
    expect_out '^enter 0 [0-9]+ 0 1 2 [0-9]+$'
    expect_out '^done 0 1000$'
    expect_same COMPLETED "$(job_field JobState)" "Slurm's word for the job"
    nothing_left
}
