# Hosts of a batch system's job: what PBS, LSF and Grid Engine leave in files and variables, with real hosts behind it.
# shellcheck shell=bash disable=SC2154,SC2034,SC2016
hosts=2

show='echo "$RANK of $WORLD_SIZE, host $HVD_CROSS_RANK has $LOCAL_WORLD_SIZE"'

three_ranks() { # NAME
    hvd --verbose sh -c "$show"
    expect_status 0
    expect_err "hosts from $1: $H1:2,$H2:1, reached by ssh"
    expect_sorted '0 of 3, host 0 has 2' '1 of 3, host 0 has 2' '2 of 3, host 1 has 1'
}

case_pbs() {
    printf '%s\n' "$H1" "$H2" "$H1" > "$T/nodes"
    export PBS_JOBID=4.server PBS_NODEFILE=$T/nodes
    three_ranks 'PBS job 4.server'
    hvd -H localhost:1 sh -c "$show" # what the user names counts
    expect_sorted '0 of 1, host 0 has 1'
}

slow_lsf() {
    export LSB_JOBID=4 LSB_MCPU_HOSTS="$H1 2 $H2 1"
    three_ranks 'LSF job 4'
    printf '%s\n' "$H1" "$H1" "$H2" > "$T/nodes"
    LSB_MCPU_HOSTS='nowhere 9' LSB_DJOB_HOSTFILE=$T/nodes three_ranks 'LSF job 4'
}

slow_grid_engine() {
    printf '%s\n' "$H1 2 all.q@$H1 UNDEFINED" "$H2 1 all.q@$H2 <NULL>" > "$T/nodes"
    export JOB_ID=4 PE_HOSTFILE=$T/nodes
    three_ranks 'Grid Engine job 4'
}

case_what_is_wrong_is_named() {
    SLURM_JOB_ID=1 SLURM_JOB_NODELIST='n[1-' bad_input "SLURM_JOB_NODELIST: 'n\[1-', byte 2: ']' is missing" touch "$T/started"
    PBS_NODEFILE=/no/such bad_input 'PBS_NODEFILE: .*/no/such: No such file' touch "$T/started"
    printf 'a 2 q u\nb two q u\n' > "$T/nodes"
    PE_HOSTFILE=$T/nodes bad_input "PE_HOSTFILE: $T/nodes:2: 'b:two'" touch "$T/started"
    bad_input '--rsh srun: this is not inside a Slurm job' --rsh srun -H node1:1 touch "$T/started"
    SLURM_JOB_ID=1 SLURM_JOB_NODELIST='n[1-2]' SLURM_NTASKS=2 SLURM_TASKS_PER_NODE='1(x2)' bad_input '3.*2' -np 3 touch "$T/started"
}
