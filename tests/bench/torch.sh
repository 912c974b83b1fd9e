# shellcheck shell=bash disable=SC2034,SC2154
# The part of run.sh about torch.distributed on the backend hvd: torch. Both backends run in one job, in turns.

# What run_one starts for a name c10d_...; each prints lines for the columns that are said at its beginning.
torch_command() { # NAME OP BYTES
    command=(env "PYTHONPATH=$build/python" "GLOO_SOCKET_IFNAME=$network" "$build/hvdrun" "${where[@]}" "$python")
    case $1 in
    c10d_ops) command+=("$build/bench/c10d_ops.py" "$limit_ms" "$2" "$3") ;;
    c10d_ddp) command+=("$build/bench/c10d_step.py" $((6 * limit_ms)) ddp "$("$build/bench/hvd_bench" --list)") ;;
    c10d_fsdp) command+=("$build/bench/c10d_step.py" $((6 * limit_ms)) fsdp 0) ;;
    esac
}

part_torch() {
    local n shape
    title "torch.distributed: $("$python" -c 'import torch; print(torch.__version__)' 2> /dev/null | tail -n 1) ($python)"
    python_is_ready || return 0
    torch_operations
    for n in ${BENCH_RANKS:-2 4}; do torch_steps "$n"; done
    torch_shards
    for shape in ${BENCH_SHAPES:-2x1 2x2}; do torch_hosts "$shape" || break; done
}

torch_operations() {
    local size
    on_one_host 2
    title 'torch.distributed: all_reduce, f32 sum, and new_group, 2 ranks on one host'
    begin_set torch.operations c10d_ops
    for size in 4 1048576 "$large"; do take_turns 15 allreduce "$size"; done
    take_turns 15 group 0
    names=(c10d_hvd c10d_gloo)
    table
    row 'all_reduce, 4 B' allreduce 4 c10d_hvd 0.2 '' none c10d_gloo
    row 'all_reduce, 1 MiB' allreduce 1048576 c10d_hvd 0.2 '' none c10d_gloo
    row 'all_reduce, 64 MiB' allreduce "$large" c10d_hvd 0.2 '' none c10d_gloo
    row 'new_group of 2 ranks' group 0 c10d_hvd 0.1 '' none c10d_gloo
}

torch_steps() { # RANKS
    on_one_host "$1"
    title "torch.distributed: a step of DDP with ResNet-50's gradients, $1 ranks on one host"
    begin_set "torch.step.$1" c10d_ddp
    longest=60 take_turns 30 ddp "$resnet50_bytes"
    names=(ddp_hvd ddp_hvd_step ddp_hook ddp_gloo ddp_gloo_step)
    table
    row "DDP, ResNet-50's gradients, $1 ranks" ddp "$resnet50_bytes" ddp_hvd 0.3 '' none ddp_gloo
}

torch_shards() {
    on_one_host 2
    title 'torch.distributed: a step of fully_shard, 25 M parameters, 2 ranks on one host'
    "$python" -c 'import sys, torch; sys.exit(tuple(map(int, torch.__version__.split(".")[:2])) < (2, 13))' 2> /dev/null || { echo '  left out: needs PyTorch 2.13 (PYTHON=...)'; return 0; }
    begin_set torch.shards c10d_fsdp
    longest=60 take_turns 30 fsdp 0
    names=(fsdp_hvd fsdp_gloo)
    table
    row 'fully_shard, 25 M parameters' fsdp 0 fsdp_hvd 0.5 '' none fsdp_gloo
}

torch_hosts() { # SHAPE
    hosts_up "${1%x*}" || return 1
    same_tcp "${1%x*}"
    on_hosts "${1%x*}" "${1#*x}"
    title "torch.distributed: all_reduce of 64 MiB, $1 hosts x ranks"
    begin_set "torch.hosts.$1" c10d_ops floor_wire_malloc
    take_turns 20 allreduce "$large"
    names=(c10d_hvd c10d_gloo floor_wire_malloc)
    table
    row "all_reduce, 64 MiB, $1" allreduce "$large" c10d_hvd 0.6 '' floor_wire_malloc c10d_gloo
    "$here/../hosts/hosts.sh" down
}
