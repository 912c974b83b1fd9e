"""A sampler that divides an epoch among the ranks, though they change in the middle.

Each sample is given once, but for those that a rank has read which died: since the last change of the ranks nobody
else knows of them, and they are given again.
"""

from __future__ import annotations

import random
from typing import Any, Dict, Iterator, List, Set, Sized

import torch.utils.data

from hvdrun import _hvd

__all__ = ["ElasticSampler"]


class ElasticSampler(torch.utils.data.Sampler):  # type: ignore[type-arg]
    """The part of a dataset that this rank reads: each size()-th of the samples that no living rank has read.

    Give it to a TorchState, call record_batch() for each batch, and set_epoch() at the end of each epoch. shuffle:
    in an order that follows from seed and epoch. The last samples of an epoch are completed by its first ones, so
    that all ranks have equally many.
    """

    def __init__(self, dataset: Sized, shuffle: bool = True, seed: int = 0) -> None:
        self.dataset = dataset
        self.shuffle = shuffle
        self.seed = seed
        self.epoch = 0
        self.processed_indices: Set[int] = set()
        self.reset()

    def set_epoch(self, epoch: int) -> None:
        """Begins another epoch: no sample has been read."""
        self.epoch = epoch
        self.processed_indices = set()
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """This rank has used its batch number `batch_idx`, from 0 since the iteration began."""
        self.record_indices(self.get_indices(batch_idx, batch_size))

    def record_indices(self, indices: List[int]) -> None:
        """This rank has used these samples."""
        self.processed_indices.update(indices)

    def get_indices(self, batch_idx: int, batch_size: int) -> List[int]:
        """Returns the samples of a batch of this rank."""
        return self.indices[batch_idx * batch_size : (batch_idx + 1) * batch_size]

    def state_dict(self) -> Dict[str, Any]:
        """Returns the epoch, and the samples that were read in it."""
        return {"epoch": self.epoch, "processed_indices": set(self.processed_indices)}

    def load_state_dict(self, state_dict: Dict[str, Any]) -> None:
        """Goes on from there, with the ranks that there are now."""
        self.epoch = state_dict["epoch"]
        self.processed_indices = set(state_dict["processed_indices"])
        self.reset()

    def reset(self) -> None:
        """Divides the samples that are left among the ranks that there are now."""
        alone = not _hvd.is_initialized()
        self.rank, self.num_replicas = (0, 1) if alone else (_hvd.rank(), _hvd.size())
        order = list(range(len(self.dataset)))
        if self.shuffle:
            random.Random(self.seed + self.epoch).shuffle(order)
        self.remaining_indices = [index for index in order if index not in self.processed_indices]
        self.num_samples = -(-len(self.remaining_indices) // self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas
        self.indices = self._part()

    def _part(self) -> List[int]:
        left = self.remaining_indices
        padded = (left * self.num_replicas)[: self.total_size] if left else []
        return padded[self.rank : self.total_size : self.num_replicas]

    def __iter__(self) -> Iterator[int]:
        return iter(self.indices)

    def __len__(self) -> int:
        return self.num_samples
