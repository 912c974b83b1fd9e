"""What makes bytes of objects: cloudpickle if it is installed, which can pickle more, else pickle."""

from __future__ import annotations

import pickle
from typing import Any

__all__ = ["pickler"]


def pickler() -> Any:
    """Returns the module whose dumps() is used. It is imported with the first use, since that takes a while."""
    try:
        import cloudpickle
    except ImportError:
        return pickle
    return cloudpickle
