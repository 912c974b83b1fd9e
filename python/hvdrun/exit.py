"""The end of a rank.

After normal completion (status 0) the rank leaves the job, and waits there for the others. Python has ended when the
status is known, so the extension does the leaving.

After an uncaught exception the rank gives up at once, as soon as the traceback is printed: the others get a
HorovodInternalError that names the rank and the exception. They need not wait for threads and exit handlers of this
program. sys.exit() with another status than 0 is such an exception, if nobody catches it. hvdrun returns the rank's
status in both cases.

Python calls no hook for a SystemExit. But it drops the exception when no function runs any more, and before the exit
handlers. So sys.exit() raises a SystemExit that sees its end. After a SystemExit that the program itself has made, that
something still holds, or that an `except` or `finally` has seen, the others hear of the rank when Python has ended.
"""

from __future__ import annotations

import atexit
import functools
import sys
import threading
import time
import traceback
from types import TracebackType
from typing import NoReturn, Optional, Tuple, Type

from hvdrun import _hvd

__all__ = ["watch"]

_SECONDS = 2.0
_watched = False
_ending = False  # exit handlers run


def watch() -> None:
    """Sees to the end of this process. Further calls do nothing."""
    global _watched
    if not _watched:
        _watched = True
        _hvd.watch_exit()
        atexit.register(_settle)
        _watch_exceptions()
        _watch_sys_exit()


def _watch_exceptions() -> None:
    show = sys.excepthook

    def give_up(kind: Type[BaseException], error: BaseException, trace: Optional[TracebackType]) -> None:
        try:
            show(kind, error, trace)
        finally:
            if _is_final(kind):
                _hvd.abort(_describe(kind, error))

    sys.excepthook = give_up


class _Exit(SystemExit):
    """What sys.exit() raises, under the same name: a SystemExit that sees its end."""

    def __del__(self) -> None:
        main = threading.current_thread() is threading.main_thread()
        ends = main and not _ending and sys._getframe().f_back is None and _was_not_caught(self)
        if ends and _is_final(SystemExit):
            _hvd.abort(f"SystemExit: {self.code}".replace("\0", "?"))

    def __reduce__(self) -> Tuple[Type[SystemExit], Tuple[object, ...]]:
        return SystemExit, self.args


_Exit.__name__ = _Exit.__qualname__ = "SystemExit"
_Exit.__module__ = "builtins"


def _was_not_caught(error: BaseException) -> bool:
    """A function that has caught the exception has gone on from where the traceback says that it was."""
    trace = error.__traceback__
    return trace is None or trace.tb_frame.f_lasti == trace.tb_lasti


def _watch_sys_exit() -> None:
    leave = sys.exit

    @functools.wraps(leave)
    def exit_and_tell(status: object = None, /) -> NoReturn:
        if type(status) not in (int, str) or status == 0:
            leave(status)  # type: ignore[arg-type]
        raise _Exit(status)  # no variable here, which the traceback would keep alive

    sys.exit = exit_and_tell  # type: ignore[assignment]


def _is_final(kind: Type[BaseException]) -> bool:
    """The exception ends the program. hvdrun ends a job after ^C, and a prompt goes on."""
    prompt = hasattr(sys, "ps1") or sys.flags.interactive or sys.flags.inspect
    return _hvd.is_initialized() and not prompt and not issubclass(kind, KeyboardInterrupt)


def _describe(kind: Type[BaseException], error: BaseException) -> str:
    """Returns the last line of the traceback, without a byte 0."""
    return "".join(traceback.format_exception_only(kind, error)).strip().replace("\0", "?")


def _settle() -> None:
    """Gives operations that nobody has waited for a moment to end, unless an exception ends the program."""
    global _ending
    _ending = True
    if getattr(sys, "last_value", None) is not None:
        return
    until = time.monotonic() + _SECONDS
    while _hvd.is_initialized() and _hvd.under_way() and time.monotonic() < until:
        time.sleep(0.001)
