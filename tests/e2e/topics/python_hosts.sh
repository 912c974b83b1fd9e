# shellcheck shell=bash disable=SC2034,SC2154
# The tests of the Python package with ranks on two hosts; python/tests/run.sh has those of one host.
hosts=2
limit=120

# shellcheck source=tests/e2e/python.sh
. "$top/tests/e2e/python.sh"

tests_with() { # RANKS OF A HOST, NAME OF A MODULE...
    local each=$1 name files=()
    shift
    needs_package
    for name; do files+=("$top/python/tests/test_$name.py"); done
    hvd -np $((2 * each)) -H "$H1:$each,$H2:$each" env HVD_QUICK_TESTS=1 "${python[@]}" "$top/python/tests/job.py" "${files[@]}"
    [ "$status" != 77 ] || skip "$(sed -n 's/^skip //p' "$T/out" | head -n 1)"
    expect_status 0
    expect_out '^ran [0-9]+ tests'
}

arrays=(arrays handles stress) # not plain: NumPy cannot be imported there
tensors=(torch_operations torch_sets torch_gradients torch_functions torch_optimizer torch_stress c10d_operations c10d_groups c10d_ddp)

slow_arrays() {
    tests_with 2 "${arrays[@]}"
}

case_without_numpy() {
    tests_with 2 plain
}

case_arrays_with_a_rank_a_host() {
    tests_with 1 "${arrays[@]}"
}

# Large arrays of calls that block go from rank to rank: the rank's own connection carries as many bytes as they have, from the 32nd call on.
carried() { # BYTES
    on 1 'ss -tinpOH' > "$T/sockets" 2> "$T/why" &&
        grep '"python' "$T/sockets" | sed -n 's/.* bytes_sent:\([0-9]*\).*/\1/p' | awk -v least="$1" '$1 >= least { some = 1 } END { exit !some }'
}

case_large_arrays_go_from_rank_to_rank() {
    needs_kind ns
    needs_package
    start -np 2 -H "$H1:1,$H2:1" "${python[@]}" -c 'import time, hvdrun as hvd
hvd.init()
data = hvd.empty((1 << 20,))
for _ in range(40):
    hvd.allreduce_(data, name="large", op=hvd.Max)
print("ready", flush=True)
time.sleep(60)'
    until_out 40 ready 2
    carried $((5 * 4 << 20)) || fail "$(cat "$T/sockets" "$T/why")"
    kill -TERM "$pid"
    stop_status
}

slow_tensors() {
    tests_with 2 "${tensors[@]}"
}

slow_tensors_with_a_rank_a_host() {
    tests_with 1 "${tensors[@]}"
}

# The other rank hears of it in a wait of torch.distributed, within the heartbeat time-out.
slow_a_silent_host_ends_a_wait_of_torch() {
    needs_kind ns
    needs_package
    needs_module torch
    start --heartbeat-timeout 2 --grace 3 -np 2 -H "$H1:1,$H2:1" "${python[@]}" -c 'import sys, time, torch, hvdrun.c10d, torch.distributed as dist
dist.init_process_group("hvd")
dist.barrier()
print("ready", flush=True)
if dist.get_rank() == 1:
    time.sleep(60)
try:
    dist.all_reduce(torch.ones(3))
except RuntimeError as error:
    print("told:", error, flush=True)'
    until_out 40 ready 2
    ip link set v2 down
    mark_time
    until_out 10 told: 1
    expect_within 4
    ip link set v2 up
    stop_status
    expect_out "^told: .*(node2|$H2)"
    leave_within=1
}

# Another rank has the store then, and ranks on another host reach it: groups of gloo meet there.
slow_the_store_of_torch_moves_when_rank_0_dies() {
    needs_package
    needs_module torch
    hvd --min-np 2 -np 3 -H "$H1:2,$H2:1" "${python[@]}" -c 'import os, torch, hvdrun.c10d, torch.distributed as dist
from hvdrun.c10d import elastic
dist.init_process_group("hvd")
@elastic.run
def train(state):
    total = torch.ones(1)
    dist.all_reduce(total, group=dist.new_group(backend="gloo"))
    print(f"membership {elastic.membership()}: {total.item():.0f} of {dist.get_world_size()}", flush=True)
    dist.barrier()
    if os.environ["HVD_WORKER"] == "0":
        os.kill(os.getpid(), 9)
    if dist.get_world_size() == 3:
        dist.barrier()
train(elastic.ObjectState())'
    expect_status 0
    expect_same 3 "$(grep -c '^membership 1: 3 of 3$' "$T/out")" 'the number of ranks before'
    expect_same 2 "$(grep -c '^membership 2: 2 of 2$' "$T/out")" 'the number of ranks after'
}
