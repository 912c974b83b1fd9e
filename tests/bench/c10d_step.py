"""c10d_step.py LIMIT_MS ddp COUNT[,COUNT ...] | LIMIT_MS fsdp 0 - a step of torch's own parallel models on the backend hvd and on gloo, in
turns in one job. The slowest rank's time counts.

ddp: DistributedDataParallel with so many elements in the gradients (python_model.py)
    ddp_hvd, ddp_gloo                what a step takes longer than one whose gradients stay on the rank
    ddp_hvd_step, ddp_gloo_step      the whole step
    ddp_hook                         as ddp_hvd, with hvdrun.c10d.average_hook
fsdp: fully_shard of 25 M parameters in 12 layers, with a batch of one
    fsdp_hvd, fsdp_gloo              the whole step, with its computation"""
import os
import sys
import warnings

import python_lines
import python_model
import torch
import torch.distributed as dist
from python_lines import hvd

import hvdrun.c10d

BACKENDS = "hvd", "gloo"
KINDS = "hvd", "hook", "gloo"


def ddp_ways(counts):
    """Returns the calls of an iteration, in order: for each backend a step that stays on the rank, and one that does not."""
    ways, x = {}, torch.ones(())

    def add(name):
        model = python_model.Model(counts)
        parallel = torch.nn.parallel.DistributedDataParallel(model, process_group=GROUPS[name], gradient_as_bucket_view=True)
        if name == "hook":
            parallel.register_comm_hook(None, hvdrun.c10d.average_hook)
        stay, step = python_model.through_parallel(parallel, x, hvd.rank())
        python_model.check(model, hvd.size())
        ways.update({f"{name}_stay": stay, f"ddp_{name}_step": step})

    for name in KINDS:
        add(name)
    return ways


def fsdp_ways():
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard

    def way(name):
        torch.manual_seed(1)
        model = torch.nn.Sequential(*[torch.nn.Linear(1448, 1448, bias=False) for _ in range(12)])
        mesh = DeviceMesh.from_group(GROUPS[name] or dist.distributed_c10d._get_default_group(), "cpu")
        for layer in model:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        x = torch.ones(1, 1448)

        def step():
            model(x).sum().backward()

        step()
        return step

    return {f"fsdp_{name}": way(name) for name in BACKENDS}


def measure(ways, limit):
    took = sum(min(each) for each in python_lines.repeat(ways, 2).values())
    return python_lines.repeat(ways, max(5, min(20, int(limit / max(took, 1e-3)))))


def main():
    limit, kind, counts = int(sys.argv[1]) / 1e3, sys.argv[2], [int(count) for count in sys.argv[3].split(",")]
    times = measure(ddp_ways(counts) if kind == "ddp" else fsdp_ways(), limit)
    for name in KINDS if kind == "ddp" else ():
        stay = times.pop(f"{name}_stay")
        times[f"ddp_{name}"] = [whole - alone for whole, alone in zip(times[f"ddp_{name}_step"], stay, strict=True)]
    for way, each in times.items():
        python_lines.report(way, kind, 4 * sum(counts), each)


warnings.filterwarnings("ignore")
torch.set_num_threads(1)
dist.init_process_group("hvd", init_method="env://")
GROUPS = {"hvd": None, "hook": None, "gloo": dist.new_group(backend="gloo")}
main()
hvd.shutdown()
sys.stdout.flush()
os._exit(0)  # gloo's threads may abort a process that ends
