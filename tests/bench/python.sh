# shellcheck shell=bash disable=SC2034,SC2154
# The part of run.sh about the Python package: python.

large=67108864
resnet50_bytes=102228128

# What run_one starts for a name python_...; each prints lines for the columns that are said at its beginning.
python_command() { # NAME OP BYTES
    command=(env "PYTHONPATH=$build/python" "GLOO_SOCKET_IFNAME=$network" "$build/hvdrun" "${where[@]}" "$python")
    case $1 in
    python_torch | python_numpy) command+=("$build/bench/python_ops.py" "$limit_ms" "${1#python_}" "$3") ;;
    python_optimizer) command+=("$build/bench/python_step.py" $((4 * limit_ms)) hvd "$("$build/bench/hvd_bench" --list)") ;;
    python_ddp) command+=("$build/bench/python_step.py" $((4 * limit_ms)) ddp "$("$build/bench/hvd_bench" --list)") ;;
    python_overlap) command+=("$build/bench/python_overlap.py" "$("$build/bench/hvd_bench" --list)") ;;
    python_start)
        rm -rf "$scratch/shared/start"
        mkdir "$scratch/shared/start"
        command+=("$build/bench/python_start.py" "$scratch/shared/start")
        ;;
    esac
}

python_is_ready() {
    [ -e "$build/python/hvdrun/_hvd.abi3.so" ] || { echo "  left out: the package is not built (python3-dev)"; return 1; }
    have_torch || { echo "  left out: $python has no torch (apt install python3-torch, or PYTHON=...)"; return 1; }
    "$python" -m compileall -q "$build/python" # as pip and make install do
}

part_python() {
    local n shape
    title "Python: $("$python" -c 'import sys; print(sys.version.split()[0])' 2>&1 | tail -n 1) ($python)"
    python_is_ready || return 0
    echo "  torch $("$python" -c 'import torch; print(torch.__version__)' 2> /dev/null)"
    python_operations
    python_memory '2 ranks' 0.3
    for n in ${BENCH_RANKS:-2 4}; do python_steps "$n"; done
    python_starts
    for shape in ${BENCH_SHAPES:-2x1 2x2 4x1}; do python_hosts "$shape" || break; done
    python_overlaps
}

python_operations() {
    on_one_host 2
    title 'Python: allreduce_, f32 sum, 2 ranks on one host'
    begin_set python.operations hvd_arena hvd_malloc python_torch python_numpy
    take_turns 20 allreduce 4
    take_turns 20 allreduce "$large"
    names=(hvd_arena hvd_malloc torch torch_unnamed torch_arena numpy numpy_unnamed numpy_arena)
    table
    row_over 'torch, 4 B by name' allreduce 4 torch hvd_arena 6
    row_over 'torch, 4 B without a name' allreduce 4 torch_unnamed torch 1
    row_over 'NumPy, 4 B by name' allreduce 4 numpy hvd_arena 3
    row_over 'NumPy, 4 B without a name' allreduce 4 numpy_unnamed numpy 1
    row 'torch, 64 MiB in the arena' allreduce "$large" torch_arena 1.02 '' none hvd_arena
}

# 64 MiB of ordinary memory, from C and from torch, beside the peers; where the ranks are said to be.
python_memory() { # WHAT LIMIT
    local floors
    if [ "$hosts_here" = 1 ]; then floors=(floor_malloc floor_readv); else floors=(floor_wire_malloc); fi
    title "Python: 64 MiB of ordinary memory, $1"
    begin_set "python.memory.${1// /.}" hvd_malloc python_torch mpich openmpi gloo "${floors[@]}"
    take_turns 20 allreduce "$large"
    names=(hvd_malloc torch torch_arena mpich openmpi gloo "${floors[@]}")
    table
    row "64 MiB, $1, malloc, C" allreduce "$large" hvd_malloc "$2" '' "${floors[*]}"
    row "64 MiB, $1, malloc, torch" allreduce "$large" torch "$2" '' "${floors[*]}"
}

python_hosts() { # SHAPE
    hosts_up "${1%x*}" || return 1
    same_tcp "${1%x*}"
    on_hosts "${1%x*}" "${1#*x}"
    python_memory "$1 hosts x ranks" 0.6
    "$here/../hosts/hosts.sh" down
}

python_steps() { # RANKS
    on_one_host "$1"
    title "Python: a step of ResNet-50 (161 gradients), $1 ranks on one host"
    begin_set "python.step.$1" hvd_arena python_optimizer python_ddp
    longest=60 take_turns 30 resnet50 "$resnet50_bytes"
    names=(hvd_arena optimizer backward optimizer_step optimizer_adds ddp_backward ddp_step ddp_adds optimizer_cpu ddp_cpu)
    table
    row "ResNet-50's gradients, $1 ranks" resnet50 "$resnet50_bytes" optimizer_adds 0.2 '' none ddp_adds
    row "the same, synchronize() alone" resnet50 "$resnet50_bytes" optimizer 1.15 '' none hvd_arena
    printf '  optimizer_cpu and ddp_cpu are the processor time of a whole step, of all ranks and the engine\n'
}

python_starts() {
    on_one_host 2
    title 'Python: import horovod.torch and init(), after import torch, 2 ranks'
    begin_set python.start python_start
    take_turns 15 start 0
    names=(import init start)
    table
    goal 'import horovod.torch and init()' "$(cell 'start 0' start | awk '{ printf "%.1f", $1 / 1000 }')" 30 ' ms'
}

# The link is the limit, and the backward pass computes as long as it carries. What is not hidden makes the step longer.
python_overlaps() {
    local wire compute step
    title 'Python: ResNet-50 behind a backward pass, 2 hosts at 1 Gbit/s'
    hosts_up 2 || return 0
    same_tcp 2
    shape_links 2 1gbit
    on_hosts 2 1
    begin_set python.overlap python_overlap
    longest=60 take_turns 30 overlap "$resnet50_bytes"
    names=(wire compute step)
    table
    wire=$(cell "overlap $resnet50_bytes" wire) compute=$(cell "overlap $resnet50_bytes" compute) step=$(cell "overlap $resnet50_bytes" step)
    [ -z "$step" ] || goal_least 'hidden of what can be hidden' \
        "$(awk -v w="$wire" -v c="$compute" -v s="$step" 'BEGIN { printf "%.2f", (w + c - s) / (w < c ? w : c) }')" 0.8
    "$here/../hosts/hosts.sh" down
}
