"""The end of a rank.

After normal completion (status 0) the rank leaves the job, and waits there for the others. After an uncaught
exception, or a SystemExit other than 0, it leaves without waiting: the others get a HorovodInternalError that names
it, and hvdrun returns its status. Python has ended when the status is known, so the extension does the leaving.
"""

from __future__ import annotations

import atexit
import sys
import time

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


def _settle() -> None:
    """Gives operations that nobody has waited for a moment to end, unless an exception ends the program."""
    if getattr(sys, "last_value", None) is not None:
        return
    until = time.monotonic() + _SECONDS
    while _hvd.is_initialized() and _hvd.pending() and time.monotonic() < until:
        time.sleep(0.001)
