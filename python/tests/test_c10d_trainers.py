"""Lightning, Accelerate and Transformers (trainers.py) on the backend hvd: the parameters are those that gloo gives."""
# RANKS = 0
# LIMIT = 600
# SLOW = True

import importlib.util
import os
import sys
import unittest

from programs import run_command

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "trainers.py")


class Trainers(unittest.TestCase):
    def train(self, library, backend):
        job = run_command(sys.executable, PROGRAM, library, backend)
        self.assertEqual(job.returncode, 0, job.stderr)
        (line,) = [line for line in job.stdout.splitlines() if line.startswith("trained ")]
        return line

    def compare(self, library):
        if not importlib.util.find_spec(library):
            self.skipTest(f"no {library} for {sys.executable}")
        self.assertEqual(self.train(library, "hvd"), self.train(library, "gloo"))

    def test_lightning(self):
        self.compare("lightning")

    def test_accelerate(self):
        self.compare("accelerate")

    def test_transformers(self):
        self.compare("transformers")


if __name__ == "__main__":
    unittest.main()
