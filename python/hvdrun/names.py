"""Names of operations that the caller gave no name.

Ranks match such operations by the order of their calls: each kind of operation counts, in each process set.
"""

from __future__ import annotations

from typing import Dict, Tuple

__all__ = ["forget", "next_name"]

# The engine's table has 16,384 names in an epoch, so names come round. An operation must have ended by then.
_NAMES = 1024

_calls: Dict[Tuple[str, int], int] = {}


def next_name(kind: str, process_set: int = 0) -> str:
    """Returns the name of this call, for example ``allreduce.noname.7``.

    kind: the operation. process_set: its id.
    """
    key = (kind, process_set)
    call = _calls.get(key, 0)
    _calls[key] = call + 1 if call + 1 < _NAMES else 0
    return f"{kind}.noname.{call}"


def forget() -> None:
    """Starts to count anew: the job has ended."""
    _calls.clear()
