"""Trains a small transformer on the text of this repository's README, and lets it write.

    hvdrun -np 2 python3 language_model.py
    hvdrun -np 4 -H node1:2,node2:2 python3 language_model.py --data FILE --steps 500
"""

import argparse
import os

import horovod.torch as hvd
import torch

README = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "README.md")


class Model(torch.nn.Module):
    """Guesses each character of a line of text from those before it."""

    def __init__(self, alphabet, context, width=64, heads=4, layers=2):
        super().__init__()
        self.characters = torch.nn.Embedding(alphabet, width)
        self.places = torch.nn.Embedding(context, width)
        layer = torch.nn.TransformerEncoderLayer(
            width, heads, 4 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.layers = torch.nn.TransformerEncoder(layer, layers)
        self.scores = torch.nn.Linear(width, alphabet)
        self.register_buffer("later", torch.triu(torch.full((context, context), float("-inf")), diagonal=1))

    def forward(self, text):
        length = text.shape[1]
        rows = self.characters(text) + self.places.weight[:length]
        return self.scores(self.layers(rows, mask=self.later[:length, :length]))


def read_text(path):
    """Returns the text as numbers, and the characters that the numbers stand for."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    characters = sorted(set(text))
    number = {character: index for index, character in enumerate(characters)}
    return torch.tensor([number[character] for character in text]), characters


@torch.no_grad()
def write(model, context, start, count):
    """Returns the numbers of a text that the model has written."""
    text = start
    for _ in range(count):
        scores = model(text[None, -context:])[0, -1]
        text = torch.cat([text, torch.multinomial(torch.softmax(scores, 0), 1)])
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default=README, help="a text in UTF-8 (this repository's README)")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=32, help="pieces of text a step, over all ranks")
    parser.add_argument("--context", type=int, default=64, help="characters in a piece")
    parser.add_argument("--write", type=int, default=200, help="characters to write at the end")
    options = parser.parse_args()

    hvd.init()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    text, characters = read_text(options.data)
    model = Model(len(characters), options.context)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.002)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    torch.manual_seed(2 + hvd.rank())  # each rank takes other pieces
    for step in range(1, options.steps + 1):
        first = torch.randint(len(text) - options.context, (max(1, options.batch // hvd.size()), 1))
        piece = text[first + torch.arange(options.context + 1)]
        optimizer.zero_grad()
        scores = model(piece[:, :-1])
        loss = torch.nn.functional.cross_entropy(scores.flatten(0, 1), piece[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            mean = hvd.allreduce(loss.detach(), name="loss")
            if hvd.rank() == 0:
                print(f"step {step} loss={mean.item():.4f}", flush=True)
    if hvd.rank() == 0 and options.write > 0:
        model.eval()
        written = write(model, options.context, text[:1], options.write)
        print("".join(characters[number] for number in written))


if __name__ == "__main__":
    main()
