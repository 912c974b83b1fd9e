"""Finds files of stock Horovod among those of hvdrun-horovod, and says how to mend the environment.

Both are packages with the name ``horovod``, so the later installation overwrites files of the earlier one, and each
uninstallation removes files of the other. ``hvdrun_horovod.pth`` calls watch() at the start of Python, because no file
of ours may be left in ``horovod``. That costs a look for one file; only when the file is there, imports are watched.
"""

import os
import sys

__all__ = ["check", "watch"]

_OURS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "horovod")
# Each Horovod since 0.19 has this file, and hvdrun-horovod does not.
_STOCK = os.path.join("runner", "mpi_run.py")


def _sentence(folder: str) -> str:
    import glob  # not at each start of Python

    found = glob.glob(os.path.join(os.path.dirname(folder), "horovod-*.dist-info"))
    version = " " + os.path.basename(found[0])[len("horovod-") : -len(".dist-info")] if found else ""
    pip = f"{sys.executable} -m pip"
    return (
        f"files of Horovod{version} and of hvdrun-horovod are mixed in {folder}: "
        f"run {pip} uninstall -y horovod hvdrun-horovod; {pip} install hvdrun-horovod"
    )


def check(folder: str = _OURS) -> None:
    """ImportError: files of stock Horovod lie in the folder."""
    if os.path.exists(os.path.join(folder, _STOCK)):
        raise ImportError(_sentence(folder), name="horovod", path=folder)


class _Finder:
    """Stands first among the finders, and looks when horovod is imported."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:  # noqa: ARG004 - the arguments are Python's
        if name == "horovod":
            check()


def watch() -> None:
    """Has imports of horovod checked, if files of stock Horovod lie beside this one."""
    if os.path.exists(os.path.join(_OURS, _STOCK)):
        sys.meta_path.insert(0, _Finder)
