"""The memory of a job, as one rank sees it, and whether it stays the same."""

import ctypes
import os
import time

import hvdrun as hvd

GROWTH_KIB = 512
"""What each part may grow after the warm-up. Allocators and the kernel's counters are not exact."""


def _status_kib(pid, field):
    with open(f"/proc/{pid}/status") as file:
        return next((int(line.split()[1]) for line in file if line.startswith(field + ":")), 0)


def _mapped_kib():
    """The shared memory that this rank has mapped, touched or not."""
    total = 0
    with open("/proc/self/maps") as file:
        for line in file:
            if "/memfd:" in line:
                begin, end = (int(part, 16) for part in line.split()[0].split("-"))
                total += end - begin
    return total // 1024


def _engine():
    """The engine of this host: a child of the session that has started this rank. None: there is none."""
    session = os.getppid()
    for task in os.listdir(f"/proc/{session}/task"):
        with open(f"/proc/{session}/task/{task}/children") as file:
            for pid in file.read().split():
                with open(f"/proc/{pid}/comm") as comm:
                    if comm.read().startswith("hvd-engine"):
                        return pid
    return None


def footprint():
    """Returns KiB by part: what is resident of the rank and of the engine, and the shared memory that is mapped.

    malloc keeps some MiB of freed memory, now more and now less. So the rank gives that back before.
    """
    ctypes.CDLL(None).malloc_trim(0)
    found = {"rank": _status_kib("self", "VmRSS"), "shared memory": _mapped_kib()}
    engine = _engine()
    return found if engine is None else {**found, "engine": _status_kib(engine, "VmRSS")}


def lasts(test, what, work, times, each=1):
    """Calls work(k) for k from 0, `times` times, and fails if the memory grows after the first fifth.

    Rank 0 prints the time and the memory. each: how many of `what` are in a call.
    """
    if "asan" in os.environ.get("LD_PRELOAD", ""):
        test.skipTest("AddressSanitizer keeps freed memory for a while")
    first, now, began = None, {}, time.monotonic()
    for tenth in range(1, 11):
        for k in range(times * (tenth - 1) // 10, times * tenth // 10):
            work(k)
        now = footprint()
        if tenth == 2:
            first = now
        for part, kib in (first or {}).items():
            test.assertLess(now[part], kib + GROWTH_KIB, f"KiB of {part} at {times * each * tenth // 10} {what}")
    seconds = time.monotonic() - began
    if hvd.rank() == 0:
        parts = ", ".join(f"{part} {first[part]} to {kib} KiB" for part, kib in now.items())
        each_us = seconds / times / each * 1e6
        print(f"# {times * each} {what} in {seconds:.1f} s, {each_us:.1f} us each; {parts}", flush=True)
