"""Whole jobs on the backend hvd: deaths in every kind of wait, groups made anew, programs outside of hvdrun."""
# RANKS = 0
# LIMIT = 300

from __future__ import annotations

import importlib.util
import os
import re
import sys
import tempfile
import textwrap
import unittest

if not importlib.util.find_spec("torch"):
    raise unittest.SkipTest(f"no torch for {sys.executable} (apt install python3-torch)")

from programs import run_program, slow

BEGIN = "import os, signal, sys, time, torch, torch.distributed as dist\nimport hvdrun.c10d\n"

DEATH = """
    from torch.nn.parallel import DistributedDataParallel
    dist.init_process_group("hvd")
    rank, x = dist.get_rank(), torch.ones(1000)
    layers = torch.nn.Sequential(*[torch.nn.Linear(200, 200) for _ in range(3)])
    model = DistributedDataParallel(layers, bucket_cap_mb=0.01)
    for _ in range(2):
        model(torch.ones(3, 200)).sum().backward()
    dist.all_reduce(x)
    if rank == 1:
        time.sleep(0.2)
        print("dies", time.time(), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        {call}
    except RuntimeError as error:
        print("told", time.time(), str(error).partition("Error: ")[2].split("\\n")[0] or error, flush=True)
        time.sleep(0.5)
        os._exit(3)
    print("not told", flush=True)
"""

WAITS = {
    "all_reduce": "dist.all_reduce(x)",
    "a work": "dist.all_reduce(x, async_op=True).wait()",
    "a future": "dist.all_reduce(x, async_op=True).get_future().wait()",
    "recv": "dist.recv(x, 1)",
    "new_group": "dist.new_group([0, 1]) if rank == 0 else dist.barrier()",
    "backward": "model(torch.ones(3, 200)).sum().backward()",
}


def job(program, ranks=2, **options):
    return run_program(BEGIN + textwrap.dedent(program), ranks, **options)


class Deaths(unittest.TestCase):
    def dies(self, call):
        """Returns the time until the last of the other ranks is told."""
        ended = job(DEATH.replace("{call}", call), ranks=3)
        where = f"{ended.stdout}\n{ended.stderr}"
        self.assertEqual(ended.returncode, 128 + 9, where)
        told = re.findall(r"^told (\S+) (.*)$", ended.stdout, re.M)
        self.assertEqual(len(told), 2, where)
        for _, sentence in told:
            self.assertRegex(sentence, r"rank 1 on \S+ \(pid \d+\) ended: killed by signal 9")
        return max(float(at) for at, _ in told) - float(re.search(r"^dies (\S+)$", ended.stdout, re.M)[1])

    def all_die(self, waits):
        times = sorted(self.dies(WAITS[name]) for name in waits)
        print(f"# told after {', '.join(f'{time * 1000:.0f}' for time in times)} ms")
        self.assertLess(times[len(times) // 2], 0.1)
        self.assertLess(times[-1], 1)

    def test_in_a_hook_of_backward(self):
        self.all_die(["backward"])

    @slow
    def test_in_every_wait(self):
        self.all_die(WAITS)

    def test_an_exception_is_told_as_well(self):
        ended = job(
            """
            dist.init_process_group("hvd")
            if dist.get_rank() == 1:
                raise KeyError("the first cause")
            try:
                dist.barrier()
            except RuntimeError as error:
                print(error)
                sys.exit(5)
            """
        )
        self.assertEqual(ended.returncode, 1, ended.stderr)
        self.assertRegex(ended.stdout, r"rank 1 on \S+ \(pid \d+\) gave up: KeyError: 'the first cause'")


class Again(unittest.TestCase):
    @slow
    def test_a_hundred_times_in_constant_memory(self):
        self.again(100, 40)

    def test_ten_times(self):
        self.again(10, None)

    def again(self, times, warm):
        folder = tempfile.mkdtemp()
        ended = job(
            f"""
            sys.path.insert(0, {os.path.dirname(os.path.abspath(__file__))!r})
            from footprint import _status_kib
            where = {{"rank": int(os.environ["RANK"]), "world_size": 2}}
            for turn in range({times}):
                # an older PyTorch cannot listen at one port again
                dist.init_process_group("hvd", init_method=f"file://{folder}/{{turn}}", **where)
                group = dist.new_group()
                x = torch.ones(100000)
                dist.all_reduce(x, group=group)
                assert x[0] == 2
                dist.all_reduce(x)
                assert x[0] == 4
                dist.destroy_process_group()
                if turn == {warm}:
                    before = _status_kib("self", "VmRSS")
            if {warm}:
                print("grown", _status_kib("self", "VmRSS") - before)
            """
        )
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))
        if "asan" in os.environ.get("LD_PRELOAD", ""):
            return  # it keeps freed memory for a while
        for grown in re.findall(r"^grown (-?\d+)$", ended.stdout, re.M):
            self.assertLess(int(grown), 1024)
        self.assertEqual(ended.stdout.count("grown"), 2 if warm else 0)


    def test_destroyed_while_an_operation_is_pending(self):
        ended = job(
            """
            dist.init_process_group("hvd")
            if dist.get_rank() == 0:
                work = dist.irecv(torch.empty(1), 1)
                try:
                    dist.distributed_c10d._get_default_group().shutdown()
                except ValueError as error:
                    print(error)
            dist.barrier()
            if dist.get_rank() == 0:
                work.wait()
            else:
                dist.send(torch.ones(1), 0)
            dist.destroy_process_group()
            print("destroyed")
            """
        )
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))
        self.assertIn("1 operations are pending", ended.stdout)
        self.assertEqual(ended.stdout.count("destroyed"), 2)

    def test_beside_horovod(self):
        ended = job(
            """
            import horovod.torch as hvd
            dist.init_process_group("hvd")
            hvd.init()
            dist.barrier()  # the end of rank 0's store would disturb a rank that is still in init_process_group of 1.13
            dist.destroy_process_group()
            print(hvd.allreduce(torch.ones(1), op=hvd.Sum).item())
            """
        )
        self.assertEqual((ended.returncode, ended.stdout, ended.stderr), (0, "2.0\n" * 2, ""))

    def test_with_a_device(self):
        ended = job(
            """
            if "device_id" in __import__("inspect").signature(dist.init_process_group).parameters:
                try:
                    dist.init_process_group("hvd", device_id=torch.device("cpu:0"))
                except ValueError:  # this torch takes accelerators only
                    dist.init_process_group("hvd")
            else:
                dist.init_process_group("hvd")
            dist.barrier()
            print("fine")
            """
        )
        self.assertEqual((ended.returncode, ended.stdout), (0, "fine\n" * 2), ended.stderr)


class Alone(unittest.TestCase):
    def alone(self, program, **variables):
        at = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0", "USE_LIBUV": "0"}
        return job(program, ranks=0, env={**os.environ, **at, **variables})

    def test_a_job_of_one(self):
        ended = self.alone(
            """
            dist.init_process_group("hvd")
            group = dist.new_group([0])
            x = torch.ones(3)
            dist.all_reduce(x, group=group)
            dist.all_reduce(x)
            dist.barrier()
            print(x.tolist(), dist.get_world_size())
            dist.destroy_process_group()
            """,
            RANK="0", WORLD_SIZE="1",
        )
        self.assertEqual((ended.returncode, ended.stdout, ended.stderr), (0, "[1.0, 1.0, 1.0] 1\n", ""))

    def test_ranks_that_hvdrun_has_not_started(self):
        ended = self.alone(
            """
            import tempfile
            store = dist.FileStore(tempfile.mktemp(), 1)
            dist.init_process_group("hvd", store=store, rank=1, world_size=4)
            """
        )
        self.assertEqual(ended.returncode, 1)
        self.assertIn("rank 1 of 4 for torch, and rank 0 of 1 for hvdrun: start the program with", ended.stderr)


class Registration(unittest.TestCase):
    def test_it_is_quick_and_imports_nothing(self):
        ended = run_program(
            """
            import sys, time, torch
            import importlib.metadata
            point, = importlib.metadata.entry_points(group="torch.backends", name="hvd")
            begin = time.perf_counter()
            point.load()()
            print(time.perf_counter() - begin < 0.005, "hvdrun" in sys.modules, "numpy" in sys.modules)
            print("hvd" in torch.distributed.Backend.backend_list if hasattr(torch.distributed.Backend, "backend_list")
                  else torch.distributed.Backend.HVD)
            """,
            ranks=0, env={**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        )
        self.assertRegex(ended.stdout, r"^True False \S+\n(True|(?i:hvd))\n$", ended.stderr)

    def test_it_never_raises(self):
        ended = run_program(
            """
            import sys, types, hvdrun_torch
            class Broken:
                def is_available():
                    raise OSError("broken")
            sys.modules["torch.distributed"] = Broken
            hvdrun_torch.register()
            print("alive")
            """,
            ranks=0,
        )
        self.assertEqual((ended.returncode, ended.stdout), (0, "alive\n"), ended.stderr)
        self.assertEqual(ended.stderr, "hvdrun: the backend hvd of torch.distributed is not known: broken\n")


if __name__ == "__main__":
    unittest.main()
