"""Fits a line to points with NumPy: import hvdrun as hvd, without a framework.

    hvdrun -np 4 python3 line.py
    hvdrun -np 8 -H node1:4,node2:4 python3 line.py --points 10000000

Each rank draws points of its own. The sums over all points are one allreduce, in shared memory, and rank 0 solves
the equations.
"""

import argparse

import hvdrun as hvd
import numpy as np

SLOPE, HEIGHT = 2.0, -1.0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, default=1000000, help="points, over all ranks")
    options = parser.parse_args()

    hvd.init()
    count = options.points * (hvd.rank() + 1) // hvd.size() - options.points * hvd.rank() // hvd.size()
    random = np.random.default_rng(hvd.rank())
    x = random.uniform(-1, 1, count)
    y = SLOPE * x + HEIGHT + random.normal(0, 0.1, count)

    sums = hvd.empty((5,), "float64")  # memory that all ranks of a host share: reduced in place
    sums[:] = count, x.sum(), y.sum(), (x * x).sum(), (x * y).sum()
    hvd.allreduce_(sums, name="sums", op=hvd.Sum)
    total, sum_x, sum_y, sum_xx, sum_xy = sums
    slope, height = np.linalg.solve([[sum_xx, sum_x], [sum_x, total]], [sum_xy, sum_y])
    del sums  # shared memory is given back before the job ends

    everyone = hvd.allgather(np.array([[hvd.rank(), count]]), name="counts")  # a row of each rank
    if hvd.rank() == 0:
        for rank, points in everyone:
            print(f"rank {rank}: {points} points")
        print(f"slope={slope:.4f} height={height:.4f} of {int(total)} points")


if __name__ == "__main__":
    main()
