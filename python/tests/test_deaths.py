"""Ranks that end in the middle of random operations (deaths.py): every other rank is told, and hvdrun says why.

HVD_SEED=N begins with that seed; HVD_JOBS=N makes more jobs.
"""
# RANKS = 0
# LIMIT = 600

import importlib.util
import os
import re
import statistics
import sys
import unittest

from programs import run_command, slow
from rounds import own_seed

QUICK = 3
JOBS = int(os.environ.get("HVD_JOBS", QUICK if os.environ.get("HVD_QUICK_TESTS") else 40))
PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "deaths.py")
TOLD_SECONDS = 0.1
"""The median time until the last rank is told. Single jobs may take longer on a busy machine."""


class Deaths(unittest.TestCase):
    def run_jobs(self, module, jobs):
        if not importlib.util.find_spec("numpy" if module == "test_stress" else "torch"):
            self.skipTest(f"{module} cannot run with {sys.executable}")
        first = own_seed()
        times = []
        for seed in range(first, first + jobs):
            with self.subTest(module=module, HVD_SEED=seed):
                times.append(self.run_job(module, seed, ranks=(2, 3, 4)[seed % 3]))
        middle, most = statistics.median(times) * 1000, max(times) * 1000
        print(f"# {jobs} jobs of {module} from HVD_SEED={first}: told after {middle:.1f} ms, {most:.1f} at most")
        self.assertLess(statistics.median(times), TOLD_SECONDS)

    def run_job(self, module, seed, ranks):
        job = run_command("--grace", "20", sys.executable, PROGRAM, module, str(seed), ranks=ranks)
        where = f"\n{job.stdout}\n{job.stderr}"
        way, rank, status = re.search(r"^way (\S+) (\d+) (\d+)$", job.stdout, re.M).groups()
        self.assertEqual(job.returncode, int(status), where)
        self.assertRegex(job.stderr, rf"hvdrun: rank {rank} on \S+ \(pid \d+\)", where)
        if way.startswith("exception"):
            self.assertIn("KeyError: 'the first cause'", job.stderr, where)
        (ended,) = re.findall(r"^ends (\S+)$", job.stdout, re.M)
        told = re.findall(r"^told (\S+) (.*)$", job.stdout, re.M)
        self.assertEqual(len(told), ranks - 1, where)
        for _, sentence in told:
            self.assertIn(f"rank {rank} on ", sentence, where)
        self.assertEqual(len(re.findall("^sound$", job.stdout, re.M)), ranks - 1, where)
        return max(float(time) for time, _ in told) - float(ended)

    def test_arrays(self):
        self.run_jobs("test_stress", JOBS)

    @slow
    def test_tensors(self):
        self.run_jobs("test_torch_stress", JOBS)
