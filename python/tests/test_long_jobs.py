"""Any number of operations in one job, in constant memory.

HVD_UNNAMED and NAMES are the numbers of operations without a name and of names.
"""
# RANKS = 2
# SLOW = True
# LIMIT = 1800

import array
import os
import unittest

import hvdrun as hvd
from footprint import lasts

UNNAMED = int(os.environ.get("HVD_UNNAMED", "1000000"))
NAMES = int(os.environ.get("NAMES", "1000000"))
PENDING = 16000

hvd.init()


class Long(unittest.TestCase):
    def test_operations_without_a_name(self):
        one = array.array("f", [1.0])
        lasts(self, "operations without a name", lambda _: hvd.allreduce_(one, op=hvd.Max), UNNAMED)
        self.assertEqual(one[0], 1.0)

    def test_names_of_which_many_are_pending(self):
        """Each name is new."""
        one = array.array("f", [1.0])
        sums = [array.array("f", [1.0]) for _ in range(PENDING)]

        def wave(k):
            begun = [hvd.allreduce_async_(sums[i], name=f"name {k}.{i}", op=hvd.Max) for i in range(PENDING)]
            for operation in begun:
                operation.wait()

        lasts(self, f"names, {PENDING} pending at once", wave, max(NAMES // PENDING, 10), PENDING)
        self.assertTrue(all(total == one for total in sums))


if __name__ == "__main__":
    unittest.main()
