"""What stands on torch.distributed in today's PyTorch, on the backend hvd: shards, tensor and pipeline parallel."""

# JOB = torch

from __future__ import annotations

import copy
import tempfile
import unittest
import warnings

from c10d_case import VERSION, C10dCase, dist, torch

if VERSION < (2, 6):
    raise unittest.SkipTest(f"PyTorch {torch.__version__} is older than 2.6")

import torch.distributed.checkpoint as checkpoint
from torch.distributed._functional_collectives import (
    all_gather_tensor,
    all_reduce,
    all_to_all_single,
    reduce_scatter_tensor,
)
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

warnings.filterwarnings("ignore")


def small_model():
    torch.manual_seed(3)
    linear = torch.nn.Linear
    return torch.nn.Sequential(linear(16, 32), torch.nn.ReLU(), linear(32, 32), linear(32, 8))


class Parallel(C10dCase):
    def mesh(self):
        return dist.init_device_mesh("cpu", (self.size,))

    def batch(self, step, rank):
        return torch.randn(4, 16, generator=torch.Generator().manual_seed(100 * step + rank))

    def expected(self, steps=3):
        """Returns the parameters that one process gets, which averages over the ranks' batches."""
        model = small_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for step in range(steps):
            optimizer.zero_grad()
            for rank in range(self.size):
                (model(self.batch(step, rank)).square().mean() / self.size).backward()
            optimizer.step()
        return dict(model.state_dict())

    def train(self, model, steps=3):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for step in range(steps):
            model(self.batch(step, self.rank)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()

    def close(self, state):
        for name, value in self.expected().items():
            torch.testing.assert_close(state[name], value, rtol=1e-4, atol=1e-5)

    def test_fully_sharded_data_parallel(self):
        model = FullyShardedDataParallel(small_model(), device_id=torch.device("cpu"), use_orig_params=True)
        self.train(model)
        with FullyShardedDataParallel.summon_full_params(model):
            self.close({name.replace("_fsdp_wrapped_module.", ""): value for name, value in model.state_dict().items()})

    def test_fully_shard(self):
        self.needs_torch(2, 13)  # 2.6 has it for GPUs only
        model = small_model()
        for layer in (model[0], model[2]):
            fully_shard(layer, mesh=self.mesh())
        fully_shard(model, mesh=self.mesh())
        self.train(model)
        self.close({name: value.full_tensor() for name, value in model.state_dict().items()})

    def test_functional_collectives(self):
        x = torch.full((4, 2), float(self.rank))
        group = dist.distributed_c10d._get_default_group()
        total = self.size * (self.size - 1) / 2
        self.same(all_reduce(x, "sum", group) + 0, torch.full((4, 2), total))
        gathered = all_gather_tensor(x, 0, group) + 0
        self.assertEqual(gathered[::4, 0].tolist(), [float(rank) for rank in range(self.size)])
        scattered = reduce_scatter_tensor(torch.ones(self.size * 3, 2), "sum", 0, group) + 0
        self.same(scattered, torch.full((3, 2), float(self.size)))
        exchanged = all_to_all_single(torch.full((self.size, 2), float(self.rank)), None, None, group) + 0
        self.assertEqual(exchanged[:, 0].tolist(), [float(rank) for rank in range(self.size)])

    def test_dtensor(self):
        mesh = self.mesh()
        whole = torch.arange(self.size * 12.0).view(self.size * 3, 4)
        sharded = distribute_tensor(whole, mesh, [Shard(0)])
        self.same(sharded.full_tensor(), whole)
        self.same(sharded.redistribute(mesh, [Replicate()]).to_local(), whole)
        other = distribute_tensor(torch.ones(4, self.size * 2), mesh, [Shard(1)])
        self.same((sharded @ other).full_tensor(), whole @ torch.ones(4, self.size * 2))
        self.assertEqual(sharded.sum().full_tensor().item(), whole.sum().item())

    def test_tensor_parallel(self):
        if 32 % self.size:
            self.skipTest("needs a number of ranks that divides 32")
        model, plain = small_model(), small_model()
        parallelize_module(model, self.mesh(), {"0": ColwiseParallel(), "2": RowwiseParallel()})
        x = self.batch(0, 0)
        y = model(x)
        torch.testing.assert_close(y, plain(x), rtol=1e-4, atol=1e-5)
        y.square().mean().backward()
        plain(x).square().mean().backward()
        weight = model[0].weight.grad
        self.assertIsInstance(weight, DTensor)
        torch.testing.assert_close(weight.full_tensor(), plain[0].weight.grad, rtol=1e-4, atol=1e-5)

    def test_a_pipeline(self):
        self.needs_torch(2, 13)  # 2.6 scales gradients otherwise
        self.needs(2)
        torch.manual_seed(5)
        layers = [torch.nn.Linear(8, 8) for _ in range(self.size)]
        whole = torch.nn.Sequential(*copy.deepcopy(layers))
        stage = PipelineStage(layers[self.rank], self.rank, self.size, torch.device("cpu"))
        schedule = ScheduleGPipe(stage, 4, loss_fn=lambda out, target: (out - target).square().mean())
        x, target = torch.ones(8, 8), torch.zeros(8, 8)
        if self.rank == 0:
            schedule.step(x)
        elif self.rank == self.size - 1:
            losses = []
            output = schedule.step(target=target, losses=losses)
            torch.testing.assert_close(output, whole(x), rtol=1e-4, atol=1e-5)
        else:
            schedule.step()
        whole(x).square().mean().backward()
        torch.testing.assert_close(layers[self.rank].weight.grad, whole[self.rank].weight.grad, rtol=1e-4, atol=1e-5)
        dist.barrier()

    def test_a_checkpoint(self):
        folder = [tempfile.mkdtemp()]
        dist.broadcast_object_list(folder, 0)
        mesh = self.mesh()
        whole = torch.arange(self.size * 6.0).view(-1, 3)
        checkpoint.save({"x": distribute_tensor(whole, mesh, [Shard(0)])}, checkpoint_id=folder[0])
        state = {"x": distribute_tensor(torch.zeros_like(whole), mesh, [Shard(0)])}
        checkpoint.load(state, checkpoint_id=folder[0])
        self.same(state["x"].full_tensor(), whole)


if __name__ == "__main__":
    unittest.main()
