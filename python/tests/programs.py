"""Whole jobs that a test starts, with programs of its own."""

import os
import subprocess
import sys
import textwrap
import unittest

HVDRUN = os.path.join(os.environ["BUILD"], "hvdrun")
SECONDS = 60
"""For a job. A wait that never ends fails after that, and not only with the whole module."""

slow = unittest.skipIf(os.environ.get("HVD_QUICK_TESTS"), "slow")
"""Leaves a test out of `make check`."""


def run_command(*command, ranks=2, **options):
    """Runs a command with so many ranks; 0: without hvdrun. Returns the completed process, with its output as text."""
    start = [HVDRUN, "-np", str(ranks), "--timeout", str(SECONDS)] if ranks else []
    return subprocess.run(
        [*start, *command], capture_output=True, text=True, timeout=SECONDS + 40, stdin=subprocess.DEVNULL, **options
    )


def run_program(program, ranks=2, **options):
    """Runs Python code, which may be indented."""
    return run_command(sys.executable, "-c", textwrap.dedent(program), ranks=ranks, **options)
