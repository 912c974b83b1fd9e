"""An elastic job of horovod.torch whose model and gradients are on CUDA devices, as a test of a real GPU.

    hvdrun -np 3 --min-np 2 python3 tests/gpu/torch_elastic.py

The last rank kills itself in the middle of the training. The other ranks go on from the last commit, and all ranks have the same
parameters at the end. Rank 0 prints "ok - ..." or "not ok - ...", and how long the death held it, as a "# ..." line. Exit status 77:
this PyTorch has no CUDA device.
"""

import os
import signal
import sys
import time

import torch

if not torch.cuda.is_available():
    print("this PyTorch has no CUDA device")
    sys.exit(77)

import horovod.torch as hvd

STEPS = 40
DEATH = 15
COMMIT = 5


def make_model():
    torch.manual_seed(7)
    return torch.nn.Sequential(
        torch.nn.Linear(32, 1024), torch.nn.Tanh(), torch.nn.Linear(1024, 1024), torch.nn.Tanh(), torch.nn.Linear(1024, 1)
    ).cuda()


def batch(step):
    numbers = torch.Generator().manual_seed(1000 * step + hvd.rank())
    x = torch.randn(64, 32, generator=numbers)
    return x.cuda(), x.sum(1, keepdim=True).cuda() / 8


def main():
    torch.cuda.set_device(int(os.environ.get("HVD_LOCAL_RANK", 0)) % torch.cuda.device_count())
    hvd.init()
    began_with = hvd.size()
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    state = hvd.elastic.TorchState(model, optimizer, step=0, losses=[])
    last = time.perf_counter()
    longest = 0.0

    @hvd.elastic.run
    def train(state):
        nonlocal last, longest
        while state.step < STEPS:
            x, y = batch(state.step)
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            state.losses.append(hvd.allreduce(loss.detach(), name="loss").item())
            state.step += 1
            longest = max(longest, time.perf_counter() - last) if state.step > 3 else 0.0
            last = time.perf_counter()
            if state.step == DEATH and hvd.size() == began_with and hvd.rank() == began_with - 1:
                os.kill(os.getpid(), signal.SIGKILL)
            if state.step % COMMIT == 0:
                state.commit()

    train(state)
    mine = torch.cat([p.detach().flatten() for p in model.parameters()])
    all_of_them = hvd.allgather(mine.unsqueeze(0), name="parameters")
    alike = all(torch.equal(one, all_of_them[0]) for one in all_of_them)
    falls = state.losses[-1] < state.losses[0] / 2
    if hvd.rank() == 0:
        print(f"# {began_with} ranks, then {hvd.size()}; loss {state.losses[0]:.4f} to {state.losses[-1]:.4f}")
        print(f"# the longest step, with the death in it: {longest * 1000:.0f} ms")
        passed = alike and falls and hvd.size() == began_with - 1 and len(state.losses) == STEPS
        print(f"{'ok' if passed else 'not ok'} - PyTorch on the GPU: a rank dies and the others go on", flush=True)


if __name__ == "__main__":
    main()
