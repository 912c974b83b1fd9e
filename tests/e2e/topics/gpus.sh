# shellcheck shell=bash disable=SC2034,SC2154
# GPUs that NVML counts, here a double of it: slots, and which of them each rank is told of.

# shellcheck disable=SC2016
devices='echo $HOROVOD_RANK/$HOROVOD_SIZE ${CUDA_VISIBLE_DEVICES-unset} ${CUDA_DEVICE_ORDER-unset}'

with_gpus() { # NUMBER ARGUMENT...
    local gpus=$1
    shift
    run env LD_LIBRARY_PATH="$BUILD/tests/nvml" HVD_TEST_GPUS="$gpus" "$HVDRUN" "$@"
}

case_a_slot_for_each_gpu() {
    with_gpus 3 -H localhost sh -c "$devices"
    expect_status 0
    expect_sorted '0/3 0,1,2 PCI_BUS_ID' '1/3 0,1,2 PCI_BUS_ID' '2/3 0,1,2 PCI_BUS_ID'
}

case_one_gpu_for_each_rank() {
    with_gpus 2 -np 3 -H localhost:3 --gpu-bind single sh -c "$devices"
    expect_status 0
    expect_sorted '0/3 0 PCI_BUS_ID' '1/3 1 PCI_BUS_ID' '2/3 0 PCI_BUS_ID'
}

case_the_hosts_own_list_is_honoured() {
    export CUDA_VISIBLE_DEVICES=2,GPU-0a,9
    with_gpus 4 -H localhost sh -c "$devices"
    expect_sorted '0/2 2,GPU-0a,9 PCI_BUS_ID' '1/2 2,GPU-0a,9 PCI_BUS_ID'
    with_gpus 4 -H localhost --gpu-bind single sh -c "$devices"
    unset CUDA_VISIBLE_DEVICES
    expect_sorted '0/2 2 PCI_BUS_ID' '1/2 GPU-0a PCI_BUS_ID'
}

# Without the variable a rank would see them all.
case_a_list_that_names_none_hides_them() {
    with_gpus 2 -np 1 -x CUDA_VISIBLE_DEVICES= sh -c "$devices"
    expect_sorted '0/1 PCI_BUS_ID'
    with_gpus 2 -np 1 -x CUDA_VISIBLE_DEVICES=-1 --gpu-bind single sh -c "$devices"
    expect_sorted '0/1 -1 PCI_BUS_ID'
    expect_no "$T/err" .
    with_gpus 2 -np 1 -x CUDA_VISIBLE_DEVICES=1,7 sh -c "$devices"
    expect_sorted '0/1 1,7 PCI_BUS_ID'
    one_clear_line "^hvdrun: warning: localhost: CUDA_VISIBLE_DEVICES=1,7: '7' is none of the 2 GPUs here; CUDA ends the list there, so the ranks see 1$" 'a GPU that is not there'
}

case_nothing_is_touched() {
    with_gpus 2 -H localhost --gpu-bind none sh -c "$devices"
    expect_sorted '0/2 unset unset' '1/2 unset unset'
    with_gpus 2 -np 1 -x CUDA_DEVICE_ORDER=FASTEST_FIRST sh -c "$devices"
    expect_sorted '0/1 0,1 FASTEST_FIRST'
    hvd -H localhost sh -c "$devices" # no GPU here, or real ones
    expect_status 0
}

# What the double of the driver's library is told is a file (tests/e2e/nvml_double.c).
told() { # LINE... -- ARGUMENT of hvdrun...
    : > "$T/nvml"
    while [ "$1" != -- ]; do
        echo "$1" >> "$T/nvml"
        shift
    done
    shift
    run env LD_LIBRARY_PATH="$BUILD/tests/nvml" HVD_TEST_NVML="$T/nvml" "$HVDRUN" "$@"
}

case_instances_are_slots_with_one_for_each_rank() {
    told 'gpus 2' 'mig 1 2' -- -H localhost sh -c "$devices"
    expect_status 0
    expect_sorted '0/3 GPU-00000000-0000-4000-8000-000000000000 PCI_BUS_ID' '1/3 MIG-00000001-0000-4000-8000-000000000001 PCI_BUS_ID' \
        '2/3 MIG-00000001-0000-4000-8000-000000000002 PCI_BUS_ID'
}

# Since the machine was started nobody has used a GPU: the driver's library lets a setuid program make the devices.
case_devices_that_are_not_made_yet() {
    local as=()
    [ "$(id -u)" != 0 ] || as=(setpriv --reuid nobody --clear-groups)
    open_to_others
    cp -r "$BUILD/tests/nvml" "$OPEN"
    printf 'gpus 1\nfresh\n' > "$OPEN/say"
    run "${as[@]}" env -C "$OPEN" LD_LIBRARY_PATH="$OPEN/nvml" HVD_TEST_NVML="$OPEN/say" "$OPEN/hvdagent" gpus
    expect_status 0
    grep -aq 'Double H100' "$T/out" || fail 'no GPU is found'
}

# Root's own look makes them, with the one right that this takes; a container may have taken it away.
case_devices_that_root_has_made() {
    [ "$(id -u)" = 0 ] || skip 'needs root'
    [ ! -e /dev/nvidiactl ] || skip 'this machine has devices already'
    ((0x$(sed -n 's/^CapEff:[^0-9a-f]*//p' /proc/self/status) & 1 << 27)) || skip 'making devices is not allowed here'
    told 'gpus 2' fresh -- -H localhost sh -c "$devices"
    expect_status 0
    expect_count 2 '^[01]/2 0,1 ' "$T/out"
    run setpriv --bounding-set -mknod --inh-caps -mknod env LD_LIBRARY_PATH="$BUILD/tests/nvml" HVD_TEST_NVML="$T/nvml" "$BUILD/hvdagent" gpus
    expect_status 0
    ! grep -aq 'Double H100' "$T/out" || fail 'a device is made without the right to make one'
}

case_one_line_says_what_is_wrong() {
    told 'gpus 2' 'driver 418.87.00' -- -H localhost sh -c "$devices"
    expect_status 0
    expect_count 2 ' 0,1 ' "$T/out"
    one_clear_line "^hvdrun: warning: localhost: found NVIDIA's driver 418.87.00, which is too old: 450 or newer is needed$" 'an old driver'
    told 'hang name' 'gpus 2' -- --heartbeat-timeout 1 -H localhost sh -c "$devices"
    expect_status 0
    one_clear_line "^hvdrun: warning: localhost: NVIDIA's driver did not answer within 0.5 s; found [0-9]+ GPUs by its files, and one that answers" 'a hanging driver'
}

case_dry_run_and_check_build_show_them() {
    told 'gpus 2' 'mig 1 1' -- --dry-run -H localhost,nowhere.invalid true
    expect_status 0
    expect_out '^ +0  Double H100 80GB +80 GiB  0000:00:00\.0 +[0-9?]+  GPU-00000000-0000-4000-8000-000000000000$'
    expect_out '^ +1  Double MIG 1g\.10gb +10 GiB  0000:01:00\.0 +[0-9?]+  MIG-00000001-0000-4000-8000-000000000001$'
    told 'gpus 1' -- --dry-run -H nowhere.invalid true
    expect_no "$T/out" GPU-
    told 'gpus 2' -- --dry-run=json -H localhost true
    /usr/bin/python3 -c '
import json, sys
d = json.load(open(sys.argv[1]))
assert [(x["index"], x["uuid"], x["bus_id"], x["memory_bytes"]) for x in d["gpus"]] == [
    (i, "GPU-%08d-0000-4000-8000-000000000000" % i, "0000:0%d:00.0" % i, 80 << 30) for i in range(2)], d
assert d["gpu_problem"] is None, d' "$T/out" || fail "no JSON as it should be: $(cat "$T/out")"
    told 'gpus 2' -- --check-build
    expect_out '^    \[X\] NVIDIA driver 550\.54\.14$'
    expect_out '^    \[X\] CUDA driver   for CUDA up to 12\.4$'
    expect_out '^    \[X\] NVML          12\.550\.54\.14$'
    expect_out '^    \[.\] NCCL '
    told 'init 18' -- --check-build
    expect_out '^    \[ \] NVIDIA driver '
    expect_out 'of another version: the same is needed'
}

case_a_host_without_gpus() {
    [ ! -e /proc/driver/nvidia ] || skip "this machine has a driver of NVIDIA"
    [ -z "$(ldconfig -p | grep libnvidia-ml)" ] || skip "this machine has a library of NVIDIA"
    hvd --dry-run -np 1 true
    expect_status 0
    expect_no "$T/out" 'gpus|GPU|NVIDIA'
    expect_no "$T/err" .
}
