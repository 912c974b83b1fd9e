"""Elastic jobs that a test starts: the program grows or shrinks the host by writing the number of its slots."""

import json
import os
import stat
import subprocess
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


def elastic_command(folder, program, start, *options):
    """Returns the command of an elastic job of Python code. The file `slots` of the folder has its number of ranks."""
    slots, script = os.path.join(folder, "slots"), os.path.join(folder, "hosts")
    with open(slots, "w") as file:
        file.write(str(start))
    with open(script, "w") as file:
        file.write(f"#!/bin/sh\necho localhost:$(cat {slots})\n")
    os.chmod(script, stat.S_IRWXU)
    return [
        HVDRUN, "-np", str(start), "--min-np", "1", "--max-np", "8", "--host-discovery-script", script,
        *options, sys.executable, "-c", program,
    ]  # fmt: skip


def run_elastic(program, start, *options):
    """Runs Python code in an elastic job that begins with `start` ranks. Returns the completed process."""
    with tempfile.TemporaryDirectory() as folder:
        command = elastic_command(
            folder, BEGIN + textwrap.dedent(program), start, "--timeout", str(SECONDS), *options
        )  # fmt: skip
        return run_command(*command, ranks=0, env={**os.environ, "TEST_SLOTS": os.path.join(folder, "slots")})


def begin_elastic(folder, program, start, *options, **of_popen):
    """Starts such a job, whose folder stays the caller's. Returns the running process."""
    return subprocess.Popen(
        elastic_command(folder, program, start, *options), stdin=subprocess.DEVNULL, **of_popen
    )  # fmt: skip


def parse_line(line):
    """Returns what a program told by say()."""
    return json.loads(line)


def said(ended):
    """Returns what the program told by say(), as lists."""
    return [parse_line(line) for line in ended.stdout.splitlines()]
