"""Learns to read handwritten digits while ranks die, and hosts come and go.

    hvdrun -np 4 --min-np 2 -H node1:2,node2:2 python3 elastic.py --epochs 100
    hvdrun -np 2 --host-discovery-script ./hosts.sh python3 elastic.py --epochs 100

The way of digits.py, with a state that survives. Kill a rank while it runs: the others go on from the last commit.
"""

import argparse

import horovod.torch as hvd
import torch
from digits import count_right, make_model, read_digits
from torch.utils.data import DataLoader


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch", type=int, default=32, help="images a step on each rank")
    parser.add_argument("--lr", type=float, default=0.005)
    parser.add_argument("--commit", type=int, default=5, help="steps between two commits")
    options = parser.parse_args()

    hvd.init()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    training, testing = read_digits()
    sampler = hvd.elastic.ElasticSampler(training)  # the images that no rank has read in this epoch
    loader = DataLoader(training, batch_size=options.batch, sampler=sampler)
    model = make_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=options.lr)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    state = hvd.elastic.TorchState(model, optimizer, sampler=sampler, epoch=1, steps=0)

    def tell():
        if hvd.rank() == 0:
            print(f"{hvd.size()} ranks go on at epoch {state.epoch}, step {state.steps}", flush=True)

    state.register_reset_callbacks([tell])

    @hvd.elastic.run  # called again with the last commit when the ranks have changed
    def train(state):
        while state.epoch <= options.epochs:
            for number, (images, digits) in enumerate(loader):
                optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(model(images), digits)
                loss.backward()
                optimizer.step()
                sampler.record_batch(number, options.batch)
                state.steps += 1
                if state.steps % options.commit == 0:
                    state.commit()
            right = hvd.allreduce(count_right(model, testing), name="right", op=hvd.Sum)
            if hvd.rank() == 0:
                print(f"epoch {state.epoch} ranks={hvd.size()} right={right.item()}/{len(testing)}", flush=True)
            state.epoch += 1
            sampler.set_epoch(state.epoch)
            state.commit()

    train(state)


if __name__ == "__main__":
    main()
