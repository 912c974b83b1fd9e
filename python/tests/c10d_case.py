"""What the tests of hvdrun.c10d share. Each test runs on all ranks, which have a group of hvd and one of gloo."""

from __future__ import annotations

import datetime
import unittest

import torch.distributed as dist
from torch_case import TorchCase, torch

if not dist.is_available():
    raise unittest.SkipTest("this torch has no torch.distributed")

import hvdrun.c10d  # noqa: F401 - makes the backend known to a torch that does not ask for it

__all__ = ["C10dCase", "dist", "torch"]

VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])


class C10dCase(TorchCase):
    """A test in a job with a default group of hvd; `gloo` is a group of the same ranks."""

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        if not dist.is_initialized():
            dist.init_process_group("hvd", timeout=datetime.timedelta(seconds=30))
            C10dCase.gloo = dist.new_group(backend="gloo")

    def needs_torch(self, *version: int) -> None:
        if version > VERSION:
            self.skipTest(f"needs PyTorch {'.'.join(map(str, version))}")
