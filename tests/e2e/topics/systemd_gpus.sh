# shellcheck shell=bash disable=SC2034,SC2154
# The managed agent and the GPUs of its node: what it tells of them, and that one with a fault keeps new jobs away. The driver's
# library is a double (tests/e2e/nvml_double.c), the kernel's log a file.
needs_root=1
limit=90
# shellcheck source=tests/e2e/systemd_host.sh
. "$top/tests/e2e/systemd_host.sh"

gpus() { # LINE...: what the double says from the next look on
    printf '%s\n' "$@" | there sh -c 'cat > /run/gpus/nvml'
}

boot_with() { # LINE...
    [ -e "$BUILD/tests/nvml/libnvidia-ml.so.1" ] || skip 'the double of NVML was not built'
    boot
    conf 'slots: 0' 'gpu_interval: 1' 'kernel_log: /run/gpus/kmsg'
    there mkdir -p /etc/systemd/system/hvdagent.service.d /usr/local/lib/nvml /run/gpus
    cp "$BUILD/tests/nvml/libnvidia-ml.so.1" "$T/"
    there cp "$T/libnvidia-ml.so.1" /usr/local/lib/nvml/
    there sh -c ': > /run/gpus/kmsg
        printf "[Service]\nEnvironment=LD_LIBRARY_PATH=/usr/local/lib/nvml HVD_TEST_NVML=/run/gpus/nvml\n" > /etc/systemd/system/hvdagent.service.d/gpus.conf'
    there systemctl daemon-reload
    gpus "$@"
}

ctl_as() { # USER ARGUMENTS
    local who=$1
    shift
    timeout 20 "$machine" as "$who" /usr/local/bin/hvdctl "$@" > "$T/out" 2> "$T/err" < /dev/null
    status=$?
}

ctl() { # ARGUMENTS, as root
    timeout 20 "$machine" exec /usr/local/bin/hvdctl "$@" > "$T/out" 2> "$T/err" < /dev/null
    status=$?
}

refused() { # REGEX
    as bob -np 1 touch "$T/started"
    expect_status 125
    one_clear_line "^hvdrun: (host )?localhost: .*the managed agent refuses: it is not healthy: $1" "$1"
    [ ! -e "$T/started" ] || fail 'the command was started'
}

a_job_runs() {
    as bob -np 1 echo fine
    expect_status 0
    expect_out '^fine$'
}

until_gpus() { # REGEX: what hvdctl gpus shows
    until_true 10 gpus_show "$1" || fail "hvdctl gpus does not show $1: $(cat "$T/out")"
}

gpus_show() {
    ctl gpus
    grep -qE -- "$1" "$T/out"
}

kernel_says() { # TEXT
    there sh -c "echo '$1' >> /run/gpus/kmsg"
}

slow_who_has_which_gpu_and_who_waits() {
    boot_with 'gpus 4' 'slowed 3 40'
    # shellcheck disable=SC2016
    start_as alice -np 2 sh -c 'echo ready; until [ -e '"$T"'/go ]; do sleep 0.05; done'
    until_job '^ready' 2
    ctl_as alice gpus
    expect_status 0
    expect_count 1 '^driver 550\.54\.14, CUDA up to 12\.4; asked [0-9.]+ s ago$' "$T/out"
    expect_count 2 '^ +[01]  Double H100 80GB .* GPU-0000000[01]-.* 2\.0/80 GiB  4[01] C   25%     0     0  -            [0-9a-f-]+ alice +well$' "$T/out"
    expect_count 2 '^ +[23]  Double H100 80GB .* -  +well$' "$T/out"
    expect_count 1 '^ +3  Double H100 80GB .*  heat         -  +well$' "$T/out"
    ctl_as bob gpus
    expect_count 2 '^ +[01]  Double .* taken  +well$' "$T/out"
    expect_no "$T/out" alice
    ctl_as bob gpus --json
    /usr/bin/python3 -c '
import json, sys
g = json.load(open(sys.argv[1]))
assert [(x["index"], x["taken"], x["job"], x["user"], x["healthy"]) for x in g["gpus"]] == [(i, i < 2, None, None, True) for i in range(4)], g
assert [x["slowed_by"] for x in g["gpus"]] == [None, None, None, "heat"], g
assert (g["gpus"][3]["bus_id"], g["gpus"][3]["temperature"], g["checked"], g["unhealthy"]) == ("0000:03:00.0", 43, True, None), g' "$T/out" ||
        fail "no JSON as it should be: $(cat "$T/out")"
    "$machine" as bob /usr/local/bin/hvdrun --wait -np 3 --priority 7 true < /dev/null > /dev/null 2> "$T/waits" &
    until_true 10 grep -q 'place 1 of 1' "$T/waits" || fail "it does not wait: $(cat "$T/waits")"
    ctl_as bob node
    expect_count 1 '^- +alice +2 .* 0,1$' "$T/out"
    expect_count 1 '^[0-9a-f]+-[0-9a-f]+ +bob +3  7$' "$T/out"
    ctl_as alice node
    expect_count 1 '^- +bob +3  7$' "$T/out"
    local own waiting
    own=$(leases | sed 's/^hvd-//')
    ctl_as bob node
    waiting=$(awk '$2 == "bob" { print $1 }' "$T/out")
    ctl_as alice status "$own"
    expect_status 0
    expect_count 1 '^GPUs: 0,1, leased to it$' "$T/out"
    ctl_as bob status "${waiting%?}"
    expect_status 0
    expect_out "^job $waiting of bob: waiting for 3 slots: place 1 of 1, priority 7; 2 of 4 slots are taken\$"
    ctl_as bob status "$waiting" --json
    /usr/bin/python3 -c '
import json, sys
w = json.load(open(sys.argv[1]))
assert (w["phase"], w["place"], w["waiting"], w["slots"], w["user"]) == ("waiting", 1, 1, 3, "bob"), w' "$T/out" || fail "no JSON as it should be: $(cat "$T/out")"
    ctl_as alice status "$waiting"
    expect_status 1
    expect_err "no job on this host is named $waiting"
    ctl_as alice node --json
    /usr/bin/python3 -c '
import json, sys
s = json.load(open(sys.argv[1]))
assert s["gpus"] == 4 and s["leases"][0]["gpus"] == "0,1", s
assert [(w["place"], w["job"], w["user"], w["slots"], w["priority"]) for w in s["waiting"]] == [(1, None, "bob", 3, 7)], s' "$T/out" ||
        fail "no JSON as it should be: $(cat "$T/out")"
    ctl_as bob metrics
    expect_count 1 '^hvd_gpu_leased\{gpu="1",uuid="GPU-00000001-0000-4000-8000-000000000000"\} 1$' "$T/out"
    expect_count 1 '^hvd_gpu_temperature_celsius\{gpu="3",.*\} 43$' "$T/out"
    expect_count 1 '^hvd_gpu_slowed_by_heat\{.*\} 1$' "$T/out"
    expect_count 1 '^hvd_gpu_slowed_by_heat\{gpu="3",.*\} 1$' "$T/out"
    expect_count 4 '^hvd_gpu_slowed_by_power_cap\{.*\} 0$' "$T/out"
    expect_count 4 '^hvd_gpu_healthy\{.*\} 1$' "$T/out"
    expect_count 4 '^hvd_gpu_xid_total\{.*\} 0$' "$T/out"
    expect_count 4 '^hvd_gpu_ecc_uncorrected_errors\{.*\} 0$' "$T/out"
    touch "$T/go"
    stop_job
    expect_status 0
    wait
    all_over
    shut
}

slow_a_gpu_with_a_fault_keeps_new_jobs_away() {
    boot_with 'gpus 2'
    start_job
    gpus 'gpus 2' 'temperature 1 95'
    until_gpus '^no new jobs: GPU 1 \(GPU-0.*\): 95 degrees Celsius, the limit is 87$'
    refused 'GPU 1 \(GPU-00000001-.*\): 95 degrees Celsius, the limit is 87'
    ctl node
    expect_count 1 '^no new jobs: GPU 1 .*95 degrees' "$T/out"
    ctl metrics
    expect_count 1 '^hvd_gpu_healthy\{gpu="1",.*\} 0$' "$T/out"
    gpus 'gpus 2'
    until_true 10 a_job_may_start || fail 'it is still refused when the GPU has cooled down'
    kernel_says "4,9,9000000,-;NVRM: Xid (PCI:0000:01:00): 13, pid=7, name=train, Graphics Exception"
    a_job_runs
    kernel_says "4,10,9000001,-;NVRM: Xid (PCI:0000:01:00): 79, pid=7, GPU has fallen off the bus."
    refused 'GPU 1 .*: Xid 79 \(pid=7, GPU has fallen off the bus\.\)'
    there kill -KILL "$(agent_pid)"
    until_true 10 agent_started 1 || fail 'it was not started again'
    refused 'GPU 1 .*: Xid 79'
    ctl_as bob accept
    expect_status 1
    expect_err 'only root may accept GPUs'
    ctl accept
    expect_status 0
    expect_count 1 '^ +1  Double .* 2  -  +well$' "$T/out"
    a_job_runs
    gpus 'gpus 2' 'ecc 0 3'
    until_gpus ECC.*allowed
    refused 'GPU 0 .*: 3 uncorrected memory errors \(ECC\), 0 allowed'
    ctl accept
    a_job_runs
    there systemctl restart hvdagent.service
    a_job_runs
    gpus 'gpus 2' 'error 1 15'
    until_gpus 'GPU is lost'
    refused 'GPU 1 .*: it does not answer: GPU is lost'
    conf 'slots: 0' 'gpu_checks: [none]'
    there systemctl reload hvdagent.service
    a_job_runs
    touch "$T/go"
    stop_job
    expect_status 0
    all_over
    shut
}

a_job_may_start() {
    timeout 20 "$machine" as bob /usr/local/bin/hvdrun -np 1 true < /dev/null > /dev/null 2>&1
}

slow_a_driver_that_hangs_holds_up_nobody() {
    boot_with 'gpus 2'
    a_job_runs
    gpus 'gpus 2' 'hang count'
    sleep 3 # seconds: a look hangs by now
    local began=$SECONDS
    ctl node
    expect_status 0
    [ $((SECONDS - began)) -le 2 ] || fail "the agent was held up for $((SECONDS - began)) s"
    ctl gpus
    expect_status 0
    expect_out "^no new jobs: GPU 0 .*: NVIDIA's driver did not answer within 8 s; and 1 more$"
    refused "GPU 0 .*: NVIDIA's driver did not answer within 8 s"
    gpus 'gpus 2'
    until_true 20 a_job_may_start || fail 'it is still refused when the driver answers'
    # shellcheck disable=SC2016
    until_true 5 no_look || fail "looks were left: $(there sh -c 'ps -o pid,stat,args -C hvdagent')"
    all_over
    shut
}

no_look() { # no process of one that hung, nor what is left of one
    [ -z "$(there ps -o stat= -C hvdagent | grep Z)" ] && [ "$(there ps -o args= -C hvdagent | grep -c ' gpus')" -le 1 ]
}

slow_a_node_without_gpus_says_why() {
    boot_with 'gpus 1' 'mig 0 0'
    ctl gpus
    expect_status 0
    expect_count 1 '^the managed agent knows of no GPU: found 1 GPUs in MIG mode without an instance: each needs one' "$T/out"
    there journalctl -u hvdagent -o cat | grep -q 'warning: found 1 GPUs in MIG mode' || fail 'the journal does not say it'
    a_job_runs
    all_over
    shut
}

slow_instances_are_leased_by_name() {
    boot_with 'gpus 2' 'mig 1 2'
    # shellcheck disable=SC2016
    devices='echo $HOROVOD_RANK ${CUDA_VISIBLE_DEVICES-unset}'
    start_as alice -np 1 sh -c "$devices; until [ -e $T/go ]; do sleep 0.05; done"
    until_job '^0 GPU-00000000-0000-4000-8000-000000000000$'
    as bob -np 2 sh -c "$devices"
    expect_status 0
    expect_sorted '0 MIG-00000001-0000-4000-8000-000000000001' '1 MIG-00000001-0000-4000-8000-000000000002'
    gpus 'gpus 2' 'mig 1 1'
    until_gpus 'it is gone'
    refused 'GPU 2 \(MIG-.*\): it is gone: the driver does not know it any more'
    touch "$T/go"
    stop_job
    expect_status 0
    until_true 10 no_leases || fail "the lease was left: $(leases)"
    ctl accept
    expect_count 2 ' well$' "$T/out"
    as bob -np 2 sh -c "$devices"
    expect_status 0
    expect_out '^1 MIG-00000001-0000-4000-8000-000000000001$'
    all_over
    shut
}

# Of the GPUs of its lease alone, in the session's unit.
slow_mps_of_a_lease() {
    [ -e "$BUILD/tests/mps/nvidia-cuda-mps-control" ] || skip 'the double of MPS was not built'
    boot_with 'gpus 4'
    cp "$BUILD/tests/mps/nvidia-cuda-mps-control" "$T/"
    there cp "$T/nvidia-cuda-mps-control" /usr/local/bin/
    there systemctl set-environment LD_LIBRARY_PATH=/usr/local/lib/nvml HVD_TEST_NVML=/run/gpus/nvml
    # shellcheck disable=SC2016
    as bob --mps yes -np 2 -x MPS_DOUBLE=server sh -c 'echo $CUDA_VISIBLE_DEVICES; ls "$CUDA_MPS_PIPE_DIRECTORY"; pgrep -cx nvidia-cuda-mps
        tr "\0" "\n" < "/proc/$(pgrep -ox nvidia-cuda-mps)/environ" | grep ^CUDA_VISIBLE_DEVICES'
    expect_status 0
    expect_count 4 '^(CUDA_VISIBLE_DEVICES=)?GPU-00000000-0000-4000-8000-000000000000,GPU-00000001-0000-4000-8000-000000000000$' "$T/out"
    expect_count 2 '^control$' "$T/out"
    expect_count 2 '^2$' "$T/out"
    ! there pgrep nvidia-cuda-mps || fail 'something of the service was left'
    all_over
    shut
}
