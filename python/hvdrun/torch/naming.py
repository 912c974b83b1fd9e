"""Names of operations on tensors: the kind, then the script's name or the number of the call."""

from __future__ import annotations

import hashlib
from typing import Optional

from hvdrun.names import next_name

__all__ = ["full_name"]

_LONGEST = 255  # bytes, of a name in hvd.h


def full_name(kind: str, name: Optional[str], set_id: int) -> str:
    """Returns the name of an operation in the engine, so that kinds may share the names of tensors.

    A name that is too long for the engine ends with its hash.
    """
    if not name:
        return next_name(kind, set_id)
    full = f"{kind}.{name}"
    if len(full) * 4 <= _LONGEST:
        return full
    encoded = full.encode()
    if len(encoded) <= _LONGEST:
        return full
    return f"{encoded[:180].decode(errors='ignore')}#{hashlib.sha256(encoded).hexdigest()}"
