"""Every operation with every dtype in every kind of process set, and its gradient.

The oracle is torch in one process, which has the tensors of all ranks: a result is torch's own, and a gradient is that
of the sum of all ranks' losses, times the factor by which Horovod's rule differs (hvdrun/torch/autograd.py).
"""
# JOB = torch
# LIMIT = 120

from __future__ import annotations

import functools
import zlib
from typing import Callable, List, NamedTuple

from torch_case import FLOATS, INTEGERS, TorchCase, hvd, torch

UNSIGNED = [getattr(torch, name) for name in ("uint16", "uint32", "uint64") if hasattr(torch, name)]
EIGHT_BITS = [getattr(torch, name) for name in ("float8_e4m3fn", "float8_e5m2") if hasattr(torch, name)]
REDUCED = [*INTEGERS, *UNSIGNED, *FLOATS, torch.bool]
MOVED = [*REDUCED, *EIGHT_BITS]
OPS = [hvd.Sum, hvd.Average, hvd.Min, hvd.Max, hvd.Product]
ROWS = [3, 1, 4, 2]

Tensors = List[torch.Tensor]


def wide(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the same values with the widest type of their kind: not every dtype has every operation of torch."""
    return tensor.double() if tensor.dtype.is_floating_point else tensor.long()


def give(rank: int, rows: int, dtype: torch.dtype, salt: str) -> torch.Tensor:
    """Returns the rows that a rank gives: floating point numbers between 0.5 and 2, others below 6, of both signs."""
    dice = torch.Generator().manual_seed(zlib.crc32(f"{salt} {rank}".encode()))
    shape = [rows, 5]
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=dice).bool()
    signs = torch.randint(0, 2, shape, generator=dice) * 2 - 1
    if dtype.is_floating_point:
        return ((0.5 + 1.5 * torch.rand(shape, generator=dice, dtype=torch.float64)) * signs).to(dtype)
    values = torch.randint(0, 6, shape, generator=dice)
    return (values if dtype == torch.uint8 or dtype in UNSIGNED else values * signs).to(dtype)


def reduce_wide(given: Tensors, op: int) -> torch.Tensor:
    """Returns what an allreduce has to give, in the widest type."""
    stacked = torch.stack([wide(tensor) for tensor in given])
    if given[0].dtype == torch.bool:
        return stacked.amin(0) if op in (hvd.Min, hvd.Product) else stacked.amax(0)
    if op == hvd.Product:
        return stacked.prod(0)
    if op in (hvd.Min, hvd.Max):
        return stacked.amin(0) if op == hvd.Min else stacked.amax(0)
    total = stacked.sum(0)
    if op == hvd.Sum:
        return total
    return total / len(given) if total.is_floating_point() else torch.div(total, len(given), rounding_mode="trunc")


def parts(count: int, size: int) -> List[int]:
    """Returns the rows of each rank after a reducescatter."""
    return [count // size + (index < count % size) for index in range(size)]


def splits_of(sender: int, size: int) -> List[int]:
    """Returns the rows that a rank sends to each in an alltoall."""
    return [(sender + to) % 3 for to in range(size)]


def largest(tensor: torch.Tensor) -> float:
    return wide(tensor).abs().max().item() if tensor.numel() else 0.0


def over(dtypes):
    """Makes a test of a check: (set, dtype, index of this rank, salt) for each set of this rank and each dtype."""

    def decorate(check):
        @functools.wraps(check)
        def test(self):
            for chosen in self.own_sets():
                for dtype in dtypes:
                    with self.subTest(ranks=chosen.ranks, dtype=dtype):
                        check(self, chosen, dtype, chosen.ranks.index(self.rank), str(dtype))

        return test

    return decorate


class InSets(TorchCase):
    """The sets: everyone, every other rank, all but the first, the last alone."""

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        everyone = list(range(cls.size))
        wanted = [everyone[::2], everyone[1::2], everyone[1:], everyone[-1:]]
        chosen = [ranks for at, ranks in enumerate(wanted) if ranks and ranks not in [everyone, *wanted[:at]]]
        cls.added = [hvd.add_process_set(ranks) for ranks in chosen]

    @classmethod
    def tearDownClass(cls) -> None:
        for each in cls.added:
            hvd.remove_process_set(each)

    def own_sets(self):
        return [each for each in [hvd.global_process_set, *self.added] if self.rank in each.ranks]

    def close(self, actual: torch.Tensor, expected: torch.Tensor, given: Tensors) -> None:
        """Fails unless `actual` is `expected`, a wide tensor, but for rounding."""
        dtype = given[0].dtype
        self.assertEqual((actual.dtype, actual.shape), (dtype, expected.shape))
        if not dtype.is_floating_point:
            self.assertTrue(torch.equal(wide(actual), wide(expected.to(dtype))), f"{actual} is not {expected}")
            return
        most = max(sum(map(largest, given)), largest(expected))
        error = largest(wide(actual) - expected)
        self.assertLessEqual(error, len(given) * torch.finfo(dtype).eps * most, f"{actual} is not {expected}")


class Values(InSets):
    @over(REDUCED)
    def test_allreduce(self, chosen, dtype, index, salt):
        given = [give(rank, 40, dtype, salt) for rank in chosen.ranks]
        others = [give(rank, 3, dtype, salt + "other") for rank in chosen.ranks]
        for op in OPS:
            if dtype == torch.bool and op == hvd.Average:
                continue
            expected = reduce_wide(given, op)
            self.close(hvd.allreduce(given[index], op=op, process_set=chosen), expected, given)
            self.close(hvd.allreduce_(given[index].clone(), op=op, process_set=chosen), expected, given)
            pair = hvd.grouped_allreduce([given[index], others[index]], op=op, process_set=chosen)
            self.close(pair[0], expected, given)
            self.close(pair[1], reduce_wide(others, op), others)

    @over(FLOATS)
    def test_factors(self, chosen, dtype, index, salt):
        given = [give(rank, 20, dtype, salt) for rank in chosen.ranks]
        for op in (hvd.Sum, hvd.Average):
            result = hvd.allreduce(
                given[index], op=op, prescale_factor=0.5, postscale_factor=4.0, process_set=chosen
            )
            self.close(result, 2 * reduce_wide(given, op), given + given)

    @over(MOVED)
    def test_allgather(self, chosen, dtype, index, salt):
        given = [give(rank, ROWS[rank % 4], dtype, salt) for rank in chosen.ranks]
        expected = torch.cat([wide(tensor) for tensor in given])
        self.close(hvd.allgather(given[index], process_set=chosen), expected, given)
        for result in hvd.grouped_allgather([given[index], given[index]], process_set=chosen):
            self.close(result, expected, given)

    @over(MOVED)
    def test_broadcast(self, chosen, dtype, index, salt):
        given = [give(rank, 7, dtype, salt) for rank in chosen.ranks]
        for root, rank in enumerate(chosen.ranks):
            self.close(hvd.broadcast(given[index], rank, process_set=chosen), wide(given[root]), given)
            own = given[index].clone()
            hvd.broadcast_(own, rank, process_set=chosen)
            self.close(own, wide(given[root]), given)

    @over(MOVED)
    def test_alltoall(self, chosen, dtype, index, salt):
        size = len(chosen.ranks)
        splits = [splits_of(sender, size) for sender in range(size)]
        given = [give(rank, sum(splits[sender]), dtype, salt) for sender, rank in enumerate(chosen.ranks)]
        rows, received = hvd.alltoall(given[index], splits[index], process_set=chosen)
        sent = [wide(tensor).split(splits[sender])[index] for sender, tensor in enumerate(given)]
        self.close(rows, torch.cat(sent), given)
        self.assertEqual(received.tolist(), [splits[sender][index] for sender in range(size)])

    @over(REDUCED)
    def test_reducescatter(self, chosen, dtype, index, salt):
        if dtype == torch.bool:
            return
        size = len(chosen.ranks)
        for rows in (2 * size, size + 1, 1):
            given = [give(rank, rows, dtype, salt) for rank in chosen.ranks]
            for op in (hvd.Sum, hvd.Average):
                expected = reduce_wide(given, op).split(parts(rows, size))[index]
                self.close(hvd.reducescatter(given[index], op=op, process_set=chosen), expected, given)
                pair = hvd.grouped_reducescatter([given[index], given[index]], op=op, process_set=chosen)
                self.close(pair[1], expected, given)


# ---- gradients ----


class Differentiable(NamedTuple):
    """An operation of one rank, the same for all ranks in one process, and Horovod's factor for so many ranks."""

    call: Callable
    """(leaf, index of this rank, set) -> result"""
    model: Callable[[Tensors], Tensors]
    factor: Callable[[int], float] = lambda _: 1.0
    rows: Callable[[int, int], int] = lambda *_: 4


def in_all(combine: Callable[[Tensors], torch.Tensor]) -> Callable[[Tensors], Tensors]:
    """Returns the model of an operation that gives the same to all."""
    return lambda leaves: [combine(leaves)] * len(leaves)


def total(leaves: Tensors) -> torch.Tensor:
    return torch.stack(leaves).sum(0)


def scattered(combine: Callable[[Tensors], torch.Tensor]) -> Callable[[Tensors], Tensors]:
    return lambda leaves: list(combine(leaves).split(parts(leaves[0].shape[0], len(leaves))))


def exchange(leaves: Tensors) -> Tensors:
    size = len(leaves)
    pieces = [leaf.split(splits_of(sender, size)) for sender, leaf in enumerate(leaves)]
    return [torch.cat([pieces[sender][to] for sender in range(size)]) for to in range(size)]


def summed(results: Tensors) -> torch.Tensor:
    """Of a group of the leaf and its double."""
    return results[0] + results[1]


OPERATIONS = {
    "allreduce sum": Differentiable(
        lambda leaf, _, chosen: hvd.allreduce(leaf, op=hvd.Sum, process_set=chosen), in_all(total)),
    "allreduce average": Differentiable(
        lambda leaf, _, chosen: hvd.allreduce(leaf, process_set=chosen),
        in_all(lambda leaves: total(leaves) / len(leaves))),
    "allreduce scaled": Differentiable(
        lambda leaf, _, chosen: hvd.allreduce(
            leaf, op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0, process_set=chosen),
        in_all(lambda leaves: 1.5 * total(leaves))),
    "grouped allreduce": Differentiable(
        lambda leaf, _, chosen: summed(
            hvd.grouped_allreduce([leaf, 2 * leaf], op=hvd.Sum, process_set=chosen)),
        in_all(lambda leaves: 3 * total(leaves))),
    "allgather": Differentiable(
        lambda leaf, _, chosen: hvd.allgather(leaf, process_set=chosen), in_all(torch.cat),
        lambda size: 1 / size, lambda index, _: ROWS[index % 4]),
    "grouped allgather": Differentiable(
        lambda leaf, _, chosen: summed(hvd.grouped_allgather([leaf, 2 * leaf], process_set=chosen)),
        in_all(lambda leaves: 3 * torch.cat(leaves)), lambda size: 1 / size, lambda index, _: ROWS[index % 4]),
    "broadcast of the first": Differentiable(
        lambda leaf, _, chosen: hvd.broadcast(leaf, chosen.ranks[0], process_set=chosen),
        in_all(lambda leaves: leaves[0]), lambda size: 1 / size),
    "broadcast of the last": Differentiable(
        lambda leaf, _, chosen: hvd.broadcast(leaf, chosen.ranks[-1], process_set=chosen),
        in_all(lambda leaves: leaves[-1]), lambda size: 1 / size),
    "alltoall": Differentiable(
        lambda leaf, index, chosen: hvd.alltoall(leaf, splits_of(index, len(chosen.ranks)), process_set=chosen)[0],
        exchange, rows=lambda index, size: sum(splits_of(index, size))),
    "reducescatter sum": Differentiable(
        lambda leaf, _, chosen: hvd.reducescatter(leaf, op=hvd.Sum, process_set=chosen), scattered(total), float),
    "reducescatter average": Differentiable(
        lambda leaf, _, chosen: hvd.reducescatter(leaf, process_set=chosen),
        scattered(lambda leaves: total(leaves) / len(leaves)), float),
    "grouped reducescatter": Differentiable(
        lambda leaf, _, chosen: summed(
            hvd.grouped_reducescatter([leaf, 2 * leaf], op=hvd.Sum, process_set=chosen)),
        scattered(lambda leaves: 3 * total(leaves)), float),
}  # fmt: skip


class Gradients(InSets):
    @over(FLOATS)
    def test_every_operation(self, chosen, dtype, index, _):
        for name, operation in OPERATIONS.items():
            with self.subTest(operation=name):
                self.check(operation, chosen, dtype, index)

    def check(self, operation: Differentiable, chosen, dtype: torch.dtype, index: int) -> None:
        ranks = chosen.ranks
        given = [give(rank, operation.rows(at, len(ranks)), dtype, "leaf") for at, rank in enumerate(ranks)]
        leaves = [wide(tensor).requires_grad_() for tensor in given]
        results = operation.model(leaves)
        weights = [give(rank, len(result), dtype, "weight") for rank, result in zip(ranks, results, strict=True)]
        loss = sum((result * wide(weight)).sum() for result, weight in zip(results, weights, strict=True))
        (expected,) = torch.autograd.grad(loss, leaves[index], allow_unused=True)
        expected = torch.zeros_like(leaves[index]) if expected is None else expected
        leaf = given[index].clone().requires_grad_()
        result = operation.call(leaf, index, chosen)
        self.assertTrue(result.requires_grad)
        self.close(result.detach(), results[index].detach(), given * 3)
        (gradient,) = torch.autograd.grad(result, leaf, weights[index])
        self.close(gradient, expected * operation.factor(len(ranks)), weights * 3)
