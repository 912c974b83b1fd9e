# shellcheck shell=bash disable=SC2034,SC2154
# Each worker learns who it is: Horovod's ranks and sizes, torch's variables, OpenMPI's.

# shellcheck disable=SC2016
show='echo $HOROVOD_RANK/$HOROVOD_SIZE $HOROVOD_LOCAL_RANK/$HOROVOD_LOCAL_SIZE $HOROVOD_CROSS_RANK/$HOROVOD_CROSS_SIZE'

case_ranks_and_sizes() {
    hvd -np 3 sh -c "$show"
    expect_status 0
    expect_sorted '0/3 0/3 0/1' '1/3 1/3 0/1' '2/3 2/3 0/1'
}

case_one_rank() {
    hvd -np 1 sh -c "$show"
    expect_sorted '0/1 0/1 0/1'
}

case_np_defaults_to_all_slots() {
    hvd -H localhost:3 sh -c "$show"
    expect_sorted '0/3 0/3 0/1' '1/3 1/3 0/1' '2/3 2/3 0/1'
}

case_a_host_named_twice_adds_up() {
    hvd -np 3 -H localhost:1,localhost:2 sh -c "$show"
    expect_sorted '0/3 0/3 0/1' '1/3 1/3 0/1' '2/3 2/3 0/1'
}

case_torch_variables() {
    # shellcheck disable=SC2016
    hvd -np 2 sh -c 'echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE ${MASTER_ADDR:+addr} $([ "$MASTER_PORT" -gt 0 ] && echo port)'
    expect_sorted '0 2 0 2 addr port' '1 2 1 2 addr port'
    # shellcheck disable=SC2016
    hvd -np 2 sh -c 'echo $ROLE_RANK $ROLE_WORLD_SIZE $ROLE_NAME $GROUP_RANK $GROUP_WORLD_SIZE ${TORCHELASTIC_RUN_ID:+id} $TORCHELASTIC_USE_AGENT_STORE $TORCH_NCCL_ASYNC_ERROR_HANDLING'
    expect_sorted '0 2 default 0 1 id False 1' '1 2 default 0 1 id False 1'
}

# As functions with @record of torch do it. Of ranks that fail because another one does, nothing is said.
case_a_rank_says_why_in_torch_s_file() {
    # shellcheck disable=SC2016
    hvd -np 2 sh -c '[ $RANK = 1 ] || sleep 30; echo "{\"message\": {\"message\": \"ValueError: bad\"}}" > "$TORCHELASTIC_ERROR_FILE"; exit 7'
    expect_status 7
    expect_err 'rank 1 on localhost \(pid [0-9]+\) failed first: gave up: ValueError: bad; exit status 7'
    # shellcheck disable=SC2016
    hvd -np 1 sh -c 'echo "no message" > "$TORCHELASTIC_ERROR_FILE"; exit 7'
    expect_status 7
    expect_err 'rank 0 on localhost \(pid [0-9]+\) failed first: exit status 7'
}

case_torchrun_s_flags_are_known() {
    hvd --nproc-per-node 4 true
    expect_status 2
    expect_err '^hvdrun: --nproc-per-node: this is a flag of torchrun'
    expect_err "^hvdrun: hint: torchrun's --nproc-per-node is -np here, the number of all ranks"
    hvd --rdzv_backend=c10d true
    expect_status 2
    expect_err '^hvdrun: hint: leave it out'
}

case_openmpi_variables() {
    # shellcheck disable=SC2016
    hvd -np 2 sh -c 'echo $OMPI_COMM_WORLD_RANK $OMPI_COMM_WORLD_SIZE $OMPI_COMM_WORLD_LOCAL_RANK $OMPI_COMM_WORLD_LOCAL_SIZE'
    expect_sorted '0 2 0 2' '1 2 1 2'
    # shellcheck disable=SC2016
    hvd -H localhost:4 -np 2 true : -np 1 sh -c 'echo $OMPI_COMM_WORLD_NODE_RANK, $OMPI_UNIVERSE_SIZE, $OMPI_NUM_APP_CTX, $OMPI_FIRST_RANKS, $OMPI_APP_CTX_NUM_PROCS'
    expect_status 0
    expect_sorted '2, 4, 2, 0 2, 2 1'
}

case_inherited_ranks_do_not_reach_workers() {
    export SLURM_PROCID=77 PMI_RANK=77 PMI_FD=9 OMPI_COMM_WORLD_NODE_RANK=77 HOROVOD_RANK=77 RANK=77
    hvd -np 2 env
    unset SLURM_PROCID PMI_RANK PMI_FD OMPI_COMM_WORLD_NODE_RANK HOROVOD_RANK RANK
    expect_status 0
    expect_no "$T/out" '=77$'
    expect_no "$T/out" '^PMI_FD='
}

case_workers_hold_no_descriptors_of_ours() {
    hvd -np 2 sh -c 'ls /proc/self/fd | tr "\n" " "; echo'
    expect_count 2 '^0 1 2 3 $' "$T/out" # 3 is the directory that ls reads
}

case_workers_start_with_default_signals() {
    # Not through a shell: one that has just started a program may still block signals itself.
    run env --default-signal "$HVDRUN" -np 1 grep -E "^Sig(Ign|Blk)" /proc/self/status
    # Under make the signals 32 and 33 are ignored; they are the C library's own, and nobody can change that through it.
    expect_count 2 '(0{16}|0{7}180{7})$' "$T/out"
}

case_dry_run_starts_nothing() {
    hvd --dry-run -np 4 -H localhost:2,nowhere.invalid:2 touch "$T/started"
    expect_status 0
    expect_out 'nowhere.invalid'
    expect_out 'localhost'
    [ ! -e "$T/started" ] || fail "the command was started"
}

case_dry_run_as_json() {
    hvd --dry-run=json -np 6 -H "localhost:2,me@nowhere.invalid,[::2]:2,c:1" sh -c 'echo "a b"'
    expect_status 0
    /usr/bin/python3 -c '
import json, sys
d = json.load(open(sys.argv[1]))
assert d["ranks"] == 6 and d["command"] == ["sh", "-c", "echo \"a b\""], d
h = d["hosts"]
assert [x["name"] for x in h] == ["localhost", "nowhere.invalid", "::2", "c"], h
assert h[0] == {"name": "localhost", "user": None, "transport": "local", "slots": 2, "first_rank": 0, "ranks": 2, "rank_list": [0, 1]}, h[0]
assert (h[1]["user"], h[1]["transport"], h[1]["slots"], h[1]["first_rank"], h[1]["ranks"]) == ("me", "ssh", None, 2, None), h[1]
assert h[2]["first_rank"] is None, h[2]' "$T/out" || fail "no JSON as it should be: $(cat "$T/out")"
    hvd --dry-run=json -H "localhost:2,c:3,d:1" -np 4 true
    /usr/bin/python3 -c '
import json, sys
d = json.load(open(sys.argv[1]))
assert [(x["first_rank"], x["ranks"]) for x in d["hosts"]] == [(0, 2), (2, 2)] and d["hosts_not_needed"] == 1, d' "$T/out" ||
        fail "no JSON as it should be: $(cat "$T/out")"
}

# The example of contrib/, as it is; then what is stronger than it, and a slip in it.
case_options_from_a_file() {
    hvd --config-file "$top/contrib/train.conf" sh -c 'echo "$HVD_RANK of $HVD_SIZE $OMP_NUM_THREADS ${LD_PRELOAD-none}"'
    expect_status 0
    expect_out '^\[0@localhost\]<stdout>:0 of 2 4 none$'
    expect_out '^\[1@localhost\]<stdout>:1 of 2 4 none$'
    HVDRUN_NUM_PROC=3 HVDRUN_CONFIG_FILE=$top/contrib/train.conf hvd --tag none sh -c 'echo "of $HVD_SIZE"'
    expect_status 0
    expect_count 3 '^of 3$' "$T/out"
    sed 's/warning_time/warnin_time/' "$top/contrib/train.conf" > "$T/job.conf"
    hvd --config-file "$T/job.conf" true
    expect_status 2
    expect_err "job.conf:[0-9]+: unknown key stall_check.warnin_time_seconds"
    expect_err 'did you mean stall_check.warning_time_seconds'
}

case_version_help_and_check_build() {
    hvd --version
    expect_status 0
    expect_out '[0-9]+\.[0-9]+'
    hvd --help
    expect_status 0
    expect_out '--hostfile'
}

# Every program and module that was built can be opened, and is the one of this tree.
expect_build_usable() { # DIRECTORY of the modules
    local file count=0
    expect_status 0
    for file in hvdagent "$1"/*; do
        file=${file##*/}
        grep -qE "^    \[X\] ${file%.so} +/" "$T/out" || fail "$file: $(grep -w "${file%.so}" "$T/out" || cat "$T/out")"
        count=$((count + 1))
    done
    [ $count -ge 4 ] || fail "$1 has $((count - 1)) files"
    expect_count $((count - 1)) " $1/" "$T/out"
}

case_check_build_opens_all_modules() {
    hvd --check-build
    expect_build_usable "$BUILD/modules"
    make -s -C "$top" -o all BUILD="$BUILD" PREFIX=/usr DESTDIR="$T/installed" install > "$T/make" 2>&1 || fail "$(tail -n 3 "$T/make")"
    "$T/installed/usr/bin/hvdrun" --check-build > "$T/out" 2> "$T/err"
    status=$?
    expect_build_usable "$T/installed/usr/bin/../lib/hvd"
}

# Without the optional libraries a build goes on without some parts: the build, --check-build and whoever wants the part say so.
case_what_a_build_leaves_out_is_said() {
    local file package left
    left=$(make -n -C "$top" BUILD="$T/none" PKG_CONFIG=false all 2> /dev/null | sed -n "s/^echo '\(left out of this build: .*\)'$/\1/p")
    expect_same 1 "$(wc -l <<< "$left")" 'the lines about what is left out'
    mkdir -p "$T/bin/modules"
    cp "$HVDRUN" "$BUILD/hvdagent" "$T/bin"
    cp -s "$BUILD"/modules/* "$T/bin/modules"
    HVDRUN=$T/bin/hvdrun
    while read -r file package; do
        rm -f "$T/bin/modules/$file"
        hvd --check-build
        expect_status 0
        expect_out "^    \[ \] ${file%.so} +this build has no "
        expect_out "^ +install $package "
        [[ $left == *"($package)"* ]] || fail "make does not name $package: $left"
    done <<< "hvd-pmix libpmix-dev
gloo.so libmicrohttpd-dev
metrics.so libmicrohttpd-dev
yaml.so libyaml-dev
topology.so libhwloc-dev
systemd.so libsystemd-dev"
    hvd --config-file "$top/contrib/train.conf" true
    expect_status 125
    one_clear_line '^hvdrun: this build has no configuration files' 'a file'
}
