"""Trains with torch's own DistributedDataParallel while ranks die, and hosts come and go.

    hvdrun -np 4 --min-np 2 -H localhost:4 python3 elastic_ddp.py
    hvdrun -np 2 --host-discovery-script ./hosts.sh python3 elastic_ddp.py --steps 2000

Kill a rank while it runs: the others go on from the last commit, with the same processes. The ranks share the samples
of a step, so the losses are the same for any number of ranks.
"""

import argparse
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from hvdrun.c10d import elastic


def make_batch(step, size):
    """Returns the samples of a step, the same on all ranks: points, and a wave of them."""
    points = torch.rand(size, 2, generator=torch.Generator().manual_seed(step)) * 2 - 1
    return points, torch.sin(3 * points[:, :1]) * points[:, 1:]


def train_step(ddp, optimizer, step, batch):
    """Returns the mean loss over all samples, of which this rank has each size-th."""
    mine = slice(dist.get_rank(), None, dist.get_world_size())
    points, heights = make_batch(step, batch)
    loss = (ddp(points[mine]) - heights[mine]).square().sum() / batch
    optimizer.zero_grad()
    (loss * dist.get_world_size()).backward()  # DDP takes the mean of the ranks' gradients
    optimizer.step()
    total = loss.detach()
    dist.all_reduce(total)
    return total.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--batch", type=int, default=60, help="samples a step, over all ranks")
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--commit", type=int, default=5, help="steps between two commits")
    parser.add_argument("--pause", type=float, default=0.01, help="seconds between two steps, to have time for a kill")
    options = parser.parse_args()

    dist.init_process_group("hvd")  # a rank that comes later meets the others here
    torch.manual_seed(1)
    torch.set_num_threads(1)
    hidden = options.hidden
    model = torch.nn.Sequential(
        torch.nn.Linear(2, hidden), torch.nn.Tanh(), torch.nn.Linear(hidden, hidden), torch.nn.Tanh(),
        torch.nn.Linear(hidden, 1),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=options.lr)
    state = elastic.TorchState(model, optimizer, step=0)

    @elastic.run  # called again with the last commit, and another default group, when the ranks have changed
    def train(state):
        ddp = DistributedDataParallel(model)  # the module outlives the change, and what belongs to a group does not
        if dist.get_rank() == 0 and elastic.membership() > 1:
            print(f"{dist.get_world_size()} ranks go on at step {state.step}", flush=True)
        while state.step < options.steps:
            loss = train_step(ddp, optimizer, state.step, options.batch)
            if dist.get_rank() == 0 and state.step % 10 == 0:
                print(f"step {state.step} ranks={dist.get_world_size()} loss={loss:.6f}", flush=True)
            time.sleep(options.pause)
            state.step += 1
            if state.step % options.commit == 0:
                state.commit()
        return loss

    loss = train(state)
    if dist.get_rank() == 0:
        print(f"end ranks={dist.get_world_size()} loss={loss:.6f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
