"""Elastic jobs that a test starts: the program grows or shrinks the host by writing the number of its slots."""

import json
import os
import stat
import sys
import tempfile
import textwrap

from programs import HVDRUN, SECONDS, run_command

BEGIN = """
import json, os, signal, sys, time
def slots(number):  # the job is to have so many ranks
    with open(os.environ["TEST_SLOTS"] + ".new", "w") as file:
        file.write(str(number))
    os.rename(os.environ["TEST_SLOTS"] + ".new", os.environ["TEST_SLOTS"])
def say(*what):
    os.write(1, (json.dumps(what) + "\\n").encode())
def die():
    os.kill(os.getpid(), signal.SIGKILL)
"""


def run_elastic(program, start, *options):
    """Runs Python code in an elastic job that begins with `start` ranks. Returns the completed process."""
    with tempfile.TemporaryDirectory() as folder:
        slots, script = os.path.join(folder, "slots"), os.path.join(folder, "hosts")
        with open(slots, "w") as file:
            file.write(str(start))
        with open(script, "w") as file:
            file.write(f"#!/bin/sh\necho localhost:$(cat {slots})\n")
        os.chmod(script, stat.S_IRWXU)
        return run_command(
            HVDRUN, "--timeout", str(SECONDS), "-np", str(start), "--min-np", "1", "--max-np", "8",
            "--host-discovery-script", script, *options, sys.executable, "-c", BEGIN + textwrap.dedent(program),
            ranks=0, env={**os.environ, "TEST_SLOTS": slots},
        )  # fmt: skip


def said(ended):
    """Returns what the program told by say(), as lists."""
    return [json.loads(line) for line in ended.stdout.splitlines()]
