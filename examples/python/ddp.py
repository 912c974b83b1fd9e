"""Learns to read handwritten digits with torch's own DistributedDataParallel, on hvdrun's engine.

    hvdrun -np 2 python3 ddp.py
    hvdrun -np 4 -H node1:2,node2:2 python3 ddp.py --epochs 20

A script for torchrun: one word, "hvd", chooses the engine. --backend gloo shows the difference.
"""

import argparse

import torch
import torch.distributed as dist
from digits import make_model, read_digits, train_epoch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

import hvdrun.c10d  # noqa: F401 - PyTorch 2.5 and newer know the backend without this line


@torch.no_grad()
def count_right(model, dataset):
    """Returns how many images are read right, each by one of the ranks."""
    images, digits = dataset.tensors
    mine = slice(dist.get_rank(), None, dist.get_world_size())
    right = (model(images[mine]).argmax(1) == digits[mine]).sum()
    dist.all_reduce(right)
    return right.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch", type=int, default=64, help="images a step, over all ranks")
    parser.add_argument("--lr", type=float, default=0.005)
    parser.add_argument("--backend", default="hvd")
    options = parser.parse_args()

    dist.init_process_group(options.backend)
    torch.manual_seed(1)
    torch.set_num_threads(1)
    training, testing = read_digits()
    sampler = DistributedSampler(training)
    loader = DataLoader(training, batch_size=max(1, options.batch // dist.get_world_size()), sampler=sampler)
    model = DistributedDataParallel(make_model())
    optimizer = torch.optim.Adam(model.parameters(), lr=options.lr)
    for epoch in range(1, options.epochs + 1):
        sampler.set_epoch(epoch)
        loss = torch.tensor(train_epoch(model, optimizer, loader) / dist.get_world_size())
        dist.all_reduce(loss)
        right = count_right(model.module, testing)
        if dist.get_rank() == 0:
            print(f"epoch {epoch} loss={loss.item():.4f} right={right}/{len(testing)}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
