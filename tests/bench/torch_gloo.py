"""torch_gloo.py LIMIT_MS BYTES[,BYTES ...] | LIMIT_MS resnet50 COUNT[,COUNT ...] - what hvd_bench measures, in the same way, for
torch.distributed over gloo (env://, as hvdrun and torchrun set it): an in-place f32 sum, checked, then timed with a barrier before
each iteration, and in a loop without; the slowest rank's time counts.

resnet50: the gradients (COUNT elements each) lie in one buffer, as DDP's gradient_as_bucket_view has them, and are summed in buckets
of 25 MiB started one after the other (DDP's way), each by itself, and all at once; the fastest is reported."""
import json
import os
import sys
import time

import torch
import torch.distributed as dist

BUCKET = (25 << 20) // 4


def step(buffer, cuts):
    if len(cuts) == 2:
        dist.all_reduce(buffer)
        return
    work = [dist.all_reduce(buffer[a:b], async_op=True) for a, b in zip(cuts, cuts[1:])]
    for w in work:
        w.wait()


def repeat(buffer, cuts, n):
    """The slowest rank's seconds of each iteration, and of all of them with their barriers."""
    times = torch.zeros(n + 1, dtype=torch.float64)
    start = time.perf_counter()
    for i in range(n):
        dist.barrier()
        before = time.perf_counter()
        step(buffer, cuts)
        times[i] = time.perf_counter() - before
    times[n] = time.perf_counter() - start
    dist.all_reduce(times, op=dist.ReduceOp.MAX)
    return sorted(times[:n].tolist()), times[n].item()


def loop(buffer, cuts, n):
    """One step after another: the slowest rank's seconds of each."""
    dist.barrier()
    start = time.perf_counter()
    for _ in range(n):
        step(buffer, cuts)
    each = torch.tensor([(time.perf_counter() - start) / n], dtype=torch.float64)
    dist.all_reduce(each, op=dist.ReduceOp.MAX)
    return each.item()


def measure(cuts):
    """Sorted seconds of the iterations, and the seconds of one in a loop."""
    count, ranks = cuts[-1], dist.get_world_size()
    pattern = torch.arange(count, dtype=torch.int32) % 61
    buffer = (pattern + dist.get_rank() + 1).to(torch.float32)
    dist.barrier()
    before = time.perf_counter()
    step(buffer, cuts)
    first = torch.tensor([time.perf_counter() - before], dtype=torch.float64)
    dist.all_reduce(first, op=dist.ReduceOp.MAX)
    took = first.item()
    assert torch.equal(buffer, (pattern * ranks + ranks * (ranks + 1) // 2).to(torch.float32)), f"{count} elements: wrong sum"
    buffer.zero_()
    size = 4 * count
    most = 400 if size <= 1 << 20 else 60 if size <= 16 << 20 else 20
    if took * 2 < limit or took < 0.02:  # else one was warm-up enough
        took = repeat(buffer, cuts, 2)[0][0]
    if took * 5 < limit:
        took = repeat(buffer, cuts, 5)[1] / 5
    n = max(3, min(most, int(limit / took)))
    return repeat(buffer, cuts, n)[0], loop(buffer, cuts, n)


def report(op, count, way, times, each):
    if dist.get_rank() == 0:
        n = len(times)
        median, p10, p90, low, high = (round(times[i] * 1e6, 2) for i in (n // 2, n // 10, n - 1 - n // 10, 0, n - 1))
        print(json.dumps({"op": op, "bytes": 4 * count, "ranks": dist.get_world_size(), "buffer": "gloo", "dtype": "f32",
                          "way": way, "iterations": n, "median_us": median, "p10_us": p10, "p90_us": p90, "min_us": low, "max_us": high,
                          "loop_us": round(each * 1e6, 2)},
                         separators=(",", ":")), flush=True)


def resnet50(counts):
    total, each = sum(counts), [0]
    for count in counts:
        each.append(each[-1] + count)
    ways = {"buckets of 25 MiB": [*range(0, total, BUCKET), total], "each by itself": each, "one buffer": [0, total]}
    times = {way: measure(cuts) for way, cuts in ways.items()}
    # Each rank has the same times, so all name the same way.
    best = min(times, key=lambda way: times[way][0][len(times[way][0]) // 2])
    report("resnet50", total, best, *times[best])


limit = int(sys.argv[1]) / 1e3
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method="env://")
if sys.argv[2] == "resnet50":
    resnet50([int(n) for n in sys.argv[3].split(",")])
else:
    for size in sys.argv[2].split(","):
        report("allreduce", int(size) // 4, "one", *measure([0, int(size) // 4]))
dist.barrier()
dist.destroy_process_group()
