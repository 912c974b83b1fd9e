"""Parameters, states and objects; sparse tensors, SyncBatchNorm, join, barrier, the timeline, the job."""
# JOB = torch
# LIMIT = 120

from __future__ import annotations

import glob
import json
import os
import shutil
import tempfile
import time
import unittest

from torch_case import TorchCase, hvd, torch

F = torch.nn.functional


def net() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 2))


class States(TorchCase):
    def setUp(self) -> None:
        torch.manual_seed(self.rank)

    def from_root(self, tensor: torch.Tensor) -> None:
        self.same(tensor.detach(), hvd.broadcast(tensor.detach(), 0))

    def test_parameters(self):
        for params in (lambda m: m.state_dict(), lambda m: m.named_parameters(), lambda m: list(m.parameters())):
            model = net()
            kept = model[0].weight
            before = kept.detach().clone()
            hvd.broadcast_parameters(params(model), root_rank=0)
            self.assertIs(model[0].weight, kept)
            self.assertEqual(torch.equal(kept, before), self.rank == 0)
            for parameter in model.parameters():
                self.from_root(parameter)
        for wrong in ({"a": 1}, [("a", "b")], torch.ones(2)):
            with self.assertRaises(ValueError):
                hvd.broadcast_parameters(wrong, root_rank=0)

    def test_parameters_from_the_last_rank(self):
        tensors = {
            "number": torch.tensor(self.rank),
            "nothing": None,
            "turned": torch.full((2, 3), float(self.rank)).t(),
        }
        hvd.broadcast_parameters(tensors, root_rank=self.size - 1)
        self.assertEqual(int(tensors["number"]), self.size - 1)
        self.assertEqual(tensors["turned"].tolist(), [[float(self.size - 1)] * 2] * 3)

    def optimizers(self, parameters):
        return [
            torch.optim.SGD(parameters, lr=0.1 + self.rank, momentum=0.5),
            torch.optim.Adam(parameters, lr=0.1 + self.rank, betas=(0.5 + self.rank / 10, 0.9)),
            torch.optim.Adagrad(parameters, lr=0.1 + self.rank),
            torch.optim.RMSprop(parameters, lr=0.1, momentum=0.1, centered=True),
            torch.optim.Adadelta(parameters, rho=0.5 + self.rank / 10),
            torch.optim.LBFGS(parameters, lr=0.01 * (1 + self.rank)),
        ]

    def step(self, model, optimizer, x):
        def closure():
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            return loss

        optimizer.step(closure)

    def test_optimizer_states(self):
        """The root has a state, the others have none, or another; all go on as the root."""
        x = torch.arange(20.0).view(5, 4) / 20
        for index in range(6):
            for with_state in (True, False):
                with self.subTest(optimizer=index, with_state=with_state):
                    model = net()
                    optimizer = self.optimizers(list(model.parameters()))[index]
                    if self.rank == 0 or with_state:
                        self.step(model, optimizer, x)
                    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
                    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
                    self.assertEqual(
                        optimizer.param_groups[0]["lr"], hvd.broadcast_object(optimizer.param_groups[0]["lr"])
                    )
                    types = hvd.allgather_object({k: type(v).__name__ for k, v in optimizer.param_groups[0].items()})
                    self.assertEqual(types[0], types[self.rank])
                    self.step(model, optimizer, x)
                    for parameter in model.parameters():
                        self.from_root(parameter)

    def test_an_optimizer_without_state(self):
        model = net()
        optimizer = hvd.DistributedOptimizer(
            torch.optim.Adam(model.parameters(), lr=0.1 + self.rank, weight_decay=0.5),
            named_parameters=model.named_parameters(),
        )
        before = [parameter.detach().clone() for parameter in model.parameters()]
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        self.assertEqual(optimizer.param_groups[0]["lr"], 0.1)
        for parameter, old in zip(model.parameters(), before, strict=True):
            self.same(parameter.detach(), old)
            self.assertIsNotNone(parameter.grad)
        self.assertFalse(optimizer.state)

    def test_parameters_without_gradient(self):
        fixed = torch.nn.Parameter(torch.tensor([1, 3]), requires_grad=False)
        trained = torch.nn.Parameter(torch.rand(4))
        optimizer = torch.optim.SGD([fixed, trained], lr=0.001, weight_decay=1e-6, momentum=0.9, nesterov=True)
        optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=[("a", fixed), ("b", trained)])
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        self.assertIsNone(fixed.grad)
        self.same(hvd.broadcast(trained.grad, root_rank=0), trained.grad)

    def test_objects(self):
        expected = {"hello": 123, 0: [1, 2], "tensor": torch.ones(2)}
        got = hvd.broadcast_object(expected if self.rank == 0 else {}, root_rank=0)
        self.assertEqual(got["hello"], 123)
        self.same(got["tensor"], torch.ones(2))
        self.assertEqual(hvd.broadcast_object(self.rank, root_rank=self.size - 1, name="object"), self.size - 1)
        self.assertIsNone(hvd.broadcast_object(None))
        own = {"metric": self.rank, "long": "x" * (self.rank * 1000)}
        self.assertEqual(hvd.allgather_object(own), [{"metric": r, "long": "x" * (r * 1000)} for r in range(self.size)])
        self.assertEqual(hvd.allgather_object(None, name="none"), [None] * self.size)

    def test_objects_in_a_set(self):
        self.needs(3)
        pair = hvd.add_process_set([0, 2])
        if self.rank in (0, 2):
            self.assertEqual(hvd.broadcast_object(self.rank, root_rank=2, process_set=pair), 2)
        hvd.remove_process_set(pair)


class SparseTensors(TorchCase):
    def tensor(self, rank: int) -> torch.Tensor:
        indices = torch.tensor([[rank, 3], [0, 1]])
        return torch.sparse_coo_tensor(indices, torch.tensor([1.0 + rank, 2.0]), (self.size + 4, 2))

    def test_sums_and_averages(self):
        total = sum(self.tensor(rank).to_dense() for rank in range(self.size))
        for op, wanted in ((hvd.Sum, total), (hvd.Average, total / self.size)):
            handle = hvd.sparse_allreduce_async(self.tensor(self.rank), name="sparse", op=op)
            self.same(handle().to_dense(), wanted, 1e-6)
            handle = hvd.sparse_allreduce_async(self.tensor(self.rank), name="sparse", op=op)
            self.same(hvd.synchronize(handle).to_dense(), wanted, 1e-6)

    def test_tensors_without_elements(self):
        own = self.tensor(0) if self.rank == 0 else torch.zeros(self.size + 4, 2).to_sparse()
        result = hvd.sparse_allreduce_async(own, name="empty", op=hvd.Sum)()
        self.same(result.to_dense(), self.tensor(0).to_dense())

    def test_what_is_refused(self):
        with self.assertRaises(TypeError):
            hvd.sparse_allreduce_async(torch.ones(2), name="dense", op=hvd.Sum)
        with self.assertRaises(NotImplementedError):
            hvd.sparse_allreduce_async(self.tensor(0), name="max", op=hvd.Max)


class BatchNorm(TorchCase):
    def test_equals_one_process(self):
        for shape, momentum, affine in (((4, 3), 0.1, True), ((2, 3, 5), None, True), ((3, 3, 2, 2), 0.3, False)):
            with self.subTest(shape=shape):
                torch.manual_seed(4)
                rows = [shape[0] + rank for rank in range(self.size)]
                whole = torch.randn(sum(rows), *shape[1:], dtype=torch.float64) * 3 + 100
                weights = torch.randn_like(whole)
                kind = {2: torch.nn.BatchNorm1d, 3: torch.nn.BatchNorm1d, 4: torch.nn.BatchNorm2d}[len(shape)]
                own = hvd.SyncBatchNorm(3, momentum=momentum, affine=affine).double()
                single = kind(3, momentum=momentum, affine=affine).double()
                for _ in range(2):
                    x = whole.split(rows)[self.rank].clone().requires_grad_()
                    y = own(x)
                    (y * weights.split(rows)[self.rank]).sum().backward()
                    all_x = whole.clone().requires_grad_()
                    all_y = single(all_x)
                    (all_y * weights).sum().backward()
                    self.same(y.detach(), all_y.detach().split(rows)[self.rank], 1e-8)
                    self.same(x.grad, all_x.grad.split(rows)[self.rank], 1e-8)
                self.same(own.running_mean, single.running_mean, 1e-8)
                self.same(own.running_var, single.running_var, 1e-8)
                self.assertEqual(int(own.num_batches_tracked), 2)
                if affine:
                    self.same(hvd.allreduce(own.weight.grad, op=hvd.Sum), single.weight.grad, 1e-8)
                    self.same(hvd.allreduce(own.bias.grad, op=hvd.Sum), single.bias.grad, 1e-8)
                own.eval(), single.eval()
                self.same(own(whole).detach(), single(whole).detach(), 1e-8)

    def test_half_precision_and_wrong_shapes(self):
        layer = hvd.SyncBatchNorm(3).to(torch.bfloat16)
        x = torch.randn(4, 3, dtype=torch.bfloat16, requires_grad=True)
        layer(x).sum().backward()
        self.assertEqual(x.grad.dtype, torch.bfloat16)
        for wrong in (torch.ones(3), torch.ones(2, 4)):
            with self.assertRaises(ValueError):
                layer(wrong)


class Joins(TorchCase):
    def test_unequal_amounts_of_work(self):
        for step in range(self.rank + 1):
            result = hvd.allreduce(torch.ones(3), op=hvd.Sum, name=f"work.{step}")
            self.same(result, torch.full([3], float(self.size - step)))
        last = hvd.join()
        self.assertIn(last, range(self.size))
        self.assertEqual(hvd.allgather(torch.tensor([last])).tolist(), [last] * self.size)

    def test_an_optimizer_beside_joined_ranks(self):
        model = torch.nn.Linear(2, 1)
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()  # the units are known now
        for _ in range(self.rank):
            optimizer.zero_grad()
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
        hvd.join()

    def test_what_needs_every_rank(self):
        self.needs(2)
        if self.rank == 0:
            with self.assertRaises(hvd.HorovodInternalError):
                hvd.allgather(torch.ones(2), name="of.everyone")
        hvd.join(device=-1)

    def test_barrier(self):
        begin = time.monotonic()
        if self.rank == 0:
            time.sleep(0.2)
        hvd.barrier()
        if self.rank:
            self.assertGreater(time.monotonic() - begin, 0.1)


class Job(TorchCase):
    def test_numbers_and_features(self):
        self.assertIn(hvd.rank(), range(hvd.size()))
        self.assertEqual(hvd.allgather(torch.tensor([hvd.rank()])).tolist(), list(range(hvd.size())))
        self.assertTrue(hvd.is_initialized() and hvd.is_homogeneous())
        self.assertEqual(hvd.local_size() * hvd.cross_size(), hvd.size())
        self.assertFalse(hvd.mpi_built() or hvd.mpi_enabled() or hvd.mpi_threads_supported() or hvd.rocm_built())
        self.assertIsInstance(hvd.nccl_built(), int)

    def test_the_timeline(self):
        with tempfile.TemporaryDirectory() as folder:
            hvd.start_timeline(os.path.join(folder, "%r.json"), mark_cycles=True)
            hvd.allreduce(torch.ones(2), name="in.the.timeline")
            hvd.stop_timeline()
            (path,) = glob.glob(os.path.join(folder, "*.json"))
            with open(path) as file:
                self.assertIn("in.the.timeline", json.dumps(json.load(file)))

    def test_the_timeline_of_rank_0(self):
        """It has the name that was asked for, like Horovod's one file; an older file gives way."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(hvd.broadcast_object(folder), "t.json")
            os.makedirs(os.path.dirname(path), exist_ok=True)  # on the other hosts
            self.addCleanup(shutil.rmtree, os.path.dirname(path), ignore_errors=True)
            if self.rank == 0:
                with open(path, "w") as file:
                    file.write("old")
            for name in ("first", "second"):
                hvd.start_timeline(path)
                hvd.allreduce(torch.ones(2), name=name)
                hvd.stop_timeline()
                if self.rank == 0:
                    with open(path) as file:
                        self.assertIn(name, json.dumps(json.load(file)))
            hvd.barrier()

    def test_leaving_and_joining_again(self):
        model = torch.nn.Linear(2, 1)
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
        for _ in range(2):
            optimizer.zero_grad()
            F.mse_loss(model(torch.ones(1, 2)), torch.ones(1, 1)).backward()
            optimizer.step()
            F.mse_loss(model(torch.ones(1, 2)), torch.zeros(1, 1)).backward()  # its allreduce may be under way
            if self.size > 1:
                with self.assertRaises(AssertionError):
                    optimizer.zero_grad()
            optimizer.step()
            value = model.weight.grad.clone()
            hvd.shutdown()
            self.assertFalse(hvd.is_initialized())
            self.same(model.weight.grad, value)
            with self.assertRaises(ValueError):
                hvd.allreduce(torch.ones(1))
            hvd.init()
        self.assertEqual(hvd.size(), self.size)

    def test_many_unnamed_operations(self):
        one = torch.ones(1)
        for _ in range(3000):
            hvd.allreduce_(one)
        self.same(one, torch.ones(1))
        self.same(hvd.allreduce(one, op=hvd.Sum, name="n" * 300), torch.tensor([float(self.size)]))


if __name__ == "__main__":
    unittest.main()
