# shellcheck shell=bash disable=SC2034,SC2154
# horovodrun's flags: what stock workers of Horovod read reaches them, what needs nothing says so, the rest is refused.

workers_get() { # "NAME=VALUE ..." OPTION...: these, of those that hvdrun may set, and no other
    local wanted=$1
    shift
    hvd -np 1 "$@" sh -c 'env | grep -E "^HOROVOD_(FUSION|CACHE|CYCLE|NUM_NCCL|THREAD_AFF|GLOO_TIME|HIERARCHICAL_ALLG|TORUS|MPI_T|LOG_)"; :'
    expect_status 0
    expect_no_err
    expect_same "$wanted" "$(sort "$T/out" | xargs)" "what the worker gets of $*"
}

case_workers_get_the_variables() {
    workers_get ''
    hvd -np 1 --verbose sh -c 'env | grep ^HOROVOD_LOG; :'
    expect_sorted ''
    workers_get 'HOROVOD_FUSION_THRESHOLD=33554432' --fusion-threshold-mb 32
    workers_get 'HOROVOD_FUSION_THRESHOLD=0' --fusion-threshold-mb 0
    workers_get 'HOROVOD_CACHE_CAPACITY=0 HOROVOD_CYCLE_TIME=3.500' --cache-capacity 0 --cycle-time-ms 3.5
    workers_get 'HOROVOD_GLOO_TIMEOUT_SECONDS=60 HOROVOD_NUM_NCCL_STREAMS=2 HOROVOD_THREAD_AFFINITY=1,2' \
        --num-nccl-streams 2 --thread-affinity 1,2 --gloo-timeout-seconds 60
    workers_get 'HOROVOD_HIERARCHICAL_ALLGATHER=1 HOROVOD_MPI_THREADS_DISABLE=1 HOROVOD_TORUS_ALLREDUCE=1' \
        --hierarchical-allgather --torus-allreduce --mpi-threads-disable
    workers_get 'HOROVOD_HIERARCHICAL_ALLGATHER=0 HOROVOD_MPI_THREADS_DISABLE=0 HOROVOD_TORUS_ALLREDUCE=0' \
        --no-hierarchical-allgather --no-torus-allreduce --no-mpi-threads-disable
    workers_get 'HOROVOD_LOG_HIDE_TIME=1 HOROVOD_LOG_LEVEL=error' --log-hide-timestamp --log-level ERROR
    workers_get 'HOROVOD_LOG_HIDE_TIME=1' --log-without-timestamp
}

case_the_command_line_wins_over_the_variable() {
    export HOROVOD_FUSION_THRESHOLD=5 HOROVOD_TORUS_ALLREDUCE=1 HOROVOD_LOG_HIDE_TIME=1
    workers_get 'HOROVOD_FUSION_THRESHOLD=1048576 HOROVOD_LOG_HIDE_TIME=0 HOROVOD_TORUS_ALLREDUCE=0' \
        --fusion-threshold-mb 1 --no-torus-allreduce --log-with-timestamp
    workers_get 'HOROVOD_FUSION_THRESHOLD=5 HOROVOD_LOG_HIDE_TIME=1 HOROVOD_TORUS_ALLREDUCE=1'
}

case_what_needs_nothing_says_why_once() {
    hvd -np 2 --gloo --disable-cache --mpi-args '--map-by socket' --binding-args=x echo on
    expect_status 0
    expect_sorted on on
    expect_same 4 "$(wc -l < "$T/err")" 'the number of lines'
    for flag in gloo disable-cache mpi-args binding-args; do
        expect_count 1 "^hvdrun: --$flag: not (needed|used), " "$T/err"
    done
    for flag in mpi jsrun; do
        hvd -np 1 --$flag true
        expect_status 0
        expect_count 1 "^hvdrun: --$flag: not needed, " "$T/err"
    done
    # shellcheck disable=SC2016
    hvd -np 1 --tcp sh -c 'echo $NCCL_IB_DISABLE'
    expect_out '^1$'
    one_clear_line '^hvdrun: --tcp: NCCL gets NCCL_IB_DISABLE=1; ' 'what it does'
    hvd -np 1 --mpi --log-level error true
    expect_no_err
}

case_slots_per_host_is_for_hosts_without_slots() {
    # shellcheck disable=SC2016
    hvd -H localhost --slots-per-host 3 sh -c 'echo $HVD_RANK of $HVD_SIZE'
    expect_status 0
    expect_sorted '0 of 3' '1 of 3' '2 of 3'
    hvd -H localhost:2 --slots-per-host 3 echo x
    expect_sorted x x
    printf 'localhost max_slots=2\n' > "$T/hostfile"
    hvd --hostfile "$T/hostfile" --slots-per-host 3 echo x
    expect_sorted x x
    HVDRUN_SLOTS_PER_HOST=2 hvd echo x
    expect_sorted x x
}

case_a_reset_limit_is_a_number_of_restarts() {
    # shellcheck disable=SC2016
    hvd -np 1 --reset-limit 1 sh -c 'echo $HVD_RESTART_COUNT; exit 4'
    expect_status 4
    expect_sorted 0 1
}
