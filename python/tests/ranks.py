"""What the tests share: the job, which begins with the first of them, and the inputs of all ranks."""

import unittest

import hvdrun as hvd

try:
    import numpy as np
except ImportError:
    np = None

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
TOTAL = SIZE * (SIZE + 1) // 2
"""The sum of rank + 1 over the ranks."""


def need_numpy():
    if np is None:
        raise unittest.SkipTest("no python3-numpy here")


def values(seed, rank, shape, dtype):
    """The array of a rank, as every rank can make it."""
    random = np.random.default_rng([seed, rank])
    kind = np.dtype(dtype)
    if kind.kind == "b":
        return random.integers(0, 2, shape).astype(kind)
    if kind.kind in "iu":
        return random.integers(0 if kind.kind == "u" else -50, 50, shape).astype(kind)
    return random.uniform(-4, 4, shape).astype(kind)


def all_values(seed, shape, dtype):
    return [values(seed, rank, shape, dtype) for rank in range(SIZE)]


class RankTest(unittest.TestCase):
    """The ranks begin each test together."""

    def setUp(self):
        hvd.barrier()

    def equal(self, got, wanted, **tolerance):
        np.testing.assert_allclose(
            np.asarray(got).astype(np.float64), np.asarray(wanted).astype(np.float64), **tolerance)
