"""Works: operations that torch.distributed waits for.

A future must end without anybody's wait. DistributedDataParallel begins operations during backward and asks for their
futures. A thread of the group does these operations one after the other, as blocking calls, and backward goes on.

A function that Python code adds to a future may begin operations itself, as that of PowerSGD does. All ranks must begin
operations in one order. So a future for Python code has ended when that code gets it: its functions run at once, in
the caller's thread, as they do with nccl.
"""

from __future__ import annotations

import atexit
import threading
from datetime import timedelta
from queue import SimpleQueue
from typing import Any, Callable, List, Optional, Sequence

import torch
import torch.distributed as dist

from hvdrun import _hvd
from hvdrun.exceptions import WaitTimeoutError

__all__ = ["DONE", "Background", "BackgroundWork", "HvdWork"]

_SECONDS_TO_END = 2.0

_NO_LIMIT = timedelta(0)
"""What torch gives as the time-out of a wait without one."""


class HvdWork(dist.Work):
    """One or more operations of the engine that were started.

    outputs: what result() and the future give. finish: called once after the end, before anybody sees the outputs.
    seconds: the limit of a wait without one of its own.
    """

    def __init__(
        self,
        handles: Sequence[_hvd.Handle],
        outputs: List[torch.Tensor],
        finish: Optional[Callable[[], object]] = None,
        seconds: Optional[float] = None,
        source: int = -1,
    ) -> None:
        super().__init__()
        self.handles = handles
        self.outputs = outputs
        self._finish = finish
        self._seconds = seconds
        self.source = source
        self._error: Optional[BaseException] = None
        self._future: Any = None
        self._lock = threading.Lock()

    def wait(self, timeout: Optional[timedelta] = _NO_LIMIT) -> bool:
        """Waits until the operation has ended. Returns True.

        timeout: of this wait; else that of the group counts. WaitTimeoutError (a RuntimeError): the operation is
        pending still. HorovodInternalError (a RuntimeError): it has failed; the text names rank, host and cause.
        """
        if self._error is not None:
            raise self._error
        seconds = self._seconds if timeout is None or timeout <= _NO_LIMIT else timeout.total_seconds()
        for handle in self.handles:
            handle.wait(seconds)
        with self._lock:
            self._make_outputs()
        return True

    def _make_outputs(self) -> None:
        """The operation has ended with success. The lock is held."""
        if self._finish is not None:
            finish, self._finish = self._finish, None
            with torch.no_grad():
                finish()

    def synchronize(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        """Returns whether the operation has ended; then the outputs are there."""
        ended = all(handle.poll() for handle in self.handles)
        if ended:
            self._settle()
        return ended

    def _settle(self) -> None:
        if self._error is None:
            try:
                HvdWork.wait(self)
            except Exception as error:  # exception() gives it, and a wait raises it again
                self._error = error

    def is_success(self) -> bool:
        return self.is_completed() and self.exception() is None

    def exception(self) -> Optional[BaseException]:
        """Returns the error of an operation that has ended."""
        return self._error if self.is_completed() else None

    def result(self) -> List[torch.Tensor]:
        return self.outputs

    def source_rank(self) -> int:
        """Returns the rank in the group that a message came from."""
        return self.source

    _source_rank = source_rank

    def get_future(self) -> Any:
        """Returns a torch.futures.Future of the outputs, which has ended."""
        if self._future is None:
            ended: Any = torch.futures.Future()
            # An error must be raised in a callback: torch's C++ sees no other error of a future made in Python.
            self._future = ended.then(self._take)
            ended.set_result(None)
        return self._future

    def _take(self, _ended: Any) -> List[torch.Tensor]:
        self.wait()
        return self.outputs


class BackgroundWork(HvdWork):
    """A blocking operation that the background thread does, after those that were begun before it."""

    def __init__(
        self,
        run: Callable[[], object],
        outputs: List[torch.Tensor],
        finish: Optional[Callable[[], object]],
        seconds: Optional[float],
    ) -> None:
        super().__init__((), outputs, finish, seconds)
        self._run = run
        self._ended = threading.Event()
        self._future_ended: Any = None

    def execute(self) -> None:
        """For the background thread."""
        try:
            self._run()
            self._make_outputs()
        except BaseException as error:  # the waits raise it
            self._error = error
        self._run = _nothing  # its arguments are not needed any more
        with self._lock:
            self._ended.set()
            future = self._future_ended
        if future is not None:
            future.set_result(None)

    def wait(self, timeout: Optional[timedelta] = _NO_LIMIT) -> bool:
        seconds = self._seconds if timeout is None or timeout <= _NO_LIMIT else timeout.total_seconds()
        if not self._ended.wait(seconds):
            raise WaitTimeoutError(f"the operation is pending after {seconds:g} s")
        if self._error is not None:
            raise self._error
        return True

    def until_ended(self) -> None:
        """Waits for the end, whatever it is."""
        self._ended.wait()

    def is_completed(self) -> bool:
        return self._ended.is_set()

    def get_future(self) -> Any:
        """Returns a torch.futures.Future of the outputs, which ends later."""
        if self._future is None:
            ended: Any = torch.futures.Future()
            self._future = ended.then(self._take)
            with self._lock:
                has_ended = self._ended.is_set()
                self._future_ended = ended
            if has_ended:
                ended.set_result(None)
        return self._future


def _nothing() -> None:
    pass


class Background:
    """A group's thread, which does BackgroundWorks one after the other, until the group or the program ends."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[Optional[BackgroundWork]] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="hvdrun.c10d", daemon=True)
        self._thread.start()
        atexit.register(self.end)

    def add(self, work: BackgroundWork) -> None:
        self._queue.put(work)

    def _work(self) -> None:
        while True:
            work = self._queue.get()
            if work is None:
                return
            work.execute()
            del work

    def end(self) -> None:
        """Python ends threads that still run, and a thread within torch's C++ cannot be ended so."""
        atexit.unregister(self.end)
        self._queue.put(None)
        self._thread.join(_SECONDS_TO_END)


class _Done(HvdWork):
    """An operation that has ended with success before its call returned."""

    def __init__(self) -> None:
        super().__init__((), [])

    def wait(self, timeout: Optional[timedelta] = None) -> bool:  # noqa: ARG002 - the arguments are torch's
        return True


DONE = _Done()
