"""Rounds of random operations from a printed seed: what the stresses of arrays and of tensors share.

The plan of a round is the same on all ranks. The order in which a rank begins and waits is its own. HVD_SEED=N runs
that seed again; HVD_ROUNDS=N makes more rounds.
"""

import os
import random
import time

import hvdrun as hvd
from hvdrun import _hvd

ROUNDS = int(os.environ.get("HVD_ROUNDS", "12"))


class Rounds:
    """A step is one operation: begin() starts it, check(dice, test) waits and compares."""

    def __init__(self, seed, make_step, call_wrongly, test):
        """make_step: (dice of all ranks, number) -> step. call_wrongly: (dice, test), an error of this rank alone."""
        self.shared = random.Random(seed)
        self.own = random.Random(seed * 1000 + hvd.rank())
        self.make_step, self.call_wrongly, self.test = make_step, call_wrongly, test

    def run(self, between=None, begun=None):
        """One round. begun() is called after each beginning, between(dice) on all ranks when all have begun."""
        steps = [self.make_step(self.shared, number) for number in range(self.shared.randrange(1, 25))]
        pauses = self.shared.random() < 0.5
        self.own.shuffle(steps)
        for step in steps:
            step.begin()
            if begun:
                begun()
            if self.own.random() < 0.1:
                self.call_wrongly(self.own, self.test)
        if pauses and between:
            between(self.shared)
        kept = [step for step in steps if not step.plan["dropped"]]
        del steps, step
        self.own.shuffle(kept)
        for step in kept:
            step.check(self.own, self.test)
        self.drain()  # the names come again
        hvd.barrier()

    def drain(self):
        """Waits for the operations whose handles were dropped."""
        end = time.monotonic() + 30
        while _hvd.pending():
            self.test.assertLess(time.monotonic(), end)
            time.sleep(0.0005)


def own_seed():
    """Returns HVD_SEED, or a random one."""
    return int(os.environ.get("HVD_SEED", random.SystemRandom().randrange(1 << 31)))


def choose_seed():
    """Returns the seed, the same on all ranks. Rank 0 prints it."""
    seed = bytearray(own_seed().to_bytes(8, "little"))
    hvd.broadcast_(seed, 0, name="seed")
    if hvd.rank() == 0:
        print(f"HVD_SEED={int.from_bytes(seed, 'little')}", flush=True)
    return int.from_bytes(seed, "little")
