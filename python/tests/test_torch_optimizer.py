"""DistributedOptimizer, against one process that has the whole batch."""
# JOB = torch
# LIMIT = 120

from __future__ import annotations

import copy
import functools
import gc
import itertools
import unittest
import warnings

from torch_case import TorchCase, hvd, torch

F = torch.nn.functional


def net(seed: int = 1) -> torch.nn.Module:
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3)
    ).double()


class Branches(torch.nn.Module):
    """Each rank may use another branch; one is used by no rank."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.branches = torch.nn.ModuleList(torch.nn.Linear(4, 2, bias=False) for _ in range(3)).double()
        self.shared = torch.nn.Linear(4, 4).double()

    def forward(self, x: torch.Tensor, branch: int) -> torch.Tensor:
        return self.branches[branch](self.shared(self.shared(x)))


class OptimizerCase(TorchCase):
    def setUp(self) -> None:
        torch.manual_seed(7)
        self.x = torch.randn(8, 4 * self.size, 6, dtype=torch.float64)
        self.y = torch.randn(8, 4 * self.size, 3, dtype=torch.float64)

    def own(self, step: int):
        rows = slice(self.rank * 4, self.rank * 4 + 4)
        return self.x[step, rows], self.y[step, rows]

    def same_models(self, model: torch.nn.Module, other: torch.nn.Module, tolerance: float = 1e-9) -> None:
        for (name, parameter), wanted in zip(model.named_parameters(), other.parameters(), strict=True):
            with self.subTest(parameter=name):
                self.same(parameter.detach(), wanted.detach(), tolerance)


class Dropping(torch.optim.SGD):
    """Drops the gradients that it has used."""

    def step(self, closure=None):
        loss = super().step(closure)
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad = None
        return loss


class Halving:
    """A compressor that has all of its work in decompress()."""

    @staticmethod
    def compress(tensor):
        return tensor, None

    @staticmethod
    def decompress(tensor, _context):
        return tensor * 0.5


class Unusual(TorchCase):
    def gradients(self, make, calls: int, **options) -> list:
        weight = torch.nn.Parameter(torch.ones(3))
        optimizer = hvd.DistributedOptimizer(make([weight], lr=0.0), [("weight", weight)], **options)
        seen = []
        for _ in range(calls):
            (weight * 2).sum().backward()
            optimizer.synchronize()
            seen.append(weight.grad.tolist())
            with optimizer.skip_synchronize():
                optimizer.step()
        return seen

    def test_an_optimizer_that_drops_them(self):
        self.assertEqual(self.gradients(Dropping, 4), [[2.0] * 3] * 4)

    def test_a_compressor_that_works_when_it_decompresses(self):
        self.assertEqual(self.gradients(torch.optim.SGD, 1, compression=Halving), [[1.0 if self.size > 1 else 2.0] * 3])

    def test_a_gradient_given_before_the_step_to_what_no_rank_used(self):
        used, unused = torch.nn.Parameter(torch.ones(1)), torch.nn.Parameter(torch.ones(1))
        optimizer = torch.optim.SGD([used, unused], lr=1.0)
        optimizer = hvd.DistributedOptimizer(optimizer, [("used", used), ("unused", unused)])
        for step in range(3):
            used.sum().backward()
            optimizer.synchronize()
            unused.grad = torch.full((1,), 5.0)
            with optimizer.skip_synchronize():
                optimizer.step()
            self.assertEqual(unused.tolist(), [1.0 - 5.0 * (step + 1)])
            optimizer.zero_grad()


class Steps(OptimizerCase):
    def train(self, make, steps: int = 5, set_to_none=None, **options) -> None:
        """Trains on all ranks, and in one process with the whole batch; the models must be the same."""
        model, single = net(), net()
        optimizer = make(model.parameters())
        optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters(), **options)
        alone = make(single.parameters())
        self.assertIsInstance(optimizer, type(alone))
        zero = {} if set_to_none is None else {"set_to_none": set_to_none}
        for step in range(steps):
            for trained, by, (x, y) in (
                (model, optimizer, self.own(step)),
                (single, alone, (self.x[step], self.y[step])),
            ):
                by.zero_grad(**zero)
                F.mse_loss(trained(x), y).backward()
                by.step()
        self.same_models(model, single)

    def test_equals_one_process(self):
        makers = [
            lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
            lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=0.1),
            lambda p: torch.optim.AdamW(p, lr=0.01),
            lambda p: torch.optim.Adagrad(p, lr=0.1),
            lambda p: torch.optim.RMSprop(p, lr=0.01),
        ]
        for make, set_to_none in itertools.product(makers, (None, True, False)):
            with self.subTest(make=make, set_to_none=set_to_none):
                self.train(make, set_to_none=set_to_none)

    def test_groups_and_factors(self):
        def make(parameters):
            return torch.optim.SGD(parameters, lr=0.1)

        for options in ({"groups": 2}, {"groups": 1}, {"gradient_predivide_factor": 4.0}, {"groups": 100}):
            with self.subTest(options=options):
                self.train(make, **options)
        with self.assertWarns(DeprecationWarning):
            self.train(make, num_groups=3)

    def test_groups_by_list(self):
        model, single = net(), net()
        parameters = list(model.parameters())
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.1), named_parameters=model.named_parameters(),
            groups=[parameters[:2], [parameters[4]]],
        )  # fmt: skip
        alone = torch.optim.SGD(single.parameters(), lr=0.1)
        for step in range(3):
            for trained, by, (x, y) in (
                (model, optimizer, self.own(step)),
                (single, alone, (self.x[step], self.y[step])),
            ):
                by.zero_grad()
                F.mse_loss(trained(x), y).backward()
                by.step()
        self.same_models(model, single)
        for wrong in (-1, [parameters[0]], [[1]], "ab", [[parameters[0]], [parameters[0]]]):
            with self.assertRaises(ValueError):
                hvd.DistributedOptimizer(torch.optim.SGD(parameters, lr=0.1), groups=wrong)

    def test_sum_and_compression(self):
        for options, factor in (({"op": hvd.Sum}, self.size), ({"compression": hvd.Compression.fp16}, 1)):
            model, single = net(), net()
            optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), **options)
            for step in range(2):
                optimizer.zero_grad()
                F.mse_loss(model(self.own(step)[0]), self.own(step)[1]).backward()
                optimizer.step()
            alone = torch.optim.SGD(single.parameters(), lr=0.1 * factor)
            for step in range(2):
                alone.zero_grad()
                F.mse_loss(single(self.x[step]), self.y[step]).backward()
                alone.step()
            self.same_models(model, single, 1e-9 if factor > 1 or self.size == 1 else 1e-3)

    def test_a_compression_of_the_script(self):
        seen = []

        class Doubled:
            @staticmethod
            def compress(tensor):
                seen.append(tuple(tensor.shape))
                return tensor * 2, None

            @staticmethod
            def decompress(tensor, _context):
                return tensor / 2

        self.train(lambda p: torch.optim.SGD(p, lr=0.1), compression=Doubled)
        if self.size > 1:
            self.assertIn((8, 6), seen)

    def test_backward_passes_per_step(self):
        model, single = net(), net()
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), backward_passes_per_step=2)
        alone = torch.optim.SGD(single.parameters(), lr=0.1)
        for step in (0, 2, 4):
            optimizer.zero_grad()
            alone.zero_grad()
            for part in (step, step + 1):
                F.mse_loss(model(self.own(part)[0]), self.own(part)[1]).backward()
                F.mse_loss(single(self.x[part]), self.y[part]).backward()
            optimizer.step()
            alone.step()
        self.same_models(model, single)
        self.assertEqual(optimizer.backward_passes_per_step, 2)
        optimizer.set_backward_passes_per_step(1)
        optimizer.zero_grad()
        F.mse_loss(model(self.own(0)[0]), self.own(0)[1]).backward()
        if self.size > 1:
            with self.assertRaises(AssertionError):
                F.mse_loss(model(self.own(0)[0]), self.own(0)[1]).backward()
        optimizer.synchronize()

    def test_a_closure(self):
        model, single = net(), net()
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
        alone = torch.optim.SGD(single.parameters(), lr=0.1)

        def closure(trained, by, data):
            by.zero_grad()
            loss = F.mse_loss(trained(data[0]), data[1])
            loss.backward()
            return loss

        for step in range(3):
            loss = optimizer.step(functools.partial(closure, model, optimizer, self.own(step)))
            self.assertIsNotNone(loss)
            alone.step(functools.partial(closure, single, alone, (self.x[step], self.y[step])))
        self.same_models(model, single)


class Gradients(OptimizerCase):
    def start(self, optimizer_class=torch.optim.SGD, **options):
        model = net()
        optimizer = optimizer_class(model.parameters(), lr=0.1)
        return model, hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters(), **options)

    def backward(self, model, step=0):
        F.mse_loss(model(self.own(step)[0]), self.own(step)[1]).backward()

    def test_clipping_between_synchronize_and_step(self):
        model, optimizer = self.start()
        single = net()
        alone = torch.optim.SGD(single.parameters(), lr=0.1)
        for step in range(3):
            optimizer.zero_grad()
            self.backward(model, step)
            optimizer.synchronize()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
            with optimizer.skip_synchronize():
                optimizer.step()
            alone.zero_grad()
            F.mse_loss(single(self.x[step]), self.y[step]).backward()
            torch.nn.utils.clip_grad_norm_(single.parameters(), 0.05)
            alone.step()
        self.same_models(model, single)

    def test_a_warning_for_step_after_synchronize(self):
        self.needs(2)
        model, optimizer = self.start()
        self.backward(model)
        optimizer.synchronize()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            optimizer.step()
        self.assertEqual(len(caught), 1)
        self.assertIn("optimizer.skip_synchronize()", str(caught[0].message))

    def test_zero_grad_while_gradients_travel(self):
        self.needs(2)
        model, optimizer = self.start()
        for _ in range(2):
            self.backward(model)
            with self.assertRaises(AssertionError):
                optimizer.zero_grad()
            optimizer.step()
            optimizer.zero_grad()

    def test_gradients_lie_in_shared_memory(self):
        self.needs(2)
        model, optimizer = self.start()
        self.backward(model)
        optimizer.step()
        places = [parameter.grad.data_ptr() for parameter in model.parameters()]
        for set_to_none in (True, False):
            optimizer.zero_grad(set_to_none=set_to_none)
            self.assertTrue(all(not parameter.grad.any() for parameter in model.parameters()))
            self.backward(model)
            optimizer.step()
            self.assertEqual(places, [parameter.grad.data_ptr() for parameter in model.parameters()])

    def test_gradients_that_the_script_replaces(self):
        self.needs(2)
        model, optimizer = self.start()
        self.backward(model)
        optimizer.step()
        kept = list(model.parameters())
        for parameter in kept:
            parameter.grad = None
        self.backward(model)
        expected = [hvd.allreduce(parameter.grad.clone()) for parameter in kept]
        kept[0].grad = torch.full_like(kept[0], float(self.rank))  # too late: the gradient travels
        kept[1].grad = None
        optimizer.synchronize()
        for parameter, wanted in zip(kept, expected, strict=True):
            self.same(parameter.grad, wanted, 1e-12)
        with optimizer.skip_synchronize():
            optimizer.step()

    def test_gradients_without_backward(self):
        self.needs(2)
        for fresh in (True, False):
            model, optimizer = self.start()
            if not fresh:
                self.backward(model)
                optimizer.step()
                optimizer.zero_grad()
            before = [parameter.detach().clone() for parameter in model.parameters()]
            for parameter in model.parameters():
                if fresh:
                    parameter.grad = torch.full_like(parameter, float(self.rank))
                else:
                    parameter.grad += self.rank
            optimizer.step()
            for parameter, old in zip(model.parameters(), before, strict=True):
                self.same(parameter.detach(), old - 0.1 * sum(range(self.size)) / self.size, 1e-12)

    def test_branches_that_ranks_do_not_use(self):
        """A branch of one rank gets its part of the average; one of no rank is None, as in torch."""
        for set_to_none in (True, False):
            model, single = Branches(), Branches()
            optimizer = torch.optim.Adam(model.parameters(), lr=0.1, weight_decay=0.5)
            optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
            alone = torch.optim.Adam(single.parameters(), lr=0.1, weight_decay=0.5)
            x = torch.randn(self.size, 3, 4, dtype=torch.float64)
            for _step in range(4):
                optimizer.zero_grad(set_to_none=set_to_none)
                alone.zero_grad(set_to_none=set_to_none)
                model(x[self.rank], self.rank % 2).square().mean().backward()
                sum(single(x[rank], rank % 2).square().mean() / self.size for rank in range(self.size)).backward()
                optimizer.step()
                alone.step()
            self.same_models(model, single)
            self.assertFalse(optimizer.state[model.branches[2].weight])

    def test_frozen_layers(self):
        model, optimizer = self.start()
        single = net()
        alone = torch.optim.SGD(single.parameters(), lr=0.1)
        for step in range(6):
            for trained in (model, single):
                for parameter in trained[0].parameters():
                    parameter.requires_grad_(step % 2 == 1)
                for parameter in trained[2].parameters():
                    parameter.requires_grad_(step % 3 != 1)
            for trained, by, (x, y) in (
                (model, optimizer, self.own(step)),
                (single, alone, (self.x[step], self.y[step])),
            ):
                by.zero_grad(set_to_none=True)
                F.mse_loss(trained(x), y).backward()
                by.step()
        self.same_models(model, single)

    def test_two_optimizers_take_turns(self):
        """A generator and a discriminator with the same names of parameters."""
        torch.manual_seed(3)
        generator, judge = torch.nn.Linear(4, 4).double(), torch.nn.Linear(4, 1).double()
        alone = copy.deepcopy((generator, judge))
        by = [
            hvd.DistributedOptimizer(torch.optim.SGD(m.parameters(), lr=0.1), named_parameters=m.named_parameters())
            for m in (generator, judge)
        ]
        alone_by = [torch.optim.SGD(m.parameters(), lr=0.1) for m in alone]
        x = torch.randn(self.size, 3, 4, dtype=torch.float64)
        for step in range(4):
            for (first, second), optimizers, data in (
                ((generator, judge), by, x[self.rank]),
                (alone, alone_by, x.flatten(0, 1)),
            ):
                for parameter in first.parameters():
                    parameter.requires_grad_(step % 2 == 0)
                for parameter in second.parameters():
                    parameter.requires_grad_(step % 2 == 1)
                for optimizer in optimizers:
                    optimizer.zero_grad(set_to_none=True)
                second(first(data)).square().mean().backward()
                optimizers[step % 2].step()
        self.same_models(generator, alone[0])
        self.same_models(judge, alone[1])

    def test_another_dtype(self):
        model, optimizer = self.start()
        self.backward(model)
        optimizer.step()
        optimizer.zero_grad()
        model.float()
        before = [parameter.detach().clone() for parameter in model.parameters()]
        F.mse_loss(model(self.own(0)[0].float()), self.own(0)[1].float()).backward()
        optimizer.step()
        for parameter, old in zip(model.parameters(), before, strict=True):
            self.assertEqual(parameter.dtype, torch.float32)
            self.same(hvd.broadcast(parameter.detach(), 0), parameter.detach())
            self.assertFalse(torch.equal(parameter, old))

    def test_parameters_that_are_added(self):
        model, optimizer = self.start()
        self.backward(model)
        optimizer.step()
        more = torch.nn.Parameter(torch.ones(3, dtype=torch.float64))
        optimizer.add_param_group({"params": [more]})
        optimizer.zero_grad()
        (more * float(self.rank)).sum().backward()
        optimizer.step()
        self.same(
            more.detach(), torch.full([3], 1 - 0.1 * sum(range(self.size)) / self.size, dtype=torch.float64), 1e-12
        )

    def test_models_that_differ(self):
        self.needs(2)
        layer = torch.nn.Linear(3 + self.rank % 2, 2)
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(layer.parameters(), lr=0.1))
        layer(torch.ones(1, 3 + self.rank % 2)).sum().backward()
        with self.assertRaisesRegex(ValueError, "differ|disagree|count"):
            optimizer.step()

    def test_sparse_gradients(self):
        for as_dense in (False, True):
            torch.manual_seed(9)
            model = torch.nn.Sequential(torch.nn.Embedding(6, 3, sparse=True), torch.nn.Linear(3, 1)).double()
            single = copy.deepcopy(model)
            optimizer = hvd.DistributedOptimizer(
                torch.optim.SGD(model.parameters(), lr=0.5), named_parameters=model.named_parameters(),
                sparse_as_dense=as_dense,
            )  # fmt: skip
            alone = torch.optim.SGD(single.parameters(), lr=0.5)
            words = torch.tensor([[rank, (rank + 1) % 6] for rank in range(self.size)])
            for _ in range(3):
                optimizer.zero_grad(set_to_none=True)
                alone.zero_grad(set_to_none=True)
                model(words[self.rank]).square().mean().backward()
                sum(single(words[rank]).square().mean() / self.size for rank in range(self.size)).backward()
                optimizer.step()
                alone.step()
            if not as_dense:
                self.assertTrue(model[0].weight.grad.is_sparse)
            self.same_models(model, single)

    def test_a_process_set(self):
        self.needs(3)
        pair = hvd.add_process_set([0, 1])
        model = net(seed=1 if self.rank < 2 else 2)
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), process_set=pair)
        self.backward(model)
        local = [parameter.grad.clone() for parameter in model.parameters()]
        optimizer.step()
        if self.rank < 2:
            for parameter in model.parameters():
                self.same(hvd.broadcast(parameter.detach(), 0, process_set=pair), parameter.detach())
        else:
            self.same(model[0].weight.grad, local[0])
        hvd.barrier()
        hvd.remove_process_set(pair)

    def test_gradients_outlive_the_optimizer(self):
        model, optimizer = self.start()
        self.backward(model)
        optimizer.step()
        kept = [parameter.grad for parameter in model.parameters()]
        values = [grad.clone() for grad in kept]
        del optimizer
        gc.collect()
        for parameter, grad, value in zip(model.parameters(), kept, values, strict=True):
            self.same(grad, value)
            self.same(parameter.grad, value)
        self.backward(model)


class Construction(OptimizerCase):
    def test_names(self):
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        named = list(model.named_parameters())
        with self.assertRaisesRegex(ValueError, "twice"):
            hvd.DistributedOptimizer(optimizer, named_parameters=[(named[0][0], p) for _, p in named])
        with self.assertRaisesRegex(ValueError, "not named"):
            hvd.DistributedOptimizer(optimizer, named_parameters=named[:-1])
        with self.assertRaisesRegex(ValueError, "pairs"):
            hvd.DistributedOptimizer(optimizer, named_parameters=model.parameters())
        hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())

    def test_wrong_factors(self):
        optimizer = torch.optim.SGD(net().parameters(), lr=0.1)
        with self.assertRaises(ValueError):
            hvd.DistributedOptimizer(optimizer, op=hvd.Sum, gradient_predivide_factor=2.0)
        with self.assertRaises(ValueError):
            hvd.DistributedOptimizer(optimizer, backward_passes_per_step=0)

    def test_class_state_and_schedulers(self):
        model = net()
        inner = torch.optim.Adam(model.parameters(), lr=0.4)
        F.mse_loss(model(self.own(0)[0]), self.own(0)[1]).backward()
        inner.step()
        optimizer = hvd.DistributedOptimizer(inner)
        self.assertIsInstance(optimizer, torch.optim.Adam)
        self.assertEqual(type(optimizer).__name__, "Adam")
        self.assertTrue(optimizer.state)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
        optimizer.zero_grad()
        F.mse_loss(model(self.own(0)[0]), self.own(0)[1]).backward()
        optimizer.step()
        scheduler.step()
        self.assertEqual(optimizer.param_groups[0]["lr"], 0.2)
        optimizer.load_state_dict(optimizer.state_dict())

    def test_a_copy_steps_alone(self):
        model = net()
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
        alone = copy.deepcopy(optimizer)
        for parameter in alone.param_groups[0]["params"]:
            parameter.grad = torch.full_like(parameter, float(self.rank))
        alone.step()
        first, old = alone.param_groups[0]["params"][0], model[0].weight
        self.same(first.detach(), old.detach() - 0.1 * self.rank, 1e-12)

    def test_adasum(self):
        if self.size & (self.size - 1):
            self.skipTest("needs a power of two of ranks")
        model = net()
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), op=hvd.Adasum)
        single = net()
        alone = torch.optim.SGD(single.parameters(), lr=0.1)
        for step in range(3):  # all ranks have the same data, so Adasum is what one rank does
            for trained, by in ((model, optimizer), (single, alone)):
                by.zero_grad()
                F.mse_loss(trained(self.x[step]), self.y[step]).backward()
                by.step()
        self.same_models(model, single, 1e-7)
        if self.size > 1:
            with self.assertRaises(AssertionError), optimizer.skip_synchronize():
                pass


if __name__ == "__main__":
    unittest.main()
