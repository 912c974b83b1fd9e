"""The end of a rank.

After normal completion (status 0) the rank leaves the job, and waits there for the others. Python has ended when the
status is known, so the extension does the leaving.

After an uncaught exception the rank gives up at once, as soon as the traceback is printed: the others get a
HorovodInternalError that names the rank and the exception. They need not wait for threads and exit handlers of this
program. After a SystemExit other than 0 they hear of the rank's end when Python has ended. hvdrun returns the rank's
status in both cases.
"""

from __future__ import annotations

import atexit
import sys
import time
import traceback
from types import TracebackType
from typing import Optional, Type

from hvdrun import _hvd

__all__ = ["watch"]

_SECONDS = 2.0
_watched = False


def watch() -> None:
    """Sees to the end of this process. Further calls do nothing."""
    global _watched
    if not _watched:
        _watched = True
        _hvd.watch_exit()
        atexit.register(_settle)
        _watch_exceptions()


def _watch_exceptions() -> None:
    show = sys.excepthook

    def give_up(kind: Type[BaseException], error: BaseException, trace: Optional[TracebackType]) -> None:
        try:
            show(kind, error, trace)
        finally:
            if _is_final(kind):
                _hvd.abort(_describe(kind, error))

    sys.excepthook = give_up


def _is_final(kind: Type[BaseException]) -> bool:
    """The exception ends the program. hvdrun ends a job after ^C, and a prompt goes on."""
    prompt = hasattr(sys, "ps1") or sys.flags.interactive or sys.flags.inspect
    return _hvd.is_initialized() and not prompt and not issubclass(kind, KeyboardInterrupt)


def _describe(kind: Type[BaseException], error: BaseException) -> str:
    """Returns the last line of the traceback, without a byte 0."""
    return "".join(traceback.format_exception_only(kind, error)).strip().replace("\0", "?")


def _settle() -> None:
    """Gives operations that nobody has waited for a moment to end, unless an exception ends the program."""
    if getattr(sys, "last_value", None) is not None:
        return
    until = time.monotonic() + _SECONDS
    while _hvd.is_initialized() and _hvd.under_way() and time.monotonic() < until:
        time.sleep(0.001)
