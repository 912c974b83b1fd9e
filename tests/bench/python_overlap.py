"""python_overlap.py COUNT[,COUNT ...] - how much of the gradients' way (python_model.py) is hidden behind a backward pass that computes as
long as the link carries. The slowest rank's time counts.

    wire      synchronize() alone: all gradients are started, then waited for
    compute   a backward pass whose layers compute equally long, together as long as `wire`; the gradients stay on the rank
    step      the same, and the gradients become those of all ranks"""
import sys
from time import thread_time

import python_lines
import python_model
import torch
from python_lines import hvd


def work_for(seconds):
    """Returns a function that computes for that long on its processor; the time in which others have it does not count."""
    a, b = torch.ones(64, 64), torch.empty(64, 64)

    def work():
        until = thread_time() + seconds
        while thread_time() < until:
            torch.mm(a, a, out=b)

    return work


def main():
    counts = [int(count) for count in sys.argv[1].split(",")]
    hvd.init()
    torch.set_num_threads(1)
    model, x = python_model.Model(counts), torch.ones(())
    stay, synchronize = python_model.through_optimizer(model, x, hvd.rank())

    def step():
        stay()
        synchronize()

    python_model.check(model, hvd.size())
    wire = python_lines.repeat({"stay": stay, "wire": synchronize}, 3)["wire"]
    share = python_lines.median(wire) / len(counts)
    for _ in range(2):  # on a busy machine it takes longer than that: again with less
        model.work = work_for(share)
        stays = python_lines.repeat({"stay": stay, "wire": synchronize}, 3)["stay"]
        share *= python_lines.median(wire) / python_lines.median(stays)
    model.work = work_for(share)
    times = python_lines.repeat({"compute": stay, "step": step}, 3)
    for name, each in (("wire", wire), *times.items()):
        python_lines.report(name, "overlap", 4 * sum(counts), each)


main()
