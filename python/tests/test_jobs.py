"""Whole jobs: what a program prints and returns at its end, and which Pythons the package refuses."""
# RANKS = 0
# LIMIT = 60

import glob
import os
import re
import subprocess
import sys
import textwrap
import unittest

from programs import run_command, run_program

BEGIN = "import time, os, sys, hvdrun as hvd\nfrom hvdrun import _hvd\nhvd.init()\nrank = hvd.rank()\n"


def run(program, ranks=2):
    return run_program(BEGIN + textwrap.dedent(program), ranks)


class Ends(unittest.TestCase):
    def ends_well(self, program, ranks=2):
        job = run(program, ranks)
        self.assertEqual((job.returncode, job.stderr), (0, ""), job)
        return job.stdout

    def test_without_shutdown(self):
        self.ends_well("hvd.allreduce(b'abc', op=hvd.Sum)")

    def test_an_owner_that_lets_others_run(self):
        """One thread ends an operation whose handle another one drops meanwhile."""
        self.ends_well(
            """
            import threading

            class Owner:
                def __del__(self):
                    time.sleep(0.2)

            for call in range(3):
                handle = _hvd.allgather_async(f"slow.{call}", bytearray(0), 4, 0, None, 0, Owner())
                time.sleep(0.1)
                thread = threading.Thread(target=_hvd.pending)
                thread.start()
                time.sleep(0.05)
                handle.wait()
                del handle
                thread.join()
            assert _hvd.pending() == 0
            """
        )

    def test_threads_of_one_name(self):
        """An operation without a name waits for the one before, whatever thread has begun that."""
        self.ends_well(
            """
            import array, threading
            sys.setswitchinterval(1e-6)
            wrong = []

            def reduce():
                numbers = array.array("f", [1.0] * 30000)
                try:
                    for call in range(100):
                        _hvd.allreduce_async("x.noname.1", numbers, None, hvd.Sum, 0, 1.0, 1.0, 0, None).wait(10.0)
                except Exception as error:
                    wrong.append(error)

            threads = [threading.Thread(target=reduce) for _ in range(6)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert (wrong, _hvd.pending()) == ([], 0), wrong
            """
        )

    def test_more_unnamed_than_names_beside_a_set(self):
        """What is pending in the world does not hold up what has the same number in a process set."""
        self.ends_well(
            """
            import array
            pair, other = hvd.add_process_set([0, 1]), hvd.add_process_set([1, 2])

            def start():
                return [hvd.allreduce_async_(array.array("f", [1.0])) for _ in range(1030)]

            handles = start() if rank == 0 else []
            if rank != 2:
                hvd.allreduce_async_(array.array("f", [1.0]), process_set=pair).wait(20.0)
            if rank != 0:
                hvd.barrier(process_set=other)
                handles = start()
            for handle in handles:
                handle.wait()
            """,
            3,
        )

    def test_alone(self):
        job = run("assert hvd.size() == 1\nhvd.allreduce([1.0])", 0)
        self.assertEqual((job.returncode, job.stderr), (0, ""))

    def test_handles_that_nobody_waited_for(self):
        self.ends_well("""
            kept = [hvd.allreduce_async(bytes(100000), name=str(k), op=hvd.Sum) for k in range(8)]
            hvd.allgather_async(b"dropped", name="gather")
            """)

    def test_memory_in_use(self):
        self.ends_well("""
            memory = hvd.alloc(1 << 20)
            view = memoryview(memory)
            view[0] = 1
            """, 4)

    def test_a_pending_operation(self):
        """The other rank never comes: this one ends without a crash, and the job fails."""
        job = run("""
            if rank == 0:
                handle = _hvd.allreduce_async("never", bytearray(100000), None, hvd.Sum, 0, 1.0, 1.0, 0, None)
            else:
                time.sleep(30)
            """)
        self.assertNotEqual(job.returncode, 0)
        self.assertNotIn("signal 11", job.stderr)
        self.assertNotIn("Segmentation", job.stderr)
        self.assertIn("1 operations are pending", job.stderr)

    def test_a_daemon_thread_that_waits(self):
        job = run("""
            import threading
            if rank == 0:
                handle = _hvd.allreduce_async("never", bytearray(100), None, hvd.Sum, 0, 1.0, 1.0, 0, None)
                threading.Thread(target=handle.wait, daemon=True).start()
                time.sleep(0.2)
                print("end", flush=True)
            else:
                time.sleep(30)
            """)
        self.assertNotIn("signal", job.stderr.split("after that")[0])
        self.assertEqual(job.stdout.strip().split()[-1], "end")

    def test_a_rank_dies(self):
        job = run("""
            if rank == 1:
                time.sleep(0.2)
                os._exit(3)
            try:
                hvd.allreduce(b"x", name="waits", op=hvd.Sum)
            except hvd.HorovodInternalError as error:
                print(error.status_name, error, flush=True)
                os._exit(0)
            """)
        self.assertEqual(job.returncode, 3)
        self.assertIn("HVD_ERR_PEER", job.stdout)
        self.assertIn("rank 1", job.stdout)

    def test_sys_exit_is_told_before_python_ends(self):
        """The others need not wait for the exit handlers, which may take long."""
        for status, leave in ((7, "sys.exit(7)"), (1, "sys.exit('no data')"), (3, "(lambda: sys.exit(3))()")):
            with self.subTest(leave=leave):
                job = run(f"""
                    import atexit
                    if rank == 1:
                        atexit.register(time.sleep, 3)
                        print("ends", time.monotonic(), flush=True)
                        {leave}
                    try:
                        hvd.allreduce(b"x", name="waits", op=hvd.Sum)
                    except hvd.HorovodInternalError as error:
                        print("told", time.monotonic(), error, flush=True)
                        time.sleep(4)
                    """)
                told = re.search(r"^told (\S+) (.*)$", job.stdout, re.M)
                ends = re.search(r"^ends (\S+)$", job.stdout, re.M)
                self.assertEqual(job.returncode, status, job)
                self.assertLess(float(told[1]) - float(ends[1]), 1, job)
                self.assertIn("rank 1 on", told[2])
                self.assertIn("SystemExit", told[2])
                self.assertIn("rank 1 on", job.stderr)

    def test_sys_exit_that_is_caught(self):
        self.ends_well("""
            import pickle

            def call(status):
                try:
                    sys.exit(status)
                except SystemExit as error:
                    return error

            kept = [call(4), call("words"), call(0)]
            assert [error.code for error in kept] == [4, "words", 0] and type(call(5)).__name__ == "SystemExit"
            assert call(kept[0]) is kept[0] and call((6,)).code == 6 and call(()).code is None
            assert type(pickle.loads(pickle.dumps(kept[1]))) is SystemExit
            hvd.allreduce(b"abc", op=hvd.Sum)
            """)

    def test_sys_exit_that_becomes_another_end(self):
        for end in ("sys.exit(0)", "raise SystemExit(0)", "raise SystemExit", "sys.exit()"):
            with self.subTest(end=end):
                self.ends_well(f"""
                    hvd.allreduce(b"abc", op=hvd.Sum)
                    try:
                        sys.exit(3)
                    except SystemExit:
                        {end}
                    """)
                self.ends_well(f"""
                    def leave():
                        try:
                            sys.exit(3)
                        finally:
                            {end}

                    hvd.allreduce(b"abc", op=hvd.Sum)
                    leave()
                    """)

    def test_debug_allocator(self):
        """Python's own checks of memory, and its warnings."""
        here = os.path.dirname(os.path.abspath(__file__))
        job = run_command(
            sys.executable, os.path.join(here, "job.py"), os.path.join(here, "test_handles.py"),
            env=dict(os.environ, PYTHONMALLOC="debug", PYTHONDEVMODE="1"))
        self.assertIn(job.returncode, (0, 77), job.stderr)
        self.assertNotIn("Warning", "\n".join(line for line in job.stderr.splitlines() if "fork()" not in line))


class OtherPythons(unittest.TestCase):
    def pythons(self):
        return sorted(glob.glob("/usr/bin/python3.*[0-9t]") + glob.glob("/usr/local/bin/python3.*[0-9t]")
                      + glob.glob(os.path.expanduser("~/.pyenv/versions/3.*/bin/python3")))

    def test_each_python_of_this_machine(self):
        tried = 0
        for python in self.pythons():
            version = subprocess.run(
                [python, "-c", "import sys; print(sys.version_info >= (3, 11) and 't' not in sys.abiflags)"],
                capture_output=True, text=True)
            job = subprocess.run(
                [python, "-c", "import hvdrun as hvd; hvd.init(); print(list(hvd.allreduce(b'ab', op=hvd.Sum)))"],
                capture_output=True, text=True)
            tried += 1
            with self.subTest(python=python):
                if version.stdout.strip() == "True":
                    self.assertEqual((job.returncode, job.stdout.strip()), (0, "[97, 98]"), job.stderr)
                else:
                    self.assertNotEqual(job.returncode, 0)
                    self.assertIn("hvdrun needs", job.stderr.strip().splitlines()[-1])
        if tried == 0:
            self.skipTest("no Python to try")
