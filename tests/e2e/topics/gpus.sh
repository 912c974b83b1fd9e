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

case_nothing_is_touched() {
    with_gpus 2 -H localhost --gpu-bind none sh -c "$devices"
    expect_sorted '0/2 unset unset' '1/2 unset unset'
    with_gpus 2 -np 1 -x CUDA_DEVICE_ORDER=FASTEST_FIRST sh -c "$devices"
    expect_sorted '0/1 0,1 FASTEST_FIRST'
    hvd -H localhost sh -c "$devices" # no GPU here, or real ones
    expect_status 0
}
