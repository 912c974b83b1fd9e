"""A job trains with PyTorch while random ranks die, and slots come and go. HVD_SEED and HVD_EVENTS choose a run."""
# RANKS = 0
# LIMIT = 1200

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import tempfile
import threading
import time
import unittest
from collections import defaultdict

import torch_case  # noqa: F401 - skips the module where there is no torch
from elastic_jobs import begin_elastic, parse_line
from programs import run_program, slow

PROGRAM = """
import json, os, sys, time
def say(*what):
    os.write(1, (json.dumps(what) + "\\n").encode())
worker = int(os.environ.get("HVD_WORKER", os.environ["HVD_RANK"]))
say("begin", worker, os.getpid(), int(os.environ["HVD_LOCAL_RANK"]))
import torch
import horovod.torch as hvd
hvd.init()
torch.set_num_threads(1)
torch.manual_seed(5)
BATCH = 48  # of all ranks together
STEPS = int(os.environ.get("TEST_STEPS", 0))
inputs, targets = torch.randn(20 * BATCH, 8), torch.randn(20 * BATCH, 1)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters(), op=hvd.Sum)

def step(number):  # returns the mean loss of the whole batch, whatever ranks share it
    share = slice(number % 20 * BATCH + hvd.rank(), (number % 20 + 1) * BATCH, hvd.size())
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs[share]), targets[share], reduction="sum") / BATCH
    loss.backward()
    optimizer.step()
    time.sleep(0 if STEPS else 0.02)  # most events find the model changed, and the change not committed
    return hvd.allreduce(loss.detach(), op=hvd.Sum, name="loss").item()

@hvd.elastic.run
def train(state):
    say("enter", worker, os.getpid(), hvd.size(), hvd.elastic.membership(), state.step)
    while not state.over:
        loss = step(state.step)
        if hvd.rank() == 0:
            say("loss", state.step, loss)
        state.step += 1
        over = state.step == STEPS or os.path.exists(os.environ["TEST_END"])
        state.over = bool(hvd.allreduce(torch.tensor([int(over)]), op=hvd.Max, name="over"))
        if not state.over:  # at the end a change would be of no use
            state.commit()

state = hvd.elastic.TorchState(model, optimizer, step=0, over=False)
try:
    train(state)
except SystemExit:
    say("left", worker)
    raise
say("done", worker, state.step)
"""


class Job:
    """A running job, and what its workers have said."""

    def __init__(self, folder):
        self.folder = folder
        self.slots = 4
        self.errors = open(os.path.join(folder, "errors"), "w+")  # noqa: SIM115
        self.recent = []  # numbers of slots, and when they were set
        self.pids, self.places, self.losses, self.lines = {}, {}, defaultdict(list), []
        self.entered, self.left, self.done, self.killed = set(), set(), set(), set()
        self.memberships = set()
        environment = {**os.environ, "TEST_END": os.path.join(folder, "end")}
        self.process = begin_elastic(
            folder, PROGRAM, self.slots, "--blacklist-cooldown-range", "1", "1",
            env=environment, stdout=subprocess.PIPE, stderr=self.errors, text=True,
        )  # fmt: skip
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for text in self.process.stdout:
            self.lines.append(text)
            what, *values = parse_line(text)
            if what == "begin":
                self.pids[values[0]], self.places[values[0]] = values[1:]
            elif what == "enter":
                if self.pids[values[0]] != values[1]:
                    self.lines.append("another process\n")
                self.entered.add(values[0])
                self.memberships.add(values[3])
            elif what == "loss":
                self.losses[values[0]].append(values[1])
            else:
                getattr(self, what).add(values[0])

    def kill(self, choice):
        """Kills a worker, if another one stays that has the state. Returns whether it did."""
        living = [worker for worker in self.pids if worker not in self.killed | self.left]
        slots = min([self.slots, *(number for when, number in self.recent if when > time.monotonic() - 5)])
        worker = choice(living)
        if not any(self.places[other] < slots for other in living if other in self.entered and other != worker):
            return False
        self.killed.add(worker)
        if not self.has(self.pids[worker]):
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pids[worker], signal.SIGKILL)
        return True

    def has(self, pid):
        """Returns whether that is a living process of the job. Numbers of processes come again."""
        try:
            with open(f"/proc/{pid}/environ") as file:
                return self.folder in file.read()
        except (FileNotFoundError, ProcessLookupError):
            return False

    def set_slots(self, number):
        self.recent.append((time.monotonic(), self.slots))
        self.slots = number
        path = os.path.join(self.folder, "slots")
        with open(path + ".new", "w") as file:
            file.write(str(number))
        os.rename(path + ".new", path)

    def end(self):
        with open(os.path.join(self.folder, "end"), "w"):
            pass
        try:
            return self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            return None

    def tell_errors(self):
        """Ends the job, if it still runs, and returns the end of what hvdrun has said."""
        self.process.kill()
        self.reader.join(10)
        self.process.wait()
        self.errors.seek(0)
        return "".join(self.errors.readlines()[-12:])


class Events(unittest.TestCase):
    """The job ends with the losses of one that nothing happens to, in the processes that were not killed."""

    def run_events(self, count):
        seed = int(os.environ.get("HVD_SEED", random.randrange(1 << 20)))
        with tempfile.TemporaryDirectory() as folder:
            job = Job(folder)
            try:
                deaths = self.cause_events(job, random.Random(seed), count)
                status = job.end()
            finally:
                errors = job.tell_errors()
        why = f"seed {seed}: {errors}"
        self.assertIsNotNone(status, why)
        changes, steps = max(job.memberships), len(job.losses)
        print(f"# seed {seed}: {count} events, {deaths} deaths, {changes} memberships, {steps} steps")
        self.check(job, status, why)

    def cause_events(self, job, chance, count):
        """Returns how many have died. Ends early when the job does."""
        deaths = 0
        while not job.entered and job.process.poll() is None:
            time.sleep(0.05)
        for _ in range(count):
            time.sleep(chance.uniform(0.1, 1.9))
            if job.process.poll() is not None:
                break
            if chance.random() < 0.5 and job.kill(chance.choice):
                deaths += 1
            else:
                job.set_slots(chance.randint(2, 5))
        return deaths

    def check(self, job, status, why):
        self.assertEqual(status, 0, why)
        self.assertNotIn("another process\n", job.lines, why)
        self.assertEqual(job.entered - job.killed - job.left, job.done, why)
        for pid in job.pids.values():
            self.assertFalse(job.has(pid), f"process {pid} was left; {why}")
        environment = {**os.environ, "TEST_STEPS": str(len(job.losses)), "TEST_END": "/nowhere"}
        whole = run_program(PROGRAM, 2, env=environment)
        self.assertEqual(whole.returncode, 0, whole.stderr)
        whole = [line[2] for line in map(parse_line, whole.stdout.splitlines()) if line[0] == "loss"]
        self.assertEqual(sorted(job.losses), list(range(len(whole))), why)
        for number, loss in enumerate(whole):
            for told in job.losses[number]:
                self.assertAlmostEqual(told, loss, delta=1e-4, msg=f"step {number}; {why}")

    def test_ten_events(self):
        self.run_events(10)

    @slow
    def test_many_events(self):
        self.run_events(int(os.environ.get("HVD_EVENTS", 200)))
