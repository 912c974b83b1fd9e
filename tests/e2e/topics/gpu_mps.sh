# shellcheck shell=bash disable=SC2034,SC2154
# --mps: CUDA's multi-process service for a job, started and ended by its sessions. The service is a double
# (tests/gpu/double/mps/control.c), and so are the GPUs, of which only NVML is asked.
limit=40

first=GPU-00000000-0000-4000-8000-000000000000
second=GPU-00000001-0000-4000-8000-000000000000
# shellcheck disable=SC2016
shown='echo $HVD_RANK $CUDA_VISIBLE_DEVICES ${CUDA_MPS_PIPE_DIRECTORY-unset}'

mps_here() { # GPUS [MISBEHAVIOUR]
    [ ! -e /tmp/nvidia-mps/control ] || skip 'this machine has an MPS control daemon of its own'
    export LD_LIBRARY_PATH=$BUILD/tests/nvml:$BUILD/tests/gpu HVD_TEST_GPUS=$1 MPS_DOUBLE=${2:-} MPS_DOUBLE_LOG=$T/mps
    PATH=$BUILD/tests/mps:$PATH
    : > "$T/mps"
}

without_program() { # NAME: the folders of PATH that do not have it
    local folder kept=
    while read -rd: folder; do
        [ -x "$folder/$1" ] || kept=$kept:$folder
    done <<< "$PATH:"
    PATH=${kept#:} type -P env > /dev/null || kept=
    echo "${kept#:}"
}

daemon_pid() {
    sed -n 's/^daemon \([0-9]*\) .*/\1/p' "$T/mps"
}

not_started() {
    expect_no "$T/mps" .
}

ours() { # NAME: processes of the job that run it
    local one found=1
    for one in $(own_programs "$pid"); do
        [ "$(cat "/proc/$one/comm" 2>/dev/null)" != "$1" ] || { echo "$one" && found=0; }
    done
    return $found
}

running_job() { # ARGUMENTS: ranks that say ready and stay
    start "$@" sh -c 'trap "" TERM; echo ready; while :; do sleep 0.1; done'
    until_out 10 ready 3
    kill -0 "$(daemon_pid)" || fail 'there is no daemon'
}

# The daemon and its server, which has a session of its own and which nobody tells to end.
gone() {
    local one
    for one in $(sed -n 's/^\(daemon\|server\) \([0-9]*\).*/\2/p' "$T/mps"); do
        ! kill -0 "$one" 2>/dev/null || return 1
    done
}

case_it_serves_the_gpus_of_the_job() {
    mps_here 2
    hvd --mps yes -np 2 -H localhost:2 --log-level info sh -c "$shown"
    expect_status 0
    expect_count 2 "^[01] $first,$second $XDG_RUNTIME_DIR/.*/mps\$" "$T/out"
    expect_err "^hvdrun: info: localhost: --mps: nvidia-cuda-mps-control \\(pid [0-9]+\\) serves $first,$second\$"
    expect_same "daemon N gpus $first,$second order PCI_BUS_ID
CUDA_MPS_PIPE_DIRECTORY private
CUDA_MPS_LOG_DIRECTORY private
told get_server_list
told quit" "$(sed 's/daemon [0-9]*/daemon N/; /^nobody to ask$/d' "$T/mps")" 'what the daemon saw' # it is asked until it has begun
}

# By number they would be counted among those of the daemon.
case_lists_name_gpus_by_uuid() {
    mps_here 4
    export CUDA_VISIBLE_DEVICES=3,1,0
    hvd --mps auto --gpu-bind single -np 4 -H localhost:4 -x CUDA_VISIBLE_DEVICES=1,0 sh -c "$shown"
    expect_status 0
    expect_count 2 "^[02] $second /" "$T/out"
    expect_count 2 "^[13] $first /" "$T/out"
    expect_count 1 "^daemon [0-9]* gpus $second,$first order" "$T/mps"
}

case_no_and_auto_without_need() {
    mps_here 2
    hvd -np 3 -H localhost:3 sh -c "$shown"
    expect_sorted '0 0,1 unset' '1 0,1 unset' '2 0,1 unset'
    hvd --mps auto -np 2 -H localhost:2 --log-level info sh -c "$shown"
    expect_sorted '0 0,1 unset' '1 0,1 unset'
    expect_err 'info: localhost: --mps auto: not started, no two processes of the job share a GPU here$'
    not_started
}

case_the_engine_is_its_client() {
    mps_here 2
    start --mps auto --gpu-placement engine -np 2 -H localhost:2 -x LD_LIBRARY_PATH "$BUILD/tests/steps" 100000
    until_true 10 ours hvd-engine > "$T/engine" || fail 'there is no engine'
    tr '\0' '\n' < "/proc/$(cat "$T/engine")/environ" > "$T/environ"
    expect_count 1 "^CUDA_MPS_PIPE_DIRECTORY=$XDG_RUNTIME_DIR/.*/mps\$" "$T/environ"
    kill -TERM $pid
    stop_status
    expect_count 1 '^told quit$' "$T/mps"
}

case_an_engine_that_takes_turns() {
    mps_here 1
    hvd --gpu-placement engine -np 1 -H localhost:1 true
    expect_status 0
    not_started
    one_clear_line '^hvdrun: warning: localhost: --gpu-placement engine without MPS: .*; --mps auto starts it$' 'turns'
    hvd --gpu-placement worker -np 2 -H localhost:2 true
    expect_no "$T/err" .
}

case_without_the_program_or_gpus() {
    mps_here 1
    kept=$(without_program nvidia-cuda-mps-control)
    [ -n "$kept" ] || skip "nvidia-cuda-mps-control is where all programs are"
    PATH=$kept
    hvd --mps yes -np 2 -H localhost:2 touch "$T/started"
    expect_status 125
    one_clear_line '^hvdrun: localhost: --mps yes: there is no nvidia-cuda-mps-control here \(in PATH\)' 'a missing program'
    [ ! -e "$T/started" ] || fail 'the command was started'
    hvd --mps auto -np 2 -H localhost:2 --log-level info sh -c "$shown"
    expect_sorted '0 0 unset' '1 0 unset'
    expect_err 'info: localhost: --mps auto: not started, there is no nvidia-cuda-mps-control here'
    [ ! -e /proc/driver/nvidia ] || return 0
    unset HVD_TEST_GPUS
    hvd --mps yes -np 1 echo fine
    expect_out fine
    one_clear_line '^hvdrun: warning: localhost: --mps: not started, the job has no GPUs here$' 'no GPUs'
    bad_input '--mps yes is for the GPUs that the ranks are given' --mps yes --gpu-bind none -np 1 true
}

case_one_that_does_not_start() {
    local why='nvidia-cuda-mps-control \(pid [0-9]+\) ended with exit status 1, its last line being "the double refuses"$'
    mps_here 1 refuse
    hvd --mps yes -np 2 -H localhost:2 touch "$T/started"
    expect_status 125
    one_clear_line "^hvdrun: localhost: --mps yes: $why" 'one that refuses'
    [ ! -e "$T/started" ] || fail 'the command was started'
    # shellcheck disable=SC2016
    hvd --mps auto -np 2 -H localhost:2 sh -c 'ls -d "$CUDA_MPS_PIPE_DIRECTORY"; echo fine'
    expect_status 0
    expect_sorted fine fine
    expect_err "^hvdrun: warning: localhost: --mps auto: the job goes on without MPS here: $why"
}

case_its_death_is_the_cause() {
    mps_here 1 'crash 200'
    mark_time
    hvd --mps auto -np 3 -H localhost:3 sleep 30
    expect_within 10
    expect_status 125
    expect_same "hvdrun: host localhost: nvidia-cuda-mps-control (pid $(daemon_pid)) was killed by signal 9 (Killed): the job's processes on this host cannot use their GPUs without it" \
        "$(head -n 1 "$T/err")" 'the first line'
}

case_one_that_is_there_is_used() {
    local own
    mps_here 1
    export CUDA_MPS_PIPE_DIRECTORY=$XDG_RUNTIME_DIR/own
    mkdir -m 700 "$CUDA_MPS_PIPE_DIRECTORY"
    hvd --mps yes -np 1 touch "$T/started"
    expect_status 125
    one_clear_line "^hvdrun: localhost: --mps yes: CUDA_MPS_PIPE_DIRECTORY is $XDG_RUNTIME_DIR/own, where no MPS control daemon answers" nobody
    nvidia-cuda-mps-control -f &
    own=$!
    until_true 5 test -e "$CUDA_MPS_PIPE_DIRECTORY/control" || fail 'the double does not start'
    hvd --mps yes -np 1 --log-level info sh -c "$shown"
    expect_sorted "0 $first $XDG_RUNTIME_DIR/own"
    expect_err "info: localhost: --mps: uses the MPS control daemon of $XDG_RUNTIME_DIR/own, and leaves it running"
    kill -0 $own || fail 'it was ended'
    expect_count 1 '^daemon' "$T/mps"
    kill $own
    wait $own
    rm -r "$CUDA_MPS_PIPE_DIRECTORY"
}

others_service() { # MISBEHAVIOUR: somebody else's, with a client of his
    mps_here 1 "$1"
    export CUDA_MPS_PIPE_DIRECTORY=$XDG_RUNTIME_DIR/own
    mkdir -m 700 "$CUDA_MPS_PIPE_DIRECTORY"
    nvidia-cuda-mps-control -f &
    own=$!
    until_true 5 test -e "$CUDA_MPS_PIPE_DIRECTORY/control" || fail 'the double does not start'
    nvidia-cuda-mps-control client sleep 60 &
    other=$!
}

close_others_service() {
    kill $own
    wait $own
    kill $other
    wait $other
    rm -r "$CUDA_MPS_PIPE_DIRECTORY"
}

# The service would be in an undefined state afterwards, with whatever others have there.
case_clients_of_others_service_are_told_to_end_before_they_are_killed() {
    local own other mps
    for mps in yes no; do
        others_service ''
        start --mps $mps -np 2 -H localhost:2 nvidia-cuda-mps-control client sh -c 'echo ready; exec sleep 60'
        until_out 10 ready 2
        kill -TERM $pid
        stop_status
        expect_no "$T/mps" '^faulted'
        expect_count 2 "^told terminate_client $own [0-9]+\$" "$T/mps"
        kill -0 $other || fail 'the client of somebody else was ended'
        close_others_service
    done
}

# What catches SIGTERM may still need its GPU; it is told when it is killed.
case_a_client_that_catches_sigterm_is_told_when_it_is_killed() {
    local own other
    others_service ''
    start --grace 1 --mps yes -np 2 -H localhost:2 nvidia-cuda-mps-control client \
        sh -c 'trap "echo asked; grep -c terminate '"$T/mps"'" TERM; echo ready; while :; do sleep 0.1; done'
    until_out 10 ready 2
    kill -TERM $pid
    stop_status
    expect_count 2 '^asked$' "$T/out"
    expect_count 2 '^0$' "$T/out"
    expect_no "$T/mps" '^faulted'
    expect_count 2 "^told terminate_client $own [0-9]+\$" "$T/mps"
    close_others_service
}

case_a_service_of_others_that_does_not_answer() {
    local own other
    others_service stuck
    start --mps yes -np 2 -H localhost:2 nvidia-cuda-mps-control client sh -c 'echo ready; exec sleep 60'
    until_out 10 ready 2
    mark_time
    kill -TERM $pid
    stop_status
    expect_within 4
    expect_err "warning: .*the MPS control daemon of $XDG_RUNTIME_DIR/own did not answer within 1 s: other users of it may be harmed"
    close_others_service
}

# Who owns the directory, or a link in it, says who answers next time.
case_links_and_directories_of_others_are_not_used() {
    local own
    mps_here 1
    export CUDA_MPS_PIPE_DIRECTORY=$XDG_RUNTIME_DIR/own
    mkdir -m 700 "$CUDA_MPS_PIPE_DIRECTORY"
    nvidia-cuda-mps-control -f &
    own=$!
    until_true 5 test -e "$CUDA_MPS_PIPE_DIRECTORY/control" || fail 'the double does not start'
    mkdir -m 700 "$XDG_RUNTIME_DIR/other"
    ln -s "$CUDA_MPS_PIPE_DIRECTORY/control" "$XDG_RUNTIME_DIR/other/control"
    CUDA_MPS_PIPE_DIRECTORY=$XDG_RUNTIME_DIR/other hvd --mps yes -np 1 touch "$T/started"
    expect_status 125
    expect_err "$XDG_RUNTIME_DIR/other, where no MPS control daemon answers"
    if [ "$(id -u)" = 0 ]; then
        chown 65534 "$CUDA_MPS_PIPE_DIRECTORY"
        hvd --mps yes -np 1 touch "$T/started"
        expect_status 125
        expect_err "$XDG_RUNTIME_DIR/own, where no MPS control daemon answers"
    fi
    [ ! -e "$T/started" ] || fail 'the command was started'
    kill $own
    wait $own
    rm -r "$CUDA_MPS_PIPE_DIRECTORY" "$XDG_RUNTIME_DIR/other"
}

case_its_answer_comes_when_the_job_ends() {
    mps_here 1 'slow 600'
    start --mps yes -np 2 -H localhost:2 sh -c "touch '$T/started'"
    until_true 5 grep -q '^asks slowly' "$T/mps" || fail 'nobody asks the daemon'
    kill -TERM $pid
    stop_status
    expect_count 1 '^told get_server_list$' "$T/mps"
    [ ! -e "$T/started" ] || fail 'the command was started'
}

case_kill_9_of_hvdrun_leaves_nothing() {
    mps_here 1 server
    running_job --grace 0.2 --mps yes -np 3 -H localhost:3
    kill -KILL $pid
    stop_status
    until_true 10 gone || fail "something of the service was left: $(cat "$T/mps")"
    leave_within=5
}

kill_agent() { # NUMBER of the list above
    mps_here 1 server
    running_job --mps yes -np 3 -H localhost:3
    expect_same 2 "$(ours hvdagent | wc -l)" 'the number of agent processes'
    kill -KILL "$(ours hvdagent | sed -n "$1p")"
    stop_status
    expect_status 125
    until_true 5 gone || fail "something of the service was left: $(cat "$T/mps")"
    leave_within=5
}

slow_kill_9_of_an_agent_process_leaves_nothing() {
    kill_agent 1
}

slow_kill_9_of_the_other_leaves_nothing() {
    kill_agent 2
}

slow_one_that_does_not_answer() {
    mps_here 1 mute
    hvd --mps yes -np 2 -H localhost:2 touch "$T/started"
    expect_status 125
    one_clear_line '^hvdrun: localhost: --mps yes: nvidia-cuda-mps-control \(pid [0-9]+\) did not answer within 10 s$' 'a mute one'
    [ ! -e "$T/started" ] || fail 'the command was started'
    export MPS_DOUBLE=hang
    start --mps yes -np 2 -H localhost:2 touch "$T/started"
    until_true 5 grep -q private "$T/mps"
    kill -TERM $pid # nobody waits for it any more
    mark_time
    stop_status
    expect_within 5
}

slow_one_that_is_slow_to_listen_and_to_quit() {
    mps_here 1 'deaf 300 deaf-to-quit server'
    mark_time
    hvd --mps yes -np 2 -H localhost:2 --log-level debug sh -c "$shown"
    expect_within 10
    expect_status 0
    expect_count 2 "^[01] $first /" "$T/out"
    expect_count 1 '^told quit$' "$T/mps"
    gone || fail "something of the service was left: $(cat "$T/mps")"
    expect_err 'MPS -: quitting -> killing on late'
    grep -q '^nobody to ask' "$T/mps" || fail 'it was asked when it listened only'
}

slow_instances_and_what_is_shown() {
    mps_here 1
    printf '%s\n' 'gpus 2' 'mig 1 2' > "$T/nvml"
    export HVD_TEST_NVML=$T/nvml
    hvd --mps yes -np 3 -H localhost:3 touch "$T/started"
    expect_status 125
    one_clear_line '^hvdrun: localhost: --mps yes: an instance of a GPU in MIG mode would need a service of its own' instances
    hvd --check-build
    expect_out "^    \\[X\\] MPS           $BUILD/tests/mps/nvidia-cuda-mps-control\$"
    hvd --dry-run -np 1 true
    expect_out "^multi-process service \\(--mps\\): $BUILD/tests/mps/nvidia-cuda-mps-control\$"
    not_started
}
