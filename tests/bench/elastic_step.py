"""elastic_step.c in a script of PyTorch: elastic_step.py DEATHS BYTES, with so many bytes of model and optimizer."""

import os
import signal
import statistics
import sys
import time

import horovod.torch as hvd
import torch

STEPS = 40
deaths, size = int(sys.argv[1]), int(sys.argv[2])
hvd.init()
torch.set_num_threads(1)
whole = hvd.size()
width = int((size / 8) ** 0.5)  # a parameter has 4 bytes, and its momentum as many
model = torch.nn.Linear(width, width, bias=False)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6, momentum=0.9)
optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
batch = torch.ones(4, width)


def take_step(state):
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()
    state.step += 1


class Watch:
    def __init__(self):
        self.before = self.median = 0
        self.spent = []


watch = Watch()


@hvd.elastic.run
def train(state):
    died, steps = hvd.elastic.membership() // 2, 0
    if watch.spent:
        watch.median = int(statistics.median(watch.spent[-STEPS:]))
    while died < deaths or hvd.size() < whole or steps == 0:
        if died < deaths and hvd.size() == whole and steps >= STEPS and hvd.rank() == 1 + died % (whole - 1):
            os.write(1, b"dies %d\n" % time.monotonic_ns())
            os.kill(os.getpid(), signal.SIGKILL)
        begun = time.monotonic_ns()
        take_step(state)
        end = time.monotonic_ns()
        if steps == 0 and hvd.rank() == 0 and watch.before:
            print("first", hvd.size(), end, watch.before, watch.median, flush=True)
        steps += 1
        watch.before = end
        state.commit()
        watch.spent.append(time.monotonic_ns() - begun)


train(hvd.elastic.TorchState(model, optimizer, step=0))
