"""Random operations on tensors from a printed seed (rounds.py): dtypes, layouts, handles that are dropped, errors on
purpose, and the steps of an optimizer between them. test_deaths.py has the same operations, and ranks that end.
"""
# JOB = torch
# LIMIT = 60

from __future__ import annotations

import unittest

import hvdrun
from rounds import ROUNDS, Rounds, choose_seed
from torch_case import FLOATS, INTEGERS, hvd, torch

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
COUNTS = [0, 1, 3, 64, 1000, 30000, 200000]
LAYOUTS = ["contiguous", "columns", "steps", "shared"]


def content(plan, rank):
    """Rows of small whole numbers: sums are exact in every dtype."""
    numbers = (torch.arange(plan["count"] * 2) * 7 + rank + plan["salt"]) % 5
    return numbers.view(-1, 2).to(plan["dtype"])


def lay(tensor, layout):
    """Returns the same values, differently laid in memory."""
    if layout == "columns":
        return tensor.t().contiguous().t()
    if layout == "steps":
        return torch.repeat_interleave(tensor, 2, 0)[::2]
    if layout == "shared" and tensor.numel():
        memory = torch.frombuffer(hvdrun.alloc(tensor.numel() * tensor.element_size()), dtype=tensor.dtype)
        return memory.view(tensor.shape).copy_(tensor)
    return tensor


class Step:
    """One operation of the set of all ranks: begin() starts it, check() waits and compares."""

    def __init__(self, plan):
        self.plan = plan
        self.tensor = lay(content(plan, RANK), plan["layout"])
        self.handle = None

    def rows(self, rank):
        return max(self.plan["count"] - rank % 3, 0)

    def begin(self):
        plan, name, op = self.plan, self.plan["name"], self.plan["op"]
        if plan["kind"] == "allreduce":
            self.handle = hvd.allreduce_async(self.tensor, name=name, op=op)
        elif plan["kind"] == "in place":
            self.handle = hvd.allreduce_async_(self.tensor, name=name, op=op)
        elif plan["kind"] == "group":
            self.handle = hvd.grouped_allreduce_async_([self.tensor, self.tensor[:3].clone()], name=name, op=op)
        elif plan["kind"] == "gather":
            self.handle = hvd.allgather_async(self.tensor[: self.rows(RANK)], name=name)
        elif plan["kind"] == "broadcast":
            self.handle = hvd.broadcast_async_(self.tensor, plan["root"], name=name)
        elif plan["kind"] == "alltoall":
            self.handle = hvd.alltoall_async(self.tensor, self.splits(RANK), name=name)
        elif plan["kind"] == "scatter":
            self.handle = hvd.reducescatter_async(self.tensor, name=name, op=hvd.Sum)
        else:  # the ranks disagree
            self.handle = hvd.allreduce_async(torch.ones(RANK + 1), name=name, op=hvd.Sum)

    def splits(self, sender):
        """The rows for each rank; some may be left."""
        share = self.plan["count"] // (SIZE + 1)
        return [share + min(share, (sender + to) % 2) * (to == 0) for to in range(SIZE)]

    def wanted(self):
        kind = self.plan["kind"]
        each = [content(self.plan, rank) for rank in range(SIZE)]
        if kind == "gather":
            return torch.cat([tensor[: self.rows(rank)] for rank, tensor in enumerate(each)])
        if kind == "broadcast":
            return each[self.plan["root"]]
        if kind == "alltoall":
            pieces = [tensor.split([*self.splits(rank), len(tensor) - sum(self.splits(rank))])
                      for rank, tensor in enumerate(each)]
            return torch.cat([piece[RANK] for piece in pieces])
        stacked = torch.stack(each).double()
        if kind == "scatter" or self.plan["op"] == hvd.Sum:
            total = stacked.sum(0)
        else:
            total = stacked.amax(0) if self.plan["op"] == hvd.Max else stacked.amin(0)
        total = total.to(self.plan["dtype"])
        return torch.tensor_split(total, SIZE)[RANK] if kind == "scatter" else total

    def check(self, dice, test):
        if self.plan["kind"] == "wrong":
            with test.assertRaises(hvdrun.MismatchError):
                hvd.synchronize(self.handle)
            return
        for _ in range(dice.randrange(3)):
            hvd.poll(self.handle)
        got = hvd.synchronize(self.handle)
        if self.plan["kind"] in ("group", "alltoall"):
            got = got[0]
        wanted = self.wanted()
        test.assertEqual((got.dtype, got.shape), (wanted.dtype, wanted.shape), self.plan)
        test.assertTrue(torch.equal(got, wanted), self.plan)


def make_step(dice, number):
    kinds = ["allreduce", "in place", "group", "gather", "broadcast", "alltoall", "scatter"] + ["wrong"] * (SIZE > 1)
    return Step({
        "name": f"step {number}", "kind": dice.choice(kinds), "dtype": dice.choice(INTEGERS + FLOATS),
        "count": dice.choice(COUNTS), "op": dice.choice([hvd.Sum, hvd.Max, hvd.Min]), "root": dice.randrange(SIZE),
        "salt": dice.randrange(100), "layout": dice.choice(LAYOUTS), "dropped": dice.random() < 0.2,
    })  # fmt: skip


def call_wrongly(dice, test):
    """Errors of this rank alone: nothing is begun."""
    wrong = dice.choice([
        lambda: hvd.allreduce_async(object(), name="local"),
        lambda: hvd.allreduce_async(torch.ones(3, dtype=torch.complex64), name="local"),
        lambda: hvd.allreduce_async(torch.ones(3), name="local", op=50),
        lambda: hvd.broadcast_async(torch.ones(3), SIZE + 5, name="local"),
        lambda: hvd.alltoall_async(torch.ones(3), [9] * SIZE, name="local"),
        lambda: hvd.allreduce_async(torch.ones(3), name="local", process_set=hvd.ProcessSet([0])),
        lambda: hvd.synchronize(7),
    ])
    with test.assertRaises((TypeError, ValueError)):
        wrong()


class Trainer:
    """A model that all ranks train together, and the same one in one process with the whole batch."""

    def __init__(self):
        self.model, self.alone = self.make(), self.make()
        self.optimizer = hvd.DistributedOptimizer(
            torch.optim.Adam(self.model.parameters(), lr=0.01), named_parameters=self.model.named_parameters()
        )
        self.single = torch.optim.Adam(self.alone.parameters(), lr=0.01)

    @staticmethod
    def make():
        torch.manual_seed(3)
        return torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh(), torch.nn.Linear(5, 2)).double()

    def step(self, dice):
        torch.manual_seed(dice.randrange(1 << 31))
        batch = torch.randn(SIZE, 3, 4, dtype=torch.float64)
        for model, optimizer, rows in (
            (self.model, self.optimizer, batch[RANK]), (self.alone, self.single, batch.view(-1, 4)),
        ):  # fmt: skip
            optimizer.zero_grad()
            model(rows).square().mean().backward()
            optimizer.step()
        for parameter, wanted in zip(self.model.parameters(), self.alone.parameters(), strict=True):
            torch.testing.assert_close(parameter, wanted, rtol=1e-9, atol=1e-9)


class Stress(unittest.TestCase):
    def test_rounds(self):
        seed = choose_seed()
        rounds = Rounds(seed, make_step, call_wrongly, self)
        trainer = Trainer()
        for number in range(ROUNDS):
            with self.subTest(seed=seed, round=number):
                rounds.run(between=lambda dice: trainer.step(dice))
