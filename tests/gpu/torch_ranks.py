"""horovod.torch and torch.distributed's backend hvd with tensors on CUDA devices, as a test of a real GPU.

    hvdrun -np 2 python3 tests/gpu/torch_ranks.py

Each test compares what ranks get on the device with what the processor computes. Rank 0 prints "ok - TEST" or "not ok - TEST" for
all ranks, and figures as "# ..." lines: horovod.torch beside torch's own nccl group, in turns, in one process. Exit status 1: a test
failed. Exit status 77: this PyTorch has no CUDA device.
"""

import os
import statistics
import sys
import time
import traceback

import torch
import torch.distributed as dist

if not torch.cuda.is_available():
    print("this PyTorch has no CUDA device")
    sys.exit(77)

import horovod.torch as hvd
import hvdrun.c10d  # noqa: F401 - the backend, for a package that is not installed

PAIRS = 5
SIZES = ((4, 200), (64 << 10, 100), (1 << 20, 50), (64 << 20, 8))
"""Bytes, and how many operations of a pair."""


def ramp(count, rank, dtype=torch.float32, device="cuda"):
    """Returns small whole numbers, so that sums are exact in each dtype."""
    return ((torch.arange(count, device=device) + rank) % 5).to(dtype)


def expected_sum(count, dtype=torch.float32):
    return sum(ramp(count, rank, dtype) for rank in range(hvd.size()))


def allreduce():
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int32, torch.uint8):
        for count in (1, 1000, 1 << 20):
            got = hvd.allreduce(ramp(count, hvd.rank(), dtype), op=hvd.Sum, name=f"sum.{dtype}.{count}")
            assert torch.equal(got, expected_sum(count, dtype)), f"{dtype}, {count} elements"


def average_in_place():
    tensor = ramp(4096, hvd.rank())
    hvd.allreduce_(tensor, name="average")
    assert torch.allclose(tensor, expected_sum(4096) / hvd.size())


def groups():
    mine = [ramp(100 + i, hvd.rank()) for i in range(40)] + [ramp(1 << 19, hvd.rank())]
    for got in hvd.grouped_allreduce(mine, op=hvd.Sum, name="group"):
        assert torch.equal(got, expected_sum(len(got)))


def other_kinds():
    size, rank = hvd.size(), hvd.rank()
    gathered = hvd.allgather(torch.full((rank + 1, 3), rank, device="cuda"), name="ragged")
    assert gathered[:, 0].tolist() == [r for r in range(size) for _ in range(r + 1)]
    sent = torch.full((5,), rank, device="cuda")
    assert torch.equal(hvd.broadcast(sent, root_rank=size - 1, name="from last"), torch.full_like(sent, size - 1))
    got, _ = hvd.alltoall(torch.arange(2 * size, device="cuda") + 100 * rank, splits=torch.full((size,), 2), name="all")
    assert got.tolist() == [100 * r + 2 * rank + i for r in range(size) for i in range(2)]
    part = hvd.reducescatter(ramp(8 * size, rank), op=hvd.Sum, name="part")
    assert torch.equal(part, expected_sum(8 * size)[8 * rank : 8 * rank + 8])
    adasum = hvd.allreduce(torch.ones(64, device="cuda"), op=hvd.Adasum, name="adasum")
    assert torch.allclose(adasum, torch.ones(64, device="cuda"), atol=1e-6)


def streams():
    """A tensor that a slow kernel of another stream still writes."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        tensor = ramp(1 << 16, hvd.rank())
        handle = hvd.allreduce_async_(tensor, op=hvd.Sum, name="stream")
        hvd.synchronize(handle)
        right = (tensor - expected_sum(1 << 16)).abs().max()
    assert right.item() == 0


def make_model(device):
    torch.manual_seed(7)
    return torch.nn.Sequential(
        torch.nn.Linear(32, 256), torch.nn.Tanh(), torch.nn.Linear(256, 256), torch.nn.Tanh(), torch.nn.Linear(256, 10)
    ).to(device)


def batch(step, rank, device):
    numbers = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randn(16, 32, generator=numbers).to(device), torch.randint(10, (16,), generator=numbers).to(device)


def losses_of(model, optimizer, mine):
    """Returns the losses of 10 steps, each the mean of all batches."""
    losses = []
    for step in range(10):
        optimizer.zero_grad()
        parts = [torch.nn.functional.cross_entropy(model(x), y) for x, y in (batch(step, r, model_device(model)) for r in mine)]
        loss = sum(parts) / len(parts)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def model_device(model):
    return next(model.parameters()).device


def reference():
    model = make_model("cpu")
    return losses_of(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), range(hvd.size()))


def compare_losses(mine):
    total = hvd.allreduce(torch.tensor(mine), name="losses").tolist()
    apart = max(abs(a - b) for a, b in zip(total, reference()))
    assert apart < 2e-3, f"losses are {apart} apart: {total}"


def distributed_optimizer():
    model = make_model("cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    compare_losses(losses_of(model, optimizer, [hvd.rank()]))


def c10d():
    tensor = ramp(4096, hvd.rank())
    dist.all_reduce(tensor)
    assert torch.equal(tensor, expected_sum(4096))
    on_host = ramp(4096, hvd.rank(), device="cpu")
    dist.all_reduce(on_host)
    assert torch.equal(on_host, tensor.cpu())
    model = torch.nn.parallel.DistributedDataParallel(make_model("cuda"))
    compare_losses(losses_of(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), [hvd.rank()]))


def timed(operation, runs):
    torch.cuda.synchronize()
    dist.barrier()
    begun = time.perf_counter()
    for _ in range(runs):
        operation()
    torch.cuda.synchronize()
    return (time.perf_counter() - begun) / runs * 1e6


def figures():
    for size, runs in SIZES:
        tensor = torch.zeros(size // 4, device="cuda")
        of_hvd, of_nccl = [], []
        ours = lambda: hvd.allreduce_(tensor, op=hvd.Sum, name=f"figure.{size}")  # noqa: E731, B023
        theirs = lambda: dist.all_reduce(tensor)  # noqa: E731, B023
        timed(ours, 3), timed(theirs, 3)
        for _ in range(PAIRS):
            of_nccl.append(timed(theirs, runs))
            of_hvd.append(timed(ours, runs))
        mine, other = statistics.median(of_hvd), statistics.median(of_nccl)
        if hvd.rank() == 0:
            print(f"# allreduce {size} B: horovod.torch {mine:.1f} us, torch's nccl {other:.1f} us, {mine / other:.2f}")


def make_large():
    torch.manual_seed(7)
    layer = [torch.nn.TransformerEncoderLayer(1024, 16, 4096, dropout=0, batch_first=True) for _ in range(4)]
    return torch.nn.Sequential(*layer).cuda()


def training():
    """A step of 50 million parameters: without communication, with horovod.torch, with torch's own DDP and nccl."""
    nccl = dist.new_group(backend="nccl")
    x = torch.randn(8, 256, 1024, device="cuda")
    steps = {}
    for name in ("alone", "horovod.torch", "DDP with nccl"):
        model = make_large()
        if name == "DDP with nccl":
            model = torch.nn.parallel.DistributedDataParallel(model, process_group=nccl)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
        if name == "horovod.torch":
            optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())

        def step(model=model, optimizer=optimizer):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()

        steps[name] = step
    of = {name: [] for name in steps}
    for turn in range(PAIRS + 1):
        for name, step in steps.items():
            one = timed(step, 10)
            if turn > 0:
                of[name].append(one)
    if hvd.rank() == 0:
        for name, all_of_them in of.items():
            print(f"# a step of 50 million parameters, {name}: {statistics.median(all_of_them) / 1000:.2f} ms")


def run_test(test):
    """Runs one test on all ranks; returns whether all of them passed."""
    try:
        test()
        mine = 1
    except Exception:
        traceback.print_exc()
        mine = 0
    passed = hvd.allreduce(torch.tensor(mine), op=hvd.Min, name=f"passed.{test.__name__}").item()
    if hvd.rank() == 0:
        print(f"{'ok' if passed else 'not ok'} - PyTorch on the GPU: {test.__name__.replace('_', ' ')}", flush=True)
    return passed


def main():
    begun = time.perf_counter()
    torch.cuda.set_device(int(os.environ["HVD_LOCAL_RANK"]) % torch.cuda.device_count())
    hvd.init()
    dist.init_process_group("hvd")
    tests = (allreduce, average_in_place, groups, other_kinds, streams, distributed_optimizer, c10d, figures, training)
    passed = [run_test(test) for test in tests]
    if hvd.rank() == 0:
        print(f"# PyTorch {torch.__version__}, {hvd.size()} ranks, {time.perf_counter() - begun:.1f} s")
    dist.destroy_process_group()
    sys.exit(not all(passed))


if __name__ == "__main__":
    main()
