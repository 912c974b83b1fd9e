"""How a group begins operations of the engine: their names, blocking or not, and the works that they become.

All ranks of a group begin the same operations in the same order, and each operation has one tensor name for all kinds.
So ranks that begin different ones get one sentence with both, instead of a hang.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from functools import partial
from itertools import count
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence

import torch

from hvdrun import _hvd
from hvdrun.exceptions import MismatchError

from .work import DONE, Background, BackgroundWork, HvdWork

__all__ = ["Caller"]


def _forgets_works() -> bool:
    """Returns whether this torch's C++ drops the Python object of a work: then its wait would never end.

    torch's header tells, where it is installed. 1.13 and 2.6 do, 2.13 does not.
    """
    header = os.path.join(os.path.dirname(torch.__file__), "include/torch/csrc/distributed/c10d/PyProcessGroup.hpp")
    try:
        with open(header) as file:
            return "PyWorkHolder" not in file.read()
    except OSError:
        return tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 13)


_FORGETS_WORKS = _forgets_works()

_NAMES = [f"c10d.noname.{number}" for number in range(128)]
"""Names come round; the binding holds an operation back whose name is pending (hvdrun/names.py)."""


class _Call(NamedTuple):
    run: Callable[..., Any]
    start: Callable[..., Any]


ALLREDUCE = _Call(_hvd.allreduce, _hvd.allreduce_async)
GROUPED_ALLREDUCE = _Call(_hvd.grouped_allreduce, _hvd.grouped_allreduce_async)
BROADCAST = _Call(_hvd.broadcast, _hvd.broadcast_async)
ALLGATHER = _Call(_hvd.allgather, _hvd.allgather_async)
ALLTOALL = _Call(_hvd.alltoall, _hvd.alltoall_async)
REDUCESCATTER = _Call(_hvd.reducescatter, _hvd.reducescatter_async)
SEND = _Call(_hvd.send, _hvd.send_async)
RECV = _Call(_hvd.recv, _hvd.recv_async)


def _python_asks(options: Any) -> Optional[bool]:
    """Returns whether a function of torch.distributed is the caller, and asks for a work (async_op). None: C++ calls.

    From 2.7 on the options tell whether torch waits at once. Before, the argument async_op of torch's function does.
    """
    if getattr(options, "asyncOp", None) is False:
        return False
    frame = sys._getframe(2)
    for _ in range(4):
        frame = frame.f_back  # type: ignore[assignment]
        if frame is None:
            return None
        if frame.f_globals.get("__name__") == "torch.distributed.distributed_c10d":
            return hasattr(options, "asyncOp") or frame.f_locals.get("async_op") is not False
    return None


def _backward_calls() -> bool:
    """Returns whether torch's C++ has called the group's method that calls begin(), in a thread that runs backward."""
    caller = sys._getframe(2).f_back
    return caller is None or str(caller.f_globals.get("__name__")).startswith("torch.autograd")


class Caller:
    """The ranks of a group, and the beginning of their operations."""

    def __init__(self, rank: int, size: int, set_id: int, seconds: Optional[float]) -> None:
        self.index, self.ranks, self.set = rank, size, set_id
        self.seconds = seconds
        self._calls = count()
        self._gathered: Optional[List[HvdWork]] = None
        self._recent: Optional[deque[HvdWork]] = deque(maxlen=len(_NAMES)) if _FORGETS_WORKS else None
        self._background: Optional[Background] = None
        self._behind: Dict[str, BackgroundWork] = {}

    def begin(
        self,
        call: _Call,
        options: Any,
        outputs: Sequence[torch.Tensor],
        finish: Optional[Callable[[], object]],
        *arguments: Any,
        name: Optional[str] = None,
        rows: Optional[List[int]] = None,
    ) -> HvdWork:
        """Begins an operation; returns when it has ended if torch would wait at once.

        arguments: of the binding's function, behind the name. finish: makes `outputs` from what the engine has
        written. rows: the elements that have to come from each rank.
        """
        full = name or self.next_name()
        asks = _python_asks(options)
        if self._gathered is None and asks is False:
            result = call.run(full, *arguments, self._limit(options))
            if rows is not None:
                _check_rows(full, result[1], rows)
            if finish is not None:
                with torch.no_grad():
                    finish()
            return DONE
        if call is ALLREDUCE and self._gathered is None and _backward_calls():
            work: HvdWork = self.behind_backward(call.run, full, arguments, outputs, finish)
        else:
            handle = call.start(full, *arguments)
            if rows is not None:
                finish = partial(_finish_rows, full, handle, rows, finish)
            work = HvdWork((handle,), list(outputs), finish, self._limit(options))
        if self._gathered is not None:
            self._gathered.append(work)
        if self._recent is not None and asks is None:
            self._recent.append(work)
        return work

    def behind_backward(
        self,
        run: Callable[..., object],
        name: str,
        arguments: Sequence[Any],
        outputs: Sequence[torch.Tensor],
        finish: Optional[Callable[[], object]] = None,
    ) -> BackgroundWork:
        """Does a blocking call of the binding while backward goes on."""
        if self._background is None:
            self._background = Background()
        work = BackgroundWork(partial(run, name, *arguments, self.seconds), list(outputs), finish, self.seconds)
        self._behind[name] = work
        self._background.add(work)
        return work

    def next_name(self) -> str:
        """Returns the name of the next operation. One that waits behind backward keeps its name until it has ended."""
        name = _NAMES[next(self._calls) % len(_NAMES)]
        before = self._behind.pop(name, None)
        if before is not None:
            before.until_ended()
        return name

    def _limit(self, options: Any) -> Optional[float]:
        limit = options.timeout.total_seconds() if options is not None else 0
        return limit if limit > 0 else self.seconds

    def gather_works(self) -> None:
        """Works are collected from now on, until joined_works()."""
        self._gathered = []

    def joined_works(self) -> HvdWork:
        """Returns one work for all that were begun since gather_works()."""
        works, self._gathered = self._gathered or [], None
        return self.join(works)

    def join(self, works: Sequence[HvdWork]) -> HvdWork:
        """Returns one work that ends when all have ended."""
        handles = [handle for work in works for handle in work.handles]
        outputs = [output for work in works for output in work.outputs]
        joined = HvdWork(handles, outputs, lambda: [work.wait() for work in works], self.seconds)
        if self._recent is not None:
            self._recent.append(joined)
        return joined


def _check_rows(name: str, given: Sequence[int], expected: Sequence[int]) -> None:
    for rank, (came, wanted) in enumerate(zip(given, expected, strict=True)):
        if came != wanted:
            raise MismatchError(
                f'tensor "{name}": rank {rank} of the group gives {came} elements, and this rank has room for {wanted}')


def _finish_rows(
    name: str, handle: _hvd.Handle, rows: Sequence[int], finish: Optional[Callable[[], object]]
) -> None:
    _check_rows(name, handle.rows or (), rows)
    if finish is not None:
        finish()
