"""Messages between two ranks of a process group, and what is made of them."""

from __future__ import annotations

import time
from datetime import timedelta
from itertools import count
from typing import Any, Dict, Iterator, List, Sequence, Tuple

import torch

from hvdrun.exceptions import WaitTimeoutError
from hvdrun.torch.tensors import address

from . import calls
from .tensors import as_bytes, copy_back
from .work import HvdWork

__all__ = ["Messages"]

_NAMES = 8
"""For each direction between two ranks, and each tag; more may be pending."""


class Messages(calls.Caller):
    """The n-th message from one rank to another with a tag belongs to the n-th receive of that rank and tag."""

    def __init__(self, rank: int, size: int, set_id: int, seconds: float | None, label: str) -> None:
        super().__init__(rank, size, set_id, seconds)
        self._label = label
        self._monitored = count()
        self._messages: Dict[Tuple[int, int, int], Iterator[int]] = {}

    def _name(self, sender: int, receiver: int, tag: int) -> str:
        counter = self._messages.get((sender, receiver, tag))
        if counter is None:
            counter = self._messages.setdefault((sender, receiver, tag), count())
        return f"c10d.noname.{self._label}.{sender}.{receiver}.{tag}.{next(counter) % _NAMES}"

    def _check(self, rank: int) -> None:
        if rank == self.index:
            raise ValueError(f"rank {rank} cannot send to itself or receive from itself")

    def send(self, tensors: Sequence[torch.Tensor], dst: int, tag: int = 0) -> HvdWork:
        """dst: the rank in the group. The work ends when that rank has received."""
        self._check(dst)
        memory = as_bytes(tensors[0])
        return self.begin(
            calls.SEND, None, tensors, None, address(memory), dst, self.set, memory,
            name=self._name(self.index, dst, tag),
        )  # fmt: skip

    def recv(self, tensors: Sequence[torch.Tensor], src: int, tag: int = 0) -> HvdWork:
        """src: the rank in the group. The message has the tensor's size and dtype, or both ranks get an error."""
        self._check(src)
        tensor = tensors[0]
        memory = as_bytes(tensor)
        work = self.begin(
            calls.RECV, None, tensors, lambda: copy_back(tensor, memory), address(memory), src, self.set, memory,
            name=self._name(src, self.index, tag),
        )  # fmt: skip
        work.source = src
        return work

    def recv_anysource(self, tensors: Sequence[torch.Tensor], tag: int = 0) -> HvdWork:  # noqa: ARG002 - torch's
        raise RuntimeError("recv without src: the backend hvd, as nccl, needs the rank of the sender")

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        """Returns when all ranks have called. Else rank 0 raises, after the time, and names ranks that have not.

        wait_all_ranks: all of them, and not the first one only. Other ranks raise as well, a little later.
        """
        seconds = timeout.total_seconds() if timeout else self.seconds
        turn = next(self._monitored)
        if self.index != 0:
            self._report(turn, None if seconds is None else seconds + 1)
            return
        until = None if seconds is None else time.monotonic() + seconds
        missing = self._await_others(turn, until, wait_all_ranks)
        if missing:
            names = ", ".join(map(str, missing))
            raise RuntimeError(f"monitored_barrier: not there after {seconds:g} s: rank {names} of the group")
        for rank in range(1, self.ranks):
            self._mark(calls.SEND, rank, f"{turn}.go").wait()

    def _mark(self, call: Any, rank: int, what: str) -> HvdWork:
        """A message of one byte. Each turn has names of its own: a late rank does not meet a later turn."""
        mark = torch.zeros(1, dtype=torch.uint8)
        low, high = sorted((self.index, rank))
        name = f"c10d.noname.{self._label}.monitor.{low}.{high}.{what}"
        return self.begin(call, None, (), None, address(mark), rank, self.set, mark, name=name)

    def _report(self, turn: int, seconds: float | None) -> None:
        limit = timedelta(seconds=seconds) if seconds is not None else None
        try:
            self._mark(calls.SEND, 0, f"{turn}.here").wait(limit)
            self._mark(calls.RECV, 0, f"{turn}.go").wait(limit)
        except WaitTimeoutError:
            raise RuntimeError(f"monitored_barrier: rank {self.index} was not let through by rank 0") from None

    def _await_others(self, turn: int, until: float | None, wait_all_ranks: bool) -> List[int]:
        missing: List[int] = []
        works = [self._mark(calls.RECV, rank, f"{turn}.here") for rank in range(1, self.ranks)]
        for rank, work in enumerate(works, 1):
            left = None if until is None else timedelta(seconds=max(until - time.monotonic(), 0.001))
            try:
                work.wait(left)
            except WaitTimeoutError:
                missing.append(rank)
                if not wait_all_ranks:
                    break
        return missing
