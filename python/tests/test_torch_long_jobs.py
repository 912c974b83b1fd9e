"""Ten thousand steps of an optimizer, and a million operations without a name on tensors, in constant memory.

HVD_STEPS and HVD_UNNAMED are the numbers.
"""
# RANKS = 2
# SLOW = True
# LIMIT = 1800

import os
import unittest

from footprint import lasts
from torch_case import TorchCase, hvd, torch

STEPS = int(os.environ.get("HVD_STEPS", "10000"))
UNNAMED = int(os.environ.get("HVD_UNNAMED", "1000000"))


class Long(TorchCase):
    def setUp(self):
        torch.set_num_threads(1)
        torch.manual_seed(1)

    def test_steps(self):
        """Buckets of several sizes, a branch that ranks use in turn, gradients that the script drops or replaces."""
        layers = [torch.nn.Linear(16, 64), torch.nn.Tanh(), torch.nn.Linear(64, 600), torch.nn.Linear(600, 500)]
        model, branch = torch.nn.Sequential(*layers), torch.nn.Linear(16, 500)
        both = torch.nn.ModuleList([model, branch])
        optimizer = torch.optim.Adam(both.parameters(), lr=1e-4)
        optimizer = hvd.DistributedOptimizer(optimizer, both.named_parameters())
        batch = torch.randn(2, 16)

        def step(k):
            optimizer.zero_grad()
            result = model(batch) + (branch(batch) if k % 3 == self.rank else 0)
            result.square().mean().backward()
            if k % 5 == 0:
                layers[0].bias.grad = None
            if k % 7 == 0:
                layers[0].weight.grad = layers[0].weight.grad.clone()
            optimizer.step()

        lasts(self, "steps", step, STEPS)
        for parameter in both.parameters():
            self.same(hvd.broadcast(parameter.detach(), 0), parameter.detach())

    def test_operations_without_a_name(self):
        one = torch.ones(1)
        lasts(self, "operations without a name", lambda _: hvd.allreduce_(one), UNNAMED)
        self.same(one, torch.ones(1))


if __name__ == "__main__":
    unittest.main()
