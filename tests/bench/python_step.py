"""python_step.py LIMIT_MS hvd|ddp COUNT[,COUNT ...] - a step of a model of torch with so many elements in its gradients (python_model.py),
through hvd.DistributedOptimizer, or through DDP over gloo (env://, as hvdrun and torchrun set it). The slowest rank's time counts.

    backward, ddp_backward     forward and backward; the gradients stay on the rank
    optimizer                  synchronize() alone, again and again: as hvd_bench --model, all are started and then waited for
    optimizer_step, ddp_step   forward and backward, and the gradients become those of all ranks
    optimizer_adds, ddp_adds   what such a step takes longer than the one that stays on the rank before it
    optimizer_cpu, ddp_cpu     processor time of such a step, of all ranks and of the engine"""
import os
import sys
import time

import python_lines
import python_model
import torch
from python_lines import hvd


def through_hvd(model, x):
    """Does a step. Returns synchronize(), and the calls of an iteration, in order, by the names of their columns: the gradients of two
    passes travel together."""
    stay, synchronize = python_model.through_optimizer(model, x, hvd.rank())

    def step():
        stay()
        synchronize()

    return {"optimizer": synchronize}, {"backward": stay, "optimizer_step": step}


def through_ddp(model, x):
    """The same, without the first."""
    torch.distributed.init_process_group("gloo", init_method="env://")
    parallel = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    stay, step = python_model.through_parallel(parallel, x, hvd.rank())
    return {}, {"ddp_backward": stay, "ddp_step": step}


def processor_seconds():
    """Processor time so far: of this process; on the first rank of a host, of the engine too."""
    total = time.process_time()
    parent = os.getppid()
    with open(f"/proc/{parent}/task/{parent}/children") as children:
        for child in children.read().split() if hvd.local_rank() == 0 else ():
            with open(f"/proc/{child}/comm") as name:
                if name.read() != "hvd-engine\n":
                    continue
            for task in os.listdir(f"/proc/{child}/task"):
                with open(f"/proc/{child}/task/{task}/schedstat") as stat:
                    total += int(stat.read().split()[0]) / 1e9
    return total


def processor_times(ways, n):
    """The processor time of all ranks for the second of the ways, n times."""
    times, (stay, step) = [], ways.values()
    for _ in range(n):
        stay()
        hvd.barrier()
        before = processor_seconds()
        step()
        hvd.barrier()
        times.append(processor_seconds() - before)
    return python_lines.over_ranks(times, hvd.Sum)


def main():
    limit, kind, counts = int(sys.argv[1]) / 1e3, sys.argv[2], [int(count) for count in sys.argv[3].split(",")]
    hvd.init()
    torch.set_num_threads(1)
    model = python_model.Model(counts)
    alone, ways = (through_hvd if kind == "hvd" else through_ddp)(model, torch.ones(()))
    python_model.check(model, hvd.size())
    times = {}
    for turn in [alone, ways]:
        took = sum(min(each) for each in python_lines.repeat(turn, 3).values())
        times.update(python_lines.repeat(turn, max(3, min(20, int(limit / max(took, 1e-3))))))
    stay, step = list(times.values())[-2:]
    name = "optimizer" if kind == "hvd" else "ddp"
    times[f"{name}_adds"] = [whole - alone for whole, alone in zip(step, stay, strict=True)]
    times[f"{name}_cpu"] = processor_times(ways, 5)
    for way, each in times.items():
        python_lines.report(way, "resnet50", 4 * sum(counts), each)


main()
