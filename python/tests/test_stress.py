"""Random operations on arrays from a printed seed (rounds.py): dtypes, handles that are dropped, errors on purpose."""
# LIMIT = 60

import contextlib
import unittest

import hvdrun as hvd
from ranks import RANK, SIZE, need_numpy, np
from rounds import ROUNDS, Rounds, choose_seed

need_numpy()

DTYPES = ["uint8", "int16", "int32", "int64", "float32", "float64", "bool"]


def content(plan, rank):
    """Small whole numbers: sums are exact in every dtype."""
    return ((np.arange(plan["count"]) * 7 + rank + plan["salt"]) % 5).astype(plan["dtype"])


class Step:
    """One operation: begin() starts it, check() waits and compares."""

    def __init__(self, plan):
        self.plan = plan
        self.array = content(plan, RANK)
        if plan["strided"]:
            self.array = np.repeat(self.array, 2)[::2]
        self.handle = None

    def begin(self):
        plan, name = self.plan, self.plan["name"]
        if plan["kind"] == "allreduce":
            self.handle = hvd.allreduce_async(self.array, name=name, op=plan["op"])
        elif plan["kind"] == "inplace":
            self.handle = hvd.allreduce_async_(self.array, name=name, op=plan["op"])
        elif plan["kind"] == "gather":
            self.handle = hvd.allgather_async(self.array[: plan["count"] - RANK % 3], name=name)
        elif plan["kind"] == "broadcast":
            self.handle = hvd.broadcast_async(self.array, plan["root"], name=name)
        elif plan["kind"] == "group":
            self.handle = hvd.grouped_allreduce_async([self.array, self.array[:3]], name=name, op=plan["op"])
        elif plan["kind"] == "scatter":
            self.handle = hvd.reducescatter_async(self.array, name=name, op=plan["op"])
        else:  # the ranks disagree
            self.handle = hvd.allreduce_async(np.ones(RANK + 1), name=name, op=hvd.Sum)

    def wanted(self):
        plan = self.plan
        each = [content(plan, rank) for rank in range(SIZE)]
        if plan["kind"] == "gather":
            return np.concatenate([array[: plan["count"] - rank % 3] for rank, array in enumerate(each)])
        if plan["kind"] == "broadcast":
            return each[plan["root"]]
        function = {hvd.Sum: np.add, hvd.Max: np.maximum, hvd.Min: np.minimum}[plan["op"]]
        total = each[0]
        for array in each[1:]:
            total = function(total, array, dtype=total.dtype)
        if plan["kind"] == "group":
            return np.concatenate([total, total[:3]])
        return np.array_split(total, SIZE)[RANK] if plan["kind"] == "scatter" else total

    def check(self, dice, test):
        if self.plan["kind"] == "wrong":
            with test.assertRaises(hvd.MismatchError):
                self.handle.wait()
            return
        for _ in range(dice.randrange(3)):
            with contextlib.suppress(hvd.WaitTimeoutError):
                self.handle.wait(dice.choice([0, 0.0005]))
        got = self.handle.wait()
        if self.plan["kind"] == "group":
            got = np.concatenate(got)
        np.testing.assert_array_equal(got, self.wanted(), err_msg=str(self.plan))


def make_step(dice, number):
    kinds = ["allreduce", "inplace", "gather", "broadcast", "group", "scatter"] + ["wrong"] * (SIZE > 1)
    return Step({
        "name": f"step {number}", "kind": dice.choice(kinds), "dtype": dice.choice(DTYPES),
        "count": dice.choice([3, 5, 64, 1000, 30000, 200000]), "op": dice.choice([hvd.Sum, hvd.Max, hvd.Min]),
        "root": dice.randrange(SIZE), "salt": dice.randrange(100), "strided": dice.random() < 0.3,
        "dropped": dice.random() < 0.2,
    })


def call_wrongly(dice, test):
    """Errors of this rank alone: nothing is begun."""
    wrong = dice.choice([
        lambda: hvd.allreduce_async(object(), name="local"),
        lambda: hvd.allreduce_async(np.ones(3, complex), name="local"),
        lambda: hvd.allreduce_async(np.ones(3), name="x" * 300),
        lambda: hvd.allreduce_async(np.ones(3), name="local", op=50),
        lambda: hvd.broadcast_async(np.ones(3), SIZE + 5, name="local"),
        lambda: hvd.alltoall_async(np.ones(3), [9] * SIZE, name="local"),
        lambda: hvd.allreduce_async(np.ones(3), name="local", process_set=hvd.ProcessSet([0])),
    ])
    with test.assertRaises((TypeError, ValueError)):
        wrong()


class Stress(unittest.TestCase):
    def test_rounds(self):
        seed = choose_seed()
        rounds = Rounds(seed, make_step, call_wrongly, self)
        for number in range(ROUNDS):
            with self.subTest(seed=seed, round=number):
                rounds.run()
