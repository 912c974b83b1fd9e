"""Runs modules of tests in one rank: job.py FILE... Rank 0 says how many tests ran.

A rank whose test fails leaves without waiting for the others, so that the job ends. Exit status 77: a module cannot
run here, and so none does; the line `skip ...` says why.
"""

import importlib.util
import os
import sys
import unittest


def load(path):
    name = os.path.splitext(os.path.basename(path))[0]
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return unittest.defaultTestLoader.loadTestsFromModule(module)


def leave(status):
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def main():
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    try:
        tests = unittest.TestSuite(load(path) for path in sys.argv[1:])
    except unittest.SkipTest as why:
        print("skip", why)
        leave(77)
    result = unittest.TextTestRunner(failfast=True, verbosity=0, stream=sys.stderr).run(tests)
    if not result.wasSuccessful():
        leave(1)
    if result.testsRun == 0:
        print("no test ran")
        leave(1)
    if os.environ.get("HVD_RANK", "0") == "0":
        print(f"ran {result.testsRun} tests" + (f", {len(result.skipped)} skipped" if result.skipped else ""))


main()
