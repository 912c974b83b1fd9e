"""DistributedDataParallel on the backend hvd: the parameters are those that gloo gives."""

# JOB = torch

from __future__ import annotations

import unittest
import warnings

from c10d_case import C10dCase, dist, torch
from torch.nn.parallel import DistributedDataParallel

warnings.filterwarnings("ignore")  # of DDP about options


class Model(torch.nn.Module):
    """Two branches, of which a step uses one or both, a shared layer and buffers."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(12, 30)
        self.norm = torch.nn.BatchNorm1d(30)
        self.left, self.right = torch.nn.Linear(30, 30), torch.nn.Linear(30, 30)
        self.last = torch.nn.Linear(30, 4)

    def forward(self, x, both=True):
        x = torch.relu(self.norm(self.first(x)))
        y = self.left(x) + self.left(torch.tanh(x))
        return self.last(y + self.right(x) if both else y)


class Ddp(C10dCase):
    def train(self, group, before=None, both=True, steps=4, accumulate=1, **options):
        """Returns the model's state after some steps; ranks have batches of their own."""
        torch.manual_seed(1)
        model = DistributedDataParallel(Model(), process_group=group, bucket_cap_mb=0.002, **options)
        if before:
            before(model, group)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        generator = torch.Generator().manual_seed(self.rank)
        for step in range(steps * accumulate):
            x = torch.randn(8, 12, generator=generator)
            if (step + 1) % accumulate:
                with model.no_sync():
                    model(x, both).square().mean().backward()
                continue
            model(x, both).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        return {name: value.clone() for name, value in model.state_dict().items()}

    def check(self, tolerance=1e-5, **options):
        ours, theirs = self.train(None, **options), self.train(self.gloo, **options)
        for name, value in theirs.items():
            torch.testing.assert_close(
                ours[name], value, rtol=tolerance, atol=tolerance, msg=lambda text, n=name: f"{n}: {text}"
            )

    def test_plain(self):
        self.check()

    def test_unused_parameters(self):
        self.check(both=False, find_unused_parameters=True)

    def test_a_static_graph(self):
        self.check(both=False, static_graph=True)

    def test_gradients_in_buckets(self):
        self.check(gradient_as_bucket_view=True)

    def test_steps_without_synchronization(self):
        self.check(accumulate=3)

    def test_a_hook_that_compresses(self):
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

        # gloo rounds float16 for each rank, the engine once
        self.check(0.01, before=lambda model, group: model.register_comm_hook(group, default_hooks.fp16_compress_hook))
        self.check(before=lambda model, group: model.register_comm_hook(group, default_hooks.allreduce_hook))

    def test_the_hook_of_the_package(self):
        import hvdrun.c10d

        def register(model, group):
            if group is None:
                model.register_comm_hook(None, hvdrun.c10d.average_hook)

        self.check(before=register)
        with self.assertRaisesRegex(ValueError, "for groups of the backend hvd"):
            hvdrun.c10d.average_hook(self.gloo, None)

    def test_a_hook_with_futures(self):
        def hook(group, bucket):
            work = dist.all_reduce(bucket.buffer().div_(dist.get_world_size(group)), group=group, async_op=True)
            return work.get_future().then(lambda future: future.value()[0])

        self.check(before=lambda model, group: model.register_comm_hook(group, hook))

    def test_power_sgd(self):
        from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power

        def register(model, group):
            state = power.PowerSGDState(group, matrix_approximation_rank=4, start_powerSGD_iter=2)
            model.register_comm_hook(state, power.powerSGD_hook)

        # gloo's ranks begin operations in different orders here, and crash
        for value in self.train(None, before=register).values():
            parts = [torch.empty_like(value) for _ in range(self.size)]
            dist.all_gather(parts, value)
            if value.dtype.is_floating_point and value.dim() > 1:
                self.same(parts[0], parts[-1])

    def test_unequal_numbers_of_batches(self):
        for group, unused in [(None, False), (None, True), (self.gloo, True)]:
            model = DistributedDataParallel(Model(), process_group=group, find_unused_parameters=unused)
            with model.join():
                for _ in range(2 + self.rank):
                    model(torch.ones(2, 12), not unused).sum().backward()
        dist.barrier()

    def test_an_operation_within_a_backward_of_many_buckets(self):
        """Names come round: an operation begins while one of its name waits behind it in the thread."""
        case = self

        class Sum(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):  # noqa: ARG004 - torch's
                return x.clone()

            @staticmethod
            def backward(ctx, grad):  # noqa: ARG004
                total = torch.full((110,), 1000.0)
                dist.all_reduce(total)
                case.same(total, torch.full((110,), 1000.0 * case.size))
                return grad

        torch.manual_seed(1)
        layers = torch.nn.ModuleList([torch.nn.Linear(10, 10) for _ in range(200)])
        first = torch.nn.Linear(10, 10)

        class Deep(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.layers = first, layers

            def forward(self, x):
                x = Sum.apply(self.first(x))
                for layer in self.layers:
                    x = layer(x) + x * 0.1
                return x

        model = DistributedDataParallel(Deep(), bucket_cap_mb=0.0001)
        for _ in range(3):
            model.zero_grad()
            model(torch.ones(2, 10) * (self.rank + 1)).sum().backward()
            mine = torch.cat([value.grad.flatten() for value in model.parameters()])
            theirs = [torch.empty_like(mine) for _ in range(self.size)]
            dist.all_gather(theirs, mine)
            self.assertTrue(all(torch.equal(mine, other) for other in theirs))
            self.assertLess(mine.abs().max(), 100)

    def test_two_models_in_another_order_on_each_rank(self):
        groups = [dist.new_group() for _ in range(2)]
        a, b = (DistributedDataParallel(torch.nn.Linear(300, 300), process_group=group) for group in groups)
        x = torch.ones(2, 300)
        for step in range(4):
            ya, yb = (a(x), b(x)) if self.rank == 0 or step < 2 else (b(x), a(x))[::-1]
            (ya.sum() + yb.sum()).backward()
        for group in groups:
            dist.destroy_process_group(group)

    def test_an_optimizer_in_shards(self):
        from torch.distributed.optim import ZeroRedundancyOptimizer

        results = []
        for group in [dist.distributed_c10d._get_default_group(), self.gloo]:
            torch.manual_seed(1)
            model = DistributedDataParallel(Model(), process_group=group)
            optimizer = ZeroRedundancyOptimizer(
                model.parameters(), optimizer_class=torch.optim.SGD, process_group=group, lr=0.1, momentum=0.9
            )
            generator = torch.Generator().manual_seed(self.rank)
            for _ in range(3):
                model(torch.randn(8, 12, generator=generator)).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
            results.append(model.state_dict())
        for name, value in results[1].items():
            torch.testing.assert_close(results[0][name], value, rtol=1e-5, atol=1e-5)


if __name__ == "__main__":
    unittest.main()
