"""The trainer of examples/train in PyTorch: a character language model, with the same losses.

    hvdrun -np 4 python3 train_text.py
    hvdrun -np 8 -H node1:4,node2:4 python3 train_text.py --data text --steps 400

A step's samples depend on seed, step and index only, and each rank takes its share of them. The ranks' gradients are
summed. So the losses are the same for any number of ranks, and those of the trainer in C but for rounding.
"""

import argparse

import horovod.torch as hvd
import numpy as np
import torch

EMBEDDING_WIDTH = 16
MASK = (1 << 64) - 1


def mix(a, b, c):
    """Returns a well-mixed 64-bit number of three others: the random numbers of this program."""
    x = 0
    for word in (a, b, c):
        x = (x + word + 0x9E3779B97F4A7C15) & MASK
        x = ((x ^ x >> 30) * 0xBF58476D1CE4E5B9) & MASK
        x = ((x ^ x >> 27) * 0x94D049BB133111EB) & MASK
        x ^= x >> 31
    return x


def start_values(number, shape, width, seed):
    """Returns a tensor of the model before the first step."""
    count = int(np.prod(shape))
    units = np.array([mix(~seed & MASK, number, i) >> 11 for i in range(count)]) / 9007199254740992.0
    return torch.nn.Parameter(torch.tensor((2 * units - 1) * width, dtype=torch.float32).reshape(shape))


class Model(torch.nn.Module):
    """The last characters, each as a row of the embedding, through one hidden tanh layer to scores."""

    def __init__(self, alphabet, context, hidden, seed):
        super().__init__()
        inputs = context * EMBEDDING_WIDTH
        self.embedding = start_values(0, (alphabet, EMBEDDING_WIDTH), 1.0, seed)
        self.hidden_weight = start_values(1, (inputs, hidden), inputs**-0.5, seed)
        self.hidden_bias = torch.nn.Parameter(torch.zeros(hidden))
        self.output_weight = start_values(3, (hidden, alphabet), hidden**-0.5, seed)
        self.output_bias = torch.nn.Parameter(torch.zeros(alphabet))

    def forward(self, question):
        row = self.embedding[question].flatten(1)
        return torch.tanh(row @ self.hidden_weight + self.hidden_bias) @ self.output_weight + self.output_bias


def read_text(path):
    """Returns the bytes of a file as indices into their own alphabet, and the size of the alphabet."""
    with open(path, "rb") as file:
        alphabet, symbols = np.unique(np.frombuffer(file.read(), dtype=np.uint8), return_inverse=True)
    return torch.from_numpy(symbols.astype(np.int64)), len(alphabet)


def batch(text, options, step, first, last):
    """Returns the samples [first, last) of a step: the characters before, and the character to be guessed."""
    context = options.context
    at = [context + mix(options.seed, step, i) % (len(text) - context) for i in range(first, last)]
    at = torch.tensor(at, dtype=torch.int64)
    return text[at[:, None] + torch.arange(-context, 0)], text[at]


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="/usr/share/common-licenses/GPL-3", help="the text to learn")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--global-batch", type=int, default=256, help="characters a step, over all ranks")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--context", type=int, default=8)
    parser.add_argument("--lr", type=float, default=0.003)
    return parser.parse_args()


def main():
    options = parse_options()
    hvd.init()
    torch.set_num_threads(1)
    text, alphabet = read_text(options.data)
    model = Model(alphabet, options.context, options.hidden, options.seed)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = torch.optim.Adam(model.parameters(), lr=options.lr)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters(), op=hvd.Sum)
    first = options.global_batch * hvd.rank() // hvd.size()
    last = options.global_batch * (hvd.rank() + 1) // hvd.size()
    for step in range(1, options.steps + 1):
        question, answer = batch(text, options, step, first, last)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(question), answer, reduction="sum") / options.global_batch
        loss.backward()
        optimizer.step()
        loss = hvd.allreduce(loss.detach(), name="loss", op=hvd.Sum)
        if hvd.rank() == 0:
            print(f"step {step} loss={loss.item():.6f}", flush=True)


if __name__ == "__main__":
    main()
