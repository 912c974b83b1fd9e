"""c10d_ops.py LIMIT_MS allreduce BYTES[,BYTES ...] | LIMIT_MS group 0 - torch.distributed on the backend hvd and on gloo, in turns in one
job: an in-place f32 sum of a tensor, checked, with a barrier before each iteration; the making of a group of the ranks 0 and 1. The
slowest rank's time counts. A backend does all its iterations before the other one begins: gloo's threads would disturb ours.

    c10d_hvd, c10d_gloo   the backends"""
import functools
import os
import sys
import warnings

import python_lines
import torch
import torch.distributed as dist
from python_lines import hvd

import hvdrun.c10d  # noqa: F401 - for a torch that does not ask for it

BACKENDS = "hvd", "gloo"


def check(data, add):
    """One operation, whose result is compared. The elements become zeros."""
    ranks = hvd.size()
    data[:] = torch.arange(len(data)) % 61 + hvd.rank() + 1
    add()
    assert torch.equal(data, (torch.arange(len(data)) % 61 * ranks + ranks * (ranks + 1) // 2).float()), "wrong sum"
    data[:] = 0


def reductions(size):
    ways = {}
    for name in BACKENDS:
        data = torch.zeros(size // 4)
        ways[f"c10d_{name}"] = functools.partial(dist.all_reduce, data, group=GROUPS[name])
        check(data, ways[f"c10d_{name}"])
    return ways


def groups():
    return {f"c10d_{name}": functools.partial(dist.new_group, [0, 1], backend=name) for name in BACKENDS}


def main():
    limit, op = int(sys.argv[1]) / 1e3, sys.argv[2]
    for size in (int(size) for size in sys.argv[3].split(",")):
        ways = reductions(size) if op == "allreduce" else groups()
        most = {"allreduce": 1000 if size <= 1 << 20 else 20, "group": 100}[op]
        for turn in [{way: call} for way, call in ways.items()]:
            longest = max(min(times) for times in python_lines.repeat(turn, 3).values())
            times = python_lines.repeat(turn, max(5, min(most, int(limit / longest))))
            for way in turn:
                python_lines.report(way, op, size, times[way])


warnings.filterwarnings("ignore")
torch.set_num_threads(1)
dist.init_process_group("hvd", init_method="env://")
GROUPS = {"hvd": None, "gloo": dist.new_group(backend="gloo")}
main()
hvd.shutdown()
sys.stdout.flush()
os._exit(0)  # gloo's threads may abort a process that ends
