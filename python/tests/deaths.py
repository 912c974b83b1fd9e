"""The program of test_deaths.py: random rounds until one rank ends, in a way and at a moment that the seed chooses.

    deaths.py MODULE SEED     MODULE has make_step and call_wrongly: test_stress or test_torch_stress

stdout, with times of the same clock on all ranks:

    way WAY RANK STATUS    what is to come, from rank 0
    ends TIME              the rank ends now
    told TIME SENTENCE     another rank has heard of it
    sound                  the other rank's memory can be used, and its later calls fail at once
"""

import contextlib
import ctypes
import importlib
import os
import random
import resource
import signal
import sys
import threading
import time
import unittest

import hvdrun as hvd

ROUNDS_MOST = 4
WAYS = {
    "exception": 1,
    "exception in backward": 1,
    "exit": 7,
    "_exit": 9,
    "kill": 128 + signal.SIGKILL,
    "kill while it waits": 128 + signal.SIGKILL,
    "abort": 128 + signal.SIGABRT,
    "crash": 128 + signal.SIGSEGV,
}
"""The ways of ending, and the status of the job."""


def say(*words):
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def end_now():
    say("ends", time.monotonic())
    os.kill(os.getpid(), signal.SIGKILL)


class Victim:
    """The rank that ends; each call of begun() may be the moment."""

    def __init__(self, dice, way):
        self.way, self.dice, self.due, self.over = way, dice, False, False

    def begun(self):
        if self.due and not self.over and self.dice.random() < 0.3:
            self.end()

    def end(self):
        self.over = True
        if self.way == "kill while it waits":
            threading.Timer(self.dice.uniform(0, 0.02), end_now).start()
            return
        if self.way == "kill":
            end_now()
        say("ends", time.monotonic())
        if self.way == "_exit":
            os._exit(WAYS["_exit"])
        if self.way == "exit":
            sys.exit(WAYS["exit"])
        if self.way == "abort":
            os.abort()
        if self.way == "crash":
            ctypes.memset(8, 0, 1)
        raise KeyError("the first cause")


class Memory:
    """Memory of the job that must be usable after its end: of alloc(), of a result, of gradients."""

    def __init__(self, trainer):
        self.shared = memoryview(hvd.alloc(1 << 16))
        self.gathered = memoryview(hvd.allgather(bytes(100), name="kept"))
        self.trainer = trainer

    def use(self):
        for view in (self.shared, self.gathered):
            view.cast("B")[:8] = b"survives"
            assert bytes(view.cast("B")[:8]) == b"survives"
        for parameter in self.trainer.model.parameters() if self.trainer else ():
            if parameter.grad is not None:
                parameter.grad.add_(1)
                assert (parameter.grad == parameter.grad.clone()).all()


def outlive(error, memory, own):
    """A rank that has heard of the end."""
    say("told", time.monotonic(), error)
    memory.use()
    for _ in range(2):
        try:
            hvd.allreduce(b"abc", name="after the end", op=hvd.Sum)
        except hvd.HorovodInternalError:
            continue
        raise AssertionError("an operation succeeds after a rank has gone")
    choice = own.choice(["raise", "exit", "return", "_exit", "shutdown"])
    if choice == "shutdown":
        with contextlib.suppress(hvd.HorovodInternalError):
            hvd.shutdown()
        memory.use()
    say("sound")
    if choice == "raise":
        raise error
    if choice == "exit":
        sys.exit(3)
    if choice == "_exit":
        os._exit(0)


def main():
    module, seed = sys.argv[1], int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    test = unittest.TestCase()
    stress = importlib.import_module(module)
    from rounds import Rounds

    rounds = Rounds(seed, stress.make_step, stress.call_wrongly, test)
    dice, own = random.Random(seed + 1), random.Random(seed * 1000 + hvd.rank() + 1)
    trainer = stress.Trainer() if hasattr(stress, "Trainer") else None
    ways = [way for way in WAYS if trainer or way != "exception in backward"]
    way, rank, at = dice.choice(ways), dice.randrange(hvd.size()), dice.randrange(ROUNDS_MOST)
    memory = Memory(trainer)
    victim = Victim(own, way)
    if hvd.rank() == 0:
        say("way", way.replace(" ", "-"), rank, WAYS[way])

    def between(dice):
        if trainer:
            if victim.due and way == "exception in backward":
                trainer.model[0].weight.register_hook(lambda _: victim.end())
            trainer.step(dice)

    try:
        for number in range(100):
            victim.due = hvd.rank() == rank and number >= at
            rounds.run(between, victim.begun if way != "exception in backward" or not trainer else None)
    except hvd.HorovodInternalError as error:
        outlive(error, memory, own)


main()
