"""Gradients of every operation, against the rules of Horovod 0.28 (hvdrun/torch/autograd.py)."""
# JOB = torch
# LIMIT = 120

from __future__ import annotations

import unittest

from torch_case import TorchCase, hvd, torch

ROWS = [3, 1, 4, 2]


class Gradients(TorchCase):
    def leaf(self, *shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
        return (torch.arange(float(torch.Size(shape).numel())).view(shape) + self.rank).to(dtype).requires_grad_()

    def weights(self, rank: int, *shape: int) -> torch.Tensor:
        """Returns the gradient that a rank gives to its result."""
        return torch.arange(float(torch.Size(shape).numel()), dtype=torch.float64).view(shape) + 10 * rank + 1

    def gradient(self, leaf: torch.Tensor, result: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        self.assertTrue(result.requires_grad)
        (gradient,) = torch.autograd.grad(result, leaf, weights)
        return gradient

    def test_allreduce(self):
        total = sum(self.weights(rank, 2, 3) for rank in range(self.size))
        for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
            leaf = self.leaf(2, 3, dtype=dtype)
            own = self.weights(self.rank, 2, 3).to(dtype)
            self.same(self.gradient(leaf, hvd.allreduce(leaf, op=hvd.Sum), own), total.to(dtype), 1e-2)
            self.same(self.gradient(leaf, hvd.allreduce(leaf), own), (total / self.size).to(dtype), 1e-2)
        leaf = self.leaf(2, 3)
        scaled = hvd.allreduce(leaf, op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0)
        self.same(self.gradient(leaf, scaled, self.weights(self.rank, 2, 3)), total * 2, 1e-12)

    def test_allreduce_with_compression_and_names(self):
        leaf = self.leaf(4, dtype=torch.float32)
        result = hvd.allreduce(leaf, op=hvd.Sum, name="compressed", compression=hvd.Compression.fp16)
        self.assertEqual(result.dtype, torch.float32)
        self.same(self.gradient(leaf, result, torch.ones(4)), torch.full([4], float(self.size)))

    def test_allreduce_in_a_set(self):
        self.needs(3)
        first = hvd.add_process_set([0, 1])
        if self.rank < 2:
            leaf = self.leaf(3)
            total = self.weights(0, 3) + self.weights(1, 3)
            result = hvd.allreduce(leaf, op=hvd.Sum, process_set=first)
            self.same(self.gradient(leaf, result, self.weights(self.rank, 3)), total, 1e-12)
            rows = hvd.allgather(leaf, process_set=first)
            self.same(self.gradient(leaf, rows, torch.ones(6, dtype=torch.float64)), torch.ones(3, dtype=torch.float64))
        hvd.remove_process_set(first)

    def test_grouped_allreduce(self):
        leaves = [self.leaf(3), self.leaf(2, 2)]
        results = hvd.grouped_allreduce(leaves, op=hvd.Sum)
        loss = sum((result * self.weights(self.rank, *result.shape)).sum() for result in results)
        for leaf, gradient in zip(leaves, torch.autograd.grad(loss, leaves), strict=True):
            self.same(gradient, sum(self.weights(rank, *leaf.shape) for rank in range(self.size)), 1e-12)

    def test_allgather(self):
        for rows in ([ROWS[rank % 4] for rank in range(self.size)], [2] * self.size):
            leaf = self.leaf(rows[self.rank], 3)
            result = hvd.allgather(leaf)
            shape = [sum(rows), 3]
            average = sum(self.weights(rank, *shape) for rank in range(self.size)) / self.size
            expected = average.split(rows)[self.rank].contiguous()
            self.same(self.gradient(leaf, result, self.weights(self.rank, *shape)), expected, 1e-12)
            leaf = self.leaf(rows[self.rank], 3)
            grouped = hvd.grouped_allgather([leaf, leaf])
            gradient = self.gradient(leaf, grouped[0] + grouped[1], self.weights(self.rank, *shape))
            self.same(gradient, 2 * expected, 1e-12)
        number = self.leaf()
        weights = torch.ones(self.size, dtype=torch.float64)
        self.same(self.gradient(number, hvd.allgather(number), weights), torch.tensor(1.0, dtype=torch.float64))

    def test_broadcast(self):
        for root in range(self.size):
            leaf = self.leaf(2, 2)
            average = sum(self.weights(rank, 2, 2) for rank in range(self.size)) / self.size
            expected = average if self.rank == root else torch.zeros_like(average)
            gradient = self.gradient(leaf, hvd.broadcast(leaf, root), self.weights(self.rank, 2, 2))
            self.same(gradient, expected, 1e-12)

    def test_alltoall(self):
        leaf = self.leaf((self.rank + 1) * self.size + 1, 2)  # the last row is not sent
        rows, received = hvd.alltoall(leaf, [self.rank + 1] * self.size)
        self.assertFalse(received.requires_grad)
        gradient = self.gradient(leaf, rows, torch.full_like(rows, float(self.rank + 5)))
        sent = torch.cat([torch.full([self.rank + 1, 2], to + 5.0) for to in range(self.size)])
        self.same(gradient, torch.cat([sent, torch.zeros(1, 2)]).double())
        leaf = self.leaf(self.size)
        gradient = self.gradient(leaf, hvd.alltoall(leaf), torch.full([self.size], float(self.rank)).double())
        self.same(gradient, torch.arange(float(self.size)).double())

    def test_reducescatter(self):
        for rows in (self.size * 2, self.size + 1):
            parts = [len(part) for part in torch.tensor_split(torch.arange(rows), self.size)]
            gathered = torch.cat([self.weights(rank, parts[rank], 2) for rank in range(self.size)])
            for op, factor in ((hvd.Average, 1.0), (hvd.Sum, float(self.size))):
                leaf = self.leaf(rows, 2)
                result = hvd.reducescatter(leaf, op=op)
                weights = self.weights(self.rank, parts[self.rank], 2)
                self.same(self.gradient(leaf, result, weights), gathered * factor, 1e-12)
                leaf = self.leaf(rows, 2)
                results = hvd.grouped_reducescatter([leaf, leaf], op=op)
                gradient = self.gradient(leaf, results[0] + results[1], weights)
                self.same(gradient, gathered * factor * 2, 1e-12)

    def test_second_derivatives(self):
        leaf = self.leaf(3)
        cube = hvd.allreduce(leaf**3, op=hvd.Sum).sum()
        (first,) = torch.autograd.grad(cube, leaf, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), leaf)
        self.same(second, (6 * leaf * self.size).detach(), 1e-12)

    def test_no_gradient_is_recorded_without_need(self):
        leaf = self.leaf(2)
        with torch.no_grad():
            self.assertFalse(hvd.allreduce(leaf).requires_grad)
        self.assertFalse(hvd.allreduce(leaf.detach()).requires_grad)
        self.assertFalse(hvd.synchronize(hvd.allreduce_async(leaf)).requires_grad)

    def test_a_model_through_allreduce(self):
        """Averages of a loss give the gradients of the whole batch."""
        torch.manual_seed(1)
        model = torch.nn.Linear(4, 2).double()
        batch = torch.randn(3 * self.size, 4, dtype=torch.float64)
        hvd.allreduce(model(batch[self.rank * 3 : self.rank * 3 + 3]).square().mean()).backward()
        gradient = hvd.allreduce(model.weight.grad)
        model.zero_grad()
        model(batch).square().mean().backward()
        self.same(gradient, model.weight.grad, 1e-12)


if __name__ == "__main__":
    unittest.main()
