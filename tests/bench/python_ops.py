"""python_ops.py LIMIT_MS torch|numpy BYTES[,BYTES ...] - what hvd_bench measures, in the same way, for allreduce_() of a tensor of
PyTorch or of an array: an in-place f32 sum, checked, then timed with a barrier before each iteration; the slowest rank's time counts.

Up to 64 KiB by name and without a name, in turns. Above in ordinary memory, then in hvd_alloc's: one would take the other's cache."""
import functools
import sys

import python_lines
from python_lines import hvd

SMALL = 65536  # bytes
NAMES = 2000  # more than calls without a name take in turns: each is made once


def make(kind, count, arena):
    """Returns an array or a tensor of zeros."""
    if kind == "numpy":
        import numpy
        return hvd.empty((count,)) if arena else numpy.zeros(count, "float32")
    import torch
    return torch.from_numpy(hvd.empty((count,))) if arena else torch.zeros(count)


def check(data, add):
    """One operation, whose result is compared. The elements become zeros."""
    ranks = hvd.size()
    for i in range(min(len(data), 61)):
        data[i::61] = i + hvd.rank() + 1
    add()
    wrong = [i for i in range(min(len(data), 61)) if not (data[i::61] == i * ranks + ranks * (ranks + 1) // 2).all()]
    assert not wrong, f"{len(data)} elements: wrong sum at {wrong[0]}"
    data[:] = 0


def ways_of(kind, allreduce_, size):
    """Returns a call for each way, by the name of its column."""
    own = make(kind, size // 4, False)
    ways = {kind: (own, functools.partial(allreduce_, own, name=f"{kind}.{size}", op=hvd.Sum))}
    if size <= SMALL:
        ways[f"{kind}_unnamed"] = own, functools.partial(allreduce_, own, op=hvd.Sum)
        for _ in range(NAMES):
            ways[f"{kind}_unnamed"][1]()
    else:
        shared = make(kind, size // 4, True)
        ways[f"{kind}_arena"] = shared, functools.partial(allreduce_, shared, name=f"{kind}.{size}.arena", op=hvd.Sum)
    for data, add in ways.values():
        check(data, add)
    return {way: add for way, (_, add) in ways.items()}


def main():
    limit, kind = int(sys.argv[1]) / 1e3, sys.argv[2]
    hvd.init()
    allreduce_ = hvd.allreduce_
    if kind == "torch":
        import horovod.torch
        import torch
        torch.set_num_threads(1)
        allreduce_ = horovod.torch.allreduce_
    for size in (int(size) for size in sys.argv[3].split(",")):
        ways = ways_of(kind, allreduce_, size)
        for turn in [ways] if size <= SMALL else [{way: call} for way, call in ways.items()]:
            longest = max(min(times) for times in python_lines.repeat(turn, 3).values())
            times = python_lines.repeat(turn, max(3, min(2000 if size <= SMALL else 20, int(limit / longest))))
            for way in turn:
                python_lines.report(way, "allreduce", size, times[way])


main()
