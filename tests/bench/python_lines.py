"""What the benches in Python share: they time calls as hvd_bench does, and print its lines of JSON."""
import json
from array import array
from time import perf_counter

import hvdrun as hvd


def over_ranks(values, op=hvd.Max):
    """Combines each of some numbers over the ranks: without `op` the largest."""
    return hvd.allreduce(array("d", values), name=f"bench.{op}", op=op).tolist()


def repeat(ways, n):
    """Times n calls of each way, in turns, with a barrier before each call. Returns the slowest rank's seconds, by way."""
    times = {way: [0.0] * n for way in ways}
    for i in range(n):
        for way, call in ways.items():
            hvd.barrier()
            before = perf_counter()
            call()
            times[way][i] = perf_counter() - before
    return {way: over_ranks(times[way]) for way in ways}


def median(times):
    return sorted(times)[len(times) // 2]


def report(name, op, size, times):
    """Rank 0 prints the line of a column `name`: `op` of `size` bytes took these seconds."""
    if hvd.rank() == 0:
        n, times = len(times), sorted(times)
        middle, p10, p90, low, high = (round(times[i] * 1e6, 2) for i in (n // 2, n // 10, n - 1 - n // 10, 0, n - 1))
        print(json.dumps({"name": name, "op": op, "bytes": size, "ranks": hvd.size(), "dtype": "f32", "iterations": n, "median_us": middle,
                          "p10_us": p10, "p90_us": p90, "min_us": low, "max_us": high}, separators=(",", ":")), flush=True)
