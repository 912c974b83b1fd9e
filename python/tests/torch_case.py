"""What the tests of hvdrun.torch share. Each test runs on all ranks of a job at the same time."""

from __future__ import annotations

import sys
import unittest
from typing import List

try:
    import torch
except ModuleNotFoundError as error:
    raise unittest.SkipTest(f"no torch for {sys.executable} (apt install python3-torch)") from error

import hvdrun.torch as hvd

__all__ = ["FLOATS", "INTEGERS", "TorchCase", "hvd", "torch"]

INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


class TorchCase(unittest.TestCase):
    """A test within the job; rank and size are set."""

    rank: int
    size: int

    @classmethod
    def setUpClass(cls) -> None:
        hvd.init()
        cls.rank, cls.size = hvd.rank(), hvd.size()

    def of_rank(self, rank: int, shape: List[int], dtype: torch.dtype) -> torch.Tensor:
        """Returns the tensor that a rank gives: small whole numbers, which every dtype has."""
        count = int(torch.tensor(shape).prod()) if shape else 1
        values = (torch.arange(count) * (rank + 2) + rank) % 7 - (0 if dtype == torch.uint8 else 3)
        return values.view(shape).to(dtype)

    def of_all(self, shape: List[int], dtype: torch.dtype, ranks: List[int]) -> torch.Tensor:
        """Returns the tensors of the ranks, stacked."""
        return torch.stack([self.of_rank(rank, shape, dtype) for rank in ranks])

    def reduced(self, shape: List[int], dtype: torch.dtype, op: int, ranks: List[int]) -> torch.Tensor:
        """Returns what an allreduce of the ranks' tensors has to give."""
        stacked = self.of_all(shape, dtype, ranks)
        wide = stacked.double() if dtype.is_floating_point else stacked.long()
        if op == hvd.Product:
            return wide.prod(0).to(dtype)
        if op in (hvd.Min, hvd.Max):
            return (wide.amin(0) if op == hvd.Min else wide.amax(0)).to(dtype)
        total = wide.sum(0)
        if op == hvd.Average and dtype.is_floating_point:
            total = total / len(ranks)
        elif op == hvd.Average:
            total = torch.div(total, len(ranks), rounding_mode="trunc")
        return total.to(dtype)

    def same(self, actual: torch.Tensor, expected: torch.Tensor, tolerance: float = 0.0) -> None:
        """Fails unless values, shape and dtype are the same."""
        self.assertEqual(actual.dtype, expected.dtype)
        self.assertEqual(actual.shape, expected.shape)
        torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)

    def needs(self, ranks: int) -> None:
        """Skips the test in a job of fewer ranks."""
        if self.size < ranks:
            self.skipTest(f"needs {ranks} ranks")
