"""Learns to read handwritten digits: the 1797 images that scikit-learn ships.

    hvdrun -np 2 python3 digits.py
    hvdrun -np 4 -H node1:2,node2:2 python3 digits.py --epochs 20

This is the way of most training scripts: each rank takes its part of the images, the gradients are averaged, rank 0
prints. The comments say which lines make a script for one process one for many.
"""

import argparse
import sys

import horovod.torch as hvd
import torch
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def read_digits():
    """Returns the images and their digits, for training and for testing."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        sys.exit("digits.py needs scikit-learn, which has the images: pip install scikit-learn")
    images, digits = load_digits(return_X_y=True)
    images = torch.tensor(images / 16, dtype=torch.float32).reshape(-1, 1, 8, 8)
    digits = torch.tensor(digits)
    return TensorDataset(images[:1500], digits[:1500]), TensorDataset(images[1500:], digits[1500:])


def make_model():
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 16, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(16, 32, 3, padding=1), torch.nn.ReLU(), torch.nn.Flatten(),
        torch.nn.Linear(32 * 4 * 4, 10),
    )  # fmt: skip


def train_epoch(model, optimizer, loader):
    """Returns the mean loss of this rank's images."""
    total = 0.0
    for images, digits in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images), digits)
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / len(loader)


@torch.no_grad()
def count_right(model, dataset):
    """Returns how many of this rank's part of the images are read right."""
    images, digits = dataset.tensors
    mine = slice(hvd.rank(), None, hvd.size())
    return (model(images[mine]).argmax(1) == digits[mine]).sum()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch", type=int, default=64, help="images a step, over all ranks")
    parser.add_argument("--lr", type=float, default=0.005)
    options = parser.parse_args()

    hvd.init()  # joins the job
    torch.manual_seed(1)
    torch.set_num_threads(1)
    training, testing = read_digits()
    sampler = DistributedSampler(training, num_replicas=hvd.size(), rank=hvd.rank())  # each rank its own images
    loader = DataLoader(training, batch_size=max(1, options.batch // hvd.size()), sampler=sampler)
    model = make_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=options.lr)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())  # averages gradients while backward runs
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)  # all begin alike
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    for epoch in range(1, options.epochs + 1):
        sampler.set_epoch(epoch)
        loss = torch.tensor(train_epoch(model, optimizer, loader))
        loss = hvd.allreduce(loss, name="loss")
        right = hvd.allreduce(count_right(model, testing), name="right", op=hvd.Sum)
        if hvd.rank() == 0:
            print(f"epoch {epoch} loss={loss.item():.4f} right={right.item()}/{len(testing)}", flush=True)


if __name__ == "__main__":
    main()
