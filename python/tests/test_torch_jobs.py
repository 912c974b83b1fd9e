"""Whole jobs: how ranks end, hvdrun.run(), the names of horovod, a program without hvdrun, a child of fork()."""
# RANKS = 0
# LIMIT = 240

from __future__ import annotations

import inspect
import os
import sys
import tempfile
import textwrap
import unittest

import hvdrun
from programs import run_command, run_program, slow
from torch_case import hvd

BEGIN = "import os, sys, time, torch\nimport horovod.torch as hvd\nhvd.init()\nrank = hvd.rank()\n"


def job(program, ranks=2):
    return run_program(BEGIN + textwrap.dedent(program), ranks)


class Joins(unittest.TestCase):
    def test_a_rank_that_joins_before_its_first_step(self):
        ended = job(
            """
            weight = torch.nn.Parameter(torch.ones(3))
            optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=0.0), [("weight", weight)])
            if rank == 0:
                (weight * 2).sum().backward()
                optimizer.step()
                print(weight.grad.tolist())
            hvd.join()
            """
        )
        self.assertEqual((ended.returncode, ended.stdout, ended.stderr), (0, "[1.0, 1.0, 1.0]\n", ""))


class Ends(unittest.TestCase):
    def dies(self, program, status, *words):
        ended = job(program)
        self.assertEqual(ended.returncode, status, ended.stderr)
        for word in words:
            self.assertIn(word, ended.stderr)

    @slow
    def test_an_exception_while_the_other_waits(self):
        for call in ("hvd.allreduce(torch.ones(2), name='wait')", "hvd.join()", "hvd.barrier()"):
            with self.subTest(call=call):
                program = f"""
                    if rank == 1:
                        time.sleep(0.1)
                        raise KeyError("the first cause")
                    try:
                        {call}
                    except hvd.HorovodInternalError as error:
                        print("heard:", error, file=sys.stderr)
                        raise
                    """
                self.dies(program, 1, "the first cause", "heard: rank 1 on", "gave up: KeyError: 'the first cause'")

    @slow
    def test_an_exception_is_heard_at_once(self):
        """Within 100 ms, though the rank itself takes a second to end."""
        delays = []
        for _ in range(3):
            ended = job("""
                import atexit
                if rank == 1:
                    atexit.register(time.sleep, 1)
                    time.sleep(0.1)
                    print(time.monotonic(), flush=True)
                    raise ValueError("bad batch")
                try:
                    hvd.allreduce(torch.ones(2))
                except hvd.HorovodInternalError as error:
                    print(time.monotonic(), flush=True)
                    os._exit(0)
                """)
            self.assertEqual(ended.returncode, 1, ended.stderr)
            first, last = sorted(float(line) for line in ended.stdout.split())
            delays.append(last - first)
        self.assertLess(min(delays), 0.1)

    @slow
    def test_gradients_after_a_failure(self):
        """Gradients may be read and written after a rank has died, after shutdown, and by a child of fork."""
        ended = job("""
            model = torch.nn.Linear(2, 1, bias=False)
            optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
            child = os.fork()
            if child == 0:
                model.weight.grad.fill_(7)
                os._exit(0)
            os.waitpid(child, 0)
            if rank == 1:
                os._exit(4)
            for call in (lambda: hvd.allreduce(torch.ones(1)), hvd.shutdown):
                try:
                    call()
                except hvd.HorovodInternalError as error:
                    print(error.status_name)
            print(model.weight.grad.tolist())
            model.weight.grad.fill_(2)
            print(model.weight.grad.tolist(), flush=True)
            os._exit(0)
            """)
        heard = "HVD_ERR_PEER\nHVD_ERR_PEER\n[[1.0, 1.0]]\n[[2.0, 2.0]]\n"
        self.assertEqual((ended.returncode, ended.stdout), (4, heard), ended.stderr)

    @slow
    def test_system_exit(self):
        self.dies("sys.exit(7) if rank == 1 else hvd.allreduce(torch.ones(2))", 7, "rank 1 on")

    @slow
    def test_an_exception_while_the_other_is_in_init(self):
        program = "import sys, os, horovod.torch as hvd\nif os.environ['HVD_RANK'] == '1': sys.exit(5)\nhvd.init()"
        ended = run_program(program)
        self.assertEqual(ended.returncode, 5, ended.stderr)
        self.assertIn("rank 1", ended.stderr)

    @slow
    def test_an_exception_while_the_other_is_done(self):
        self.dies("assert rank != 1, 'the first cause'", 1, "the first cause")

    def test_normal_completion(self):
        ended = job("""
            model = torch.nn.Linear(2, 1)
            optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
            if rank == 1:
                time.sleep(0.5)
            sys.exit(0)
            """)
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))

    @slow
    def test_shutdown_with_gradients_in_use(self):
        ended = job("""
            model = torch.nn.Linear(2, 1)
            optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
            hvd.shutdown()
            print(model.weight.grad.sum().item())
            """)
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))
        self.assertEqual(ended.stdout, "2.0\n2.0\n")


class Alone(unittest.TestCase):
    @slow
    def test_without_hvdrun(self):
        ended = job(
            """
            assert hvd.size() == 1 and rank == 0
            model = torch.nn.Linear(2, 1)
            optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
            model(hvd.allreduce(torch.ones(1, 2))).sum().backward()
            optimizer.step()
            """,
            ranks=0,
        )
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))

    @slow
    def test_a_child_of_fork(self):
        ended = job(
            """
            child = os.fork()
            if child == 0:
                try:
                    hvd.allreduce(torch.ones(1))
                except RuntimeError as error:
                    print(type(error).__name__, flush=True)
                os._exit(0)
            os.waitpid(child, 0)
            """,
            ranks=0,
        )
        self.assertEqual((ended.returncode, ended.stdout), (0, "ForkedError\n"))


REDUCE = "average=None name=None {}op=None prescale_factor=1.0 postscale_factor=1.0 process_set=P"
SCATTER = "name=None {}op=0 process_set=P prescale_factor=1.0 postscale_factor=1.0"
SIGNATURES = {
    "allreduce": "tensor " + REDUCE.format("compression=C "),
    "allreduce_": "tensor " + REDUCE.format(""),
    "allreduce_async": "tensor " + REDUCE.format(""),
    "allreduce_async_": "tensor " + REDUCE.format(""),
    "grouped_allreduce": "tensors " + REDUCE.format("compression=C "),
    "grouped_allreduce_": "tensors " + REDUCE.format(""),
    "grouped_allreduce_async": "tensors " + REDUCE.format(""),
    "grouped_allreduce_async_": "tensors " + REDUCE.format(""),
    "sparse_allreduce_async": "tensor name op process_set=P",
    "allgather": "tensor name=None process_set=P",
    "allgather_async": "tensor name=None process_set=P",
    "grouped_allgather": "tensors name=None process_set=P",
    "grouped_allgather_async": "tensors name=None process_set=P",
    "broadcast": "tensor root_rank name=None process_set=P",
    "broadcast_": "tensor root_rank name=None process_set=P",
    "broadcast_async": "tensor root_rank name=None process_set=P",
    "broadcast_async_": "tensor root_rank name=None process_set=P",
    "alltoall": "tensor splits=None name=None process_set=P",
    "alltoall_async": "tensor splits=None name=None process_set=P",
    "reducescatter": "tensor " + SCATTER.format("compression=C "),
    "reducescatter_async": "tensor " + SCATTER.format(""),
    "grouped_reducescatter": "tensors " + SCATTER.format("compression=C "),
    "grouped_reducescatter_async": "tensors " + SCATTER.format(""),
    "poll": "handle",
    "synchronize": "handle",
    "join": "device=-1",
    "barrier": "process_set=P",
    "add_process_set": "process_set",
    "remove_process_set": "process_set",
    "ProcessSet": "ranks_or_comm",
    "start_timeline": "file_path mark_cycles=False",
    "stop_timeline": "",
    "broadcast_parameters": "params root_rank",
    "broadcast_optimizer_state": "optimizer root_rank model=None",
    "broadcast_object": "obj root_rank=0 name=None process_set=P",
    "allgather_object": "obj name=None",
    "SyncBatchNorm": "num_features eps=1e-05 momentum=0.1 affine=True track_running_stats=True",
    "DistributedOptimizer": "optimizer named_parameters=None compression=C backward_passes_per_step=1 op=0 "
    "gradient_predivide_factor=1.0 num_groups=0 groups=None sparse_as_dense=False process_set=P",
}
"""Horovod's functions: arguments and defaults. P is the set of all ranks, C no compression."""

RUN = (
    "func args=() kwargs=None num_proc=1 min_num_proc=None max_num_proc=None slots=None reset_limit=None "
    "cooldown_range=None hosts=None hostfile=None host_discovery_script=None start_timeout=None ssh_port=None "
    "ssh_identity_file=None disable_cache=None output_filename=None verbose=None use_gloo=None use_mpi=None "
    "mpi_args=None network_interface=None network_interfaces=None executable=None np=None min_np=None max_np=None"
)


def signature(function):
    """Returns arguments and defaults, in the form of SIGNATURES."""
    names = {id(hvd.global_process_set): "P", id(hvd.Compression.none): "C"}
    return " ".join(
        name if argument.default is argument.empty else f"{name}={names.get(id(argument.default), argument.default)}"
        for name, argument in inspect.signature(function).parameters.items()
    )


class HorovodNames(unittest.TestCase):
    def test_signatures(self):
        for name, expected in SIGNATURES.items():
            with self.subTest(name=name):
                self.assertEqual(signature(getattr(hvd, name)), expected)
        self.assertEqual(signature(hvdrun.run), RUN)
        for name in ("Average", "Sum", "Adasum", "Min", "Max", "Product"):
            self.assertIn(name, hvd.__all__)
        others = "init shutdown is_initialized size local_size cross_size rank local_rank cross_rank is_homogeneous "
        others += "mpi_threads_supported mpi_enabled mpi_built gloo_enabled gloo_built nccl_built ddl_built ccl_built "
        others += "cuda_built rocm_built global_process_set HorovodInternalError Compression"
        self.assertLessEqual(set(others.split()) | set(SIGNATURES), set(hvd.__all__))

    def test_modules(self):
        ended = job(
            """
            import horovod, horovod.common.util as util
            from horovod.common.basics import HorovodBasics
            from horovod.common.exceptions import HorovodInternalError, HostsUpdatedInterrupt
            from horovod.common.process_sets import ProcessSet, global_process_set
            from horovod.runner import run
            from horovod.torch.compression import Compression
            from horovod.torch.functions import broadcast_object
            from horovod.torch.mpi_ops import Average, allreduce, HorovodAllreduce
            from horovod.torch.optimizer import DistributedOptimizer
            from horovod.torch.sync_batch_norm import SyncBatchNorm
            assert HorovodInternalError is hvd.HorovodInternalError and allreduce is hvd.allreduce
            assert horovod.run is run and HorovodBasics("x", "y").size() == 1
            assert util.split_list([1, 2, 3], 2) == [[1, 2], [3]]
            assert util.num_rank_is_power_2(4) and not util.num_rank_is_power_2(6)
            assert util.extension_available("torch") and not util.extension_available("mxnet")
            with util.env(A_NAME="1", PATH=None):
                assert os.environ["A_NAME"] == "1" and "PATH" not in os.environ
            assert "A_NAME" not in os.environ and "PATH" in os.environ
            """,
            ranks=0,
        )
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))

    def test_horovodrun(self):
        program = [sys.executable, "-c", "from hvdrun.command import main; main()"]
        ended = run_command(*program, "-np", "1", "sh", "-c", "echo $HVD_SIZE; exit 3", ranks=0)
        self.assertEqual((ended.returncode, ended.stdout), (3, "1\n"))


class Run(unittest.TestCase):
    MODULE = """
        import os, sys, torch
        import horovod.torch as hvd

        def total(number, factor=1):
            hvd.init()
            print("rank", hvd.rank(), "prints")
            return hvd.allreduce(torch.tensor([number]), op=hvd.Sum) * factor, hvd.rank()

        def large(n):
            sys.stdout.write("no end of line")
            return "x" * n

        def fails():
            if os.environ["HVD_RANK"] == "1":
                raise KeyError("the cause")
        """

    def python(self, program):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "functions.py"), "w") as file:
                file.write(textwrap.dedent(self.MODULE))
            path = f"import sys; sys.path.insert(0, {folder!r})\nimport hvdrun, functions\n"
            return run_program(path + textwrap.dedent(program), 0)

    def test_results_by_rank(self):
        ended = self.python("""
            results = hvdrun.run(functions.total, (3.0,), {"factor": 2}, num_proc=2)
            assert [rank for _, rank in results] == [0, 1] and results[1][0].item() == 12.0, results
            """)
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))
        self.assertEqual(sorted(ended.stdout.splitlines()), ["rank 0 prints", "rank 1 prints"])

    @slow
    def test_large_results(self):
        ended = self.python("""
            assert [len(result) for result in hvdrun.run(functions.large, (3000000,), np=2)] == [3000000] * 2
            """)
        self.assertEqual((ended.returncode, ended.stdout), (0, "no end of line" * 2), ended.stderr[-500:])

    @slow
    def test_a_notebook(self):
        """What ranks print goes to sys.stdout of the caller, whatever that is."""
        ended = self.python("""
            import contextlib, io
            with contextlib.redirect_stdout(io.StringIO()) as cell:
                hvdrun.run(functions.total, (1.0,), np=1)
            assert cell.getvalue() == "rank 0 prints\\n", cell.getvalue()
            """)
        self.assertEqual((ended.returncode, ended.stdout), (0, ""), ended.stderr)

    @slow
    def test_failures(self):
        ended = self.python("""
            try:
                hvdrun.run(functions.fails, np=2)
            except RuntimeError as error:
                assert "status 1" in str(error) and "the cause" in str(error), error
            else:
                raise AssertionError
            sys.modules["cloudpickle"] = None  # as if it were not installed
            for wrong in (dict(func=lambda: 1), dict(func=functions.fails, args=(lambda: 1,))):
                try:
                    hvdrun.run(**wrong)
                except ValueError as error:
                    assert "cloudpickle" in str(error)
                else:
                    raise AssertionError
            try:
                hvdrun.run(functions.fails, min_np=1)
            except NotImplementedError:
                pass
            """)
        self.assertEqual(ended.returncode, 0, ended.stderr)


if __name__ == "__main__":
    unittest.main()
