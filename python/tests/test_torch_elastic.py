"""hvdrun.torch.elastic: models, optimizers and samplers over changes of the ranks."""
# RANKS = 0
# LIMIT = 240

from __future__ import annotations

import time
import unittest
import unittest.mock

from elastic_jobs import run_elastic, said
from hvdrun.torch.elastic import handlers
from programs import slow
from torch_case import hvd, torch

TRAIN = """
import torch
import horovod.torch as hvd
hvd.init()
first = hvd.rank()
torch.manual_seed(first)  # so that only the state makes the models equal
model = torch.nn.Sequential(torch.nn.Linear(8, 16, bias=False), torch.nn.BatchNorm1d(16), torch.nn.Linear(16, 3))
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())

def step(number):
    batch = torch.arange(64.0).view(8, 8).remainder(7 + number % 5)
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()

def numbers():  # of the state: equal on two ranks when all parameters and moments are
    moments = [value for state in optimizer.state_dict()["state"].values() for value in state.values()]
    tensors = [*model.state_dict().values(), *(each for each in moments if torch.is_tensor(each))]
    return [float(sum(each.double().sum() for each in tensors)), len(tensors)]
"""


class Training(unittest.TestCase):
    def job(self, program, start, *options):
        ended = run_elastic(TRAIN + program, start, *options)
        self.assertEqual(ended.returncode, 0, ended.stderr + ended.stdout)
        return said(ended)

    def test_a_death_in_the_middle_of_a_step(self):
        """The gradients of the step that broke are not used: all is as in a job without the death."""
        program = """
@hvd.elastic.run
def train(state):
    while state.step < 12:
        if state.step == 5 and first == 1 and hvd.size() == 3:
            WHEN.register_hook(lambda gradient: die())
        step(state.step)
        state.step += 1
        state.commit()
WHEN = next(model.parameters()) if CASE == "die" else torch.ones(1, requires_grad=True)
train(hvd.elastic.TorchState(model, optimizer, step=0))
say("end", hvd.size(), *numbers())
"""
        whole = self.job('CASE = "live"\n' + program, 3)
        broken = self.job('CASE = "die"\n' + program, 3)
        self.assertEqual([line[1] for line in whole], [3, 3, 3])
        self.assertEqual([line[1] for line in broken], [2, 2])
        self.assertEqual(broken[0], broken[1])
        self.assertAlmostEqual(whole[0][2], broken[0][2], places=3)
        self.assertEqual(whole[0][3], broken[0][3])

    @slow
    def test_newcomers_get_model_and_optimizer(self):
        lines = self.job(
            """
@hvd.elastic.run
def train(state):
    while state.step < 3000 and not (hvd.size() == 4 and state.step - state.grown >= 3):
        step(state.step)
        state.step += 1
        if state.step == 3 and hvd.rank() == 0:
            slots(4)
        if hvd.size() < 4:
            state.grown = state.step
            time.sleep(0.02)
        state.commit()
state = hvd.elastic.TorchState(model=model, optimizer=optimizer, step=0, grown=0)
train(state)
say(hvd.size(), state.step, *numbers())
""", 2)  # fmt: skip
        self.assertEqual(len(lines), 4)
        self.assertEqual(lines[1:], lines[:1] * 3)

    @slow
    def test_every_sample_once(self):
        """Though the ranks change in the middle of an epoch."""
        lines = self.job(
            """
sampler = hvd.elastic.ElasticSampler(range(240), seed=4)
@hvd.elastic.run
def train(state):
    while state.epoch < 2:
        for number in range((len(sampler) + 1) // 2):
            read = sampler.get_indices(number, 2)
            hvd.allreduce(torch.ones(1), name="step")
            sampler.record_batch(number, 2)
            say(state.epoch, hvd.size(), read)
            if state.epoch == 0 and number == 1 and hvd.rank() == 0:
                slots(3)
            time.sleep(0.05 if hvd.size() == 2 else 0)
            state.commit()
        state.epoch += 1
        sampler.set_epoch(state.epoch)
train(hvd.elastic.TorchState(sampler=sampler, epoch=0))
""", 2)  # fmt: skip
        for epoch in (0, 1):
            read = [index for line in lines if line[0] == epoch for index in line[2]]
            self.assertEqual(set(read), set(range(240)))
            self.assertLessEqual(len(read), 240 + 6)  # what completes the last batch
        self.assertEqual({line[1] for line in lines if line[0] == 0}, {2, 3})


class Parts(unittest.TestCase):
    def test_an_asynchronous_commit(self):
        """The copy is that of the commit, though it is slow and the next step follows at once."""
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
        state = hvd.elastic.TorchState(model, optimizer, number=0)
        state._leave_if_changed = lambda: None  # no job

        def step():
            model(torch.arange(12.0).view(3, 4)).square().sum().backward()
            optimizer.step()

        def values():
            moments = [each["momentum_buffer"] for each in optimizer.state_dict()["state"].values()]
            rates = [torch.tensor(group["lr"]) for group in optimizer.param_groups]
            return [each.clone() for each in (*model.state_dict().values(), *moments, *rates)]

        def slow_copy(*args):
            time.sleep(0.1)
            return copy_state(*args)

        step()
        scheduler.step()
        copy_state = handlers.copy_state
        for number in range(3):
            state.number = number
            before = values()
            with unittest.mock.patch.object(handlers, "copy_state", slow_copy):
                state.commit(asynchronous=True)
                scheduler.step()
                state.number = -1
                step()
            self.assertFalse(all(torch.equal(*pair) for pair in zip(values(), before, strict=True)))
            state.restore()
            self.assertTrue(all(torch.equal(*pair) for pair in zip(values(), before, strict=True)), number)
            self.assertEqual(state.number, number)
            optimizer.zero_grad()
            step()

    def test_restore_does_not_share_memory(self):
        model = torch.nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        state = hvd.elastic.TorchState(model, optimizer, other=torch.nn.Linear(1, 1), items=[1])

        def step():
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()

        def values():
            momenta = [each["momentum_buffer"] for each in optimizer.state_dict()["state"].values()]
            return [each.clone() for each in (*model.parameters(), *momenta)]

        step()
        state.save()
        saved = values()
        for _ in range(3):
            step()
            state.items.append(2)
            self.assertFalse(torch.equal(values()[0], saved[0]))
            state.restore()
            self.assertTrue(all(torch.equal(*pair) for pair in zip(values(), saved, strict=True)))
            self.assertEqual(state.items, [1])
        self.assertTrue(all(parameter.grad is None or not parameter.grad.any() for parameter in model.parameters()))

    def test_another_object_takes_a_place(self):
        state = hvd.elastic.TorchState(torch.nn.Linear(2, 2))
        state.model = torch.nn.Linear(3, 1)
        kept = state.model.weight.detach().clone()
        with torch.no_grad():
            state.model.weight.zero_()
        state.restore()
        self.assertTrue(torch.equal(state.model.weight, kept))
        self.assertEqual(state.model.weight.shape, (1, 3))

    def test_a_handler_of_the_script(self):
        class Counter:
            number = 1

        class Handler(hvd.elastic.StateHandler):
            def save(self):
                self.saved = self.value.number

            def restore(self):
                self.value.number = self.saved

        known = hvd.elastic.get_handler_registry()
        self.addCleanup(hvd.elastic.set_handler_registry, known)
        hvd.elastic.set_handler_registry([(Counter, Handler), *known])
        state = hvd.elastic.TorchState(counter=Counter())
        state.save()
        state.counter.number = 5
        state.restore()
        self.assertEqual(state.counter.number, 1)

    def test_sampler(self):
        sampler = hvd.elastic.ElasticSampler(range(10), shuffle=False)
        self.assertEqual((list(sampler), len(sampler)), (list(range(10)), 10))
        sampler.record_batch(1, 4)
        self.assertEqual(sampler.processed_indices, {4, 5, 6, 7})
        self.assertEqual(list(sampler), list(range(10)))  # until the ranks change
        sampler.reset()
        self.assertEqual(list(sampler), [0, 1, 2, 3, 8, 9])
        other = hvd.elastic.ElasticSampler(range(10), shuffle=False)
        other.load_state_dict(sampler.state_dict())
        self.assertEqual(list(other), [0, 1, 2, 3, 8, 9])
        sampler.set_epoch(1)
        self.assertEqual(len(sampler), 10)
        shuffled = hvd.elastic.ElasticSampler(range(10), seed=3)
        self.assertNotEqual(list(shuffled), list(range(10)))
        self.assertEqual(sorted(shuffled), list(range(10)))

    def test_horovods_names(self):
        import horovod.torch.elastic.sampler as sampler
        import horovod.torch.elastic.state as states
        from horovod.common.elastic import ObjectState, State

        self.assertTrue(issubclass(states.TorchState, ObjectState) and issubclass(ObjectState, State))
        self.assertIs(sampler.ElasticSampler, hvd.elastic.ElasticSampler)
        for name in ("run", "TorchState", "ElasticSampler", "get_handler_registry", "set_handler_registry", "reset"):
            self.assertTrue(callable(getattr(hvd.elastic, name)))
