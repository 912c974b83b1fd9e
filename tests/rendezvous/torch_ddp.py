"""DistributedDataParallel of a small model over gloo and env://, in the manner of scripts for torchrun: who and where we
are comes from LOCAL_RANK, RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. Data and model come from a seed; a step's batch
is shared out among the ranks, so the loss of each step is the same for any number of them, but for rounding.

Rank 0 prints a line `step loss` for each step and, as `parameters`, a sum over the model."""
import os

import torch
import torch.distributed as dist
from torch import nn

STEPS, BATCH, INPUTS, CLASSES = 20, 48, 24, 6

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
local_rank = int(os.environ["LOCAL_RANK"])
assert 0 <= local_rank < int(os.environ["LOCAL_WORLD_SIZE"]) <= size
assert os.environ["MASTER_ADDR"] and int(os.environ["MASTER_PORT"]) > 0

dist.init_process_group("gloo", init_method="env://")
assert (dist.get_rank(), dist.get_world_size()) == (rank, size)
torch.manual_seed(3)
inputs = torch.randn(STEPS, BATCH, INPUTS)
labels = (inputs @ torch.randn(INPUTS, CLASSES)).argmax(-1)
torch.manual_seed(100 + rank)  # DDP must bring rank 0's model to all
model = nn.parallel.DistributedDataParallel(
    nn.Sequential(nn.Linear(INPUTS, 32), nn.Tanh(), nn.Linear(32, CLASSES)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)

for step in range(STEPS):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(inputs[step, rank::size]), labels[step, rank::size])
    loss.backward()
    optimizer.step()
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    if rank == 0:
        print(f"{step} {mean.item() / size:.7f}", flush=True)

total = sum(p.detach().abs().double().sum() for p in model.parameters())
sums = [torch.zeros((), dtype=torch.float64) for _ in range(size)]
dist.all_gather(sums, total)
assert all(s == sums[0] for s in sums), "the ranks' models differ"
if rank == 0:
    print(f"parameters {total.item():.5f}", flush=True)
dist.destroy_process_group()
