"""The program hvdrun that belongs to this package, and the command horovodrun."""

from __future__ import annotations

import os
import shutil
import sys
from typing import List, NoReturn, Optional

__all__ = ["main", "program"]


def _candidates() -> List[str]:
    here = os.path.dirname(os.path.abspath(__file__))
    return [
        os.path.join(here, "..", "..", "hvdrun"),  # the build folder
        os.path.join(here, "..", "..", "..", "..", "bin", "hvdrun"),  # PREFIX/lib/python3.11/site-packages/hvdrun
        os.path.join(os.path.dirname(sys.executable), "hvdrun"),
    ]


def program() -> str:
    """Returns the path of hvdrun: that of the package, or the one on PATH. FileNotFoundError: there is none."""
    for path in _candidates():
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return os.path.normpath(path)
    found = shutil.which("hvdrun")
    if found is None:
        raise FileNotFoundError("hvdrun is neither beside this package nor on PATH")
    return found


def main(arguments: Optional[List[str]] = None) -> NoReturn:
    """Becomes hvdrun with the same arguments: the command horovodrun."""
    path = program()
    os.execv(path, [path, *(sys.argv[1:] if arguments is None else arguments)])
