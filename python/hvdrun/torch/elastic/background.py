"""Copies that a thread makes while the training goes on."""

from __future__ import annotations

import functools
import threading
from typing import Any, Callable, List, Optional

import torch

__all__ = ["BackgroundCopy", "wait_before_steps"]


class BackgroundCopy:
    """At most one copy at a time. Not for several threads."""

    def __init__(self) -> None:
        self._thread: Optional[threading.Thread] = None
        self._error: Optional[BaseException] = None

    def start(self, work: List[Callable[[], None]]) -> None:
        """Calls the functions in a thread, one after the other. wait() comes before the next start()."""
        self._thread = threading.Thread(target=self._copy, args=(work,), name="hvd commit", daemon=True)
        self._thread.start()

    def _copy(self, work: List[Callable[[], None]]) -> None:
        try:
            for each in work:
                each()
        except BaseException as error:
            self._error = error

    def wait(self) -> None:
        """Returns when the copy is complete. Raises what has kept it from that."""
        if self._thread is None:
            return
        self._thread.join()
        self._thread = None
        error, self._error = self._error, None
        if error is not None:
            raise error


def wait_before_steps(optimizer: torch.optim.Optimizer, wait: Callable[[], None]) -> None:
    """Calls `wait` at the beginning of each step() of that optimizer from now on."""
    step = optimizer.step

    @functools.wraps(step)
    def waiting(*args: Any, **kwargs: Any) -> Any:
        wait()
        return step(*args, **kwargs)

    optimizer.step = waiting  # type: ignore[method-assign]
