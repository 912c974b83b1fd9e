"""torch.distributed in elastic jobs: the default group is made anew when ranks die and come."""
# RANKS = 0
# LIMIT = 300

from __future__ import annotations

import importlib.util
import sys
import unittest

if not importlib.util.find_spec("torch"):
    raise unittest.SkipTest(f"no torch for {sys.executable} (apt install python3-torch)")

from elastic_jobs import run_elastic, said
from programs import slow

BEGIN = """
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
import hvdrun.c10d
from hvdrun.c10d import elastic

worker = int(os.environ["HVD_WORKER"])
torch.set_num_threads(1)
"""

TRAIN = """
dist.init_process_group("hvd")
world = dist.group.WORLD
say("begin", worker, os.getpid())
torch.manual_seed(worker)  # so that only the state makes the models equal
model = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)

def step(ddp, number):  # the loss over the 24 samples of the step, which the ranks share
    samples = torch.rand(24, 4, generator=torch.Generator().manual_seed(number))
    mine = samples[dist.get_rank()::dist.get_world_size()]
    loss = (ddp(mine) - mine.prod(1, keepdim=True)).square().sum() / 24
    optimizer.zero_grad()
    (loss * dist.get_world_size()).backward()
    optimizer.step()
    total = loss.detach()
    dist.all_reduce(total)
    return total.item()

def end(state):
    say("end", worker, os.getpid(), dist.get_rank(), dist.get_world_size(), elastic.membership(), state.losses,
        dist.group.WORLD is world)
"""

DEATH = """
@elastic.run
def train(state):
    ddp = DistributedDataParallel(model)
    if DIES == 0:
        dist.barrier(group=dist.new_group(backend="gloo"))  # whose ranks meet in the store
    if len(state.losses) == 0 and worker == DIES:
        parameter = next(model.parameters())
        parameter.register_hook(lambda gradient: die() if state.step == 5 else None)
    while state.step < 12:
        state.losses.append(step(ddp, state.step))
        state.step += 1
        if state.step % 2 == 0:
            state.commit()
state = elastic.TorchState(model, optimizer, step=0, losses=[])
train(state)
end(state)
"""

MANUAL = """
import horovod.torch as hvd
def make_anew():
    dist.destroy_process_group()
    dist.init_process_group("hvd")
def by_hand(function):
    def train(state):
        state.register_reset_callbacks([make_anew])
        hvd.elastic.run(function)(state)
    return train
elastic.run = by_hand
"""


class Elastic(unittest.TestCase):
    def job(self, program, start, *options):
        ended = run_elastic(BEGIN + program, start, *options)
        self.assertEqual(ended.returncode, 0, ended.stderr + ended.stdout)
        return ended, said(ended)

    def ends(self, lines):
        """Returns the lines of the ranks' ends by rank; each worker has the process that it began with."""
        begun = {line[1]: line[2] for line in lines if line[0] == "begin"}
        ends = sorted((line for line in lines if line[0] == "end"), key=lambda line: line[3])
        for line in ends:
            self.assertEqual(line[2], begun[line[1]])
        return ends

    def dies(self, dies, begin=TRAIN):
        """A death in the middle of backward: the losses are those of a job without the death."""
        _, lines = self.job(begin + "DIES = -1\n" + DEATH, 4)
        whole = self.ends(lines)
        self.assertEqual([line[3:6] + line[7:] for line in whole], [[rank, 4, 1, True] for rank in range(4)])
        ended, lines = self.job(begin + f"DIES = {dies}\n" + DEATH, 4)
        broken = self.ends(lines)
        self.assertEqual([line[1] for line in broken], [worker for worker in range(4) if worker != dies])
        self.assertEqual([line[3:6] + line[7:] for line in broken], [[rank, 3, 2, False] for rank in range(3)])
        self.assertIn("the job goes on with 3 ranks", ended.stderr)
        for line in broken:
            self.assertEqual(len(line[6]), 12)
            for loss, undisturbed in zip(line[6], whole[0][6], strict=True):
                self.assertAlmostEqual(loss, undisturbed, delta=1e-4)

    def test_the_death_of_a_rank(self):
        self.dies(2)

    @slow
    def test_the_death_of_rank_0_which_has_the_store(self):
        self.dies(0)

    @slow
    def test_a_reset_callback_that_makes_the_group_anew(self):
        self.dies(0, TRAIN + MANUAL)

    GROWTH = """
@elastic.run
def train(state):
    ddp = DistributedDataParallel(model)
    dist.barrier(group=dist.new_group())
    dist.barrier(group=dist.new_group(backend="gloo"))  # whose ranks meet in the store
    while state.step < 3000 and not (dist.get_world_size() == 4 and state.step - state.grown >= 4):
        state.losses.append(step(ddp, state.step))
        state.step += 1
        if state.step == 3 and dist.get_rank() == 0:
            slots(4)
        if dist.get_world_size() < 4:
            state.grown = state.step
            time.sleep(0.02)
        state.commit()
state = elastic.TorchState(model, optimizer, step=0, grown=0, losses=[])
train(state)
end(state)
"""

    def grows(self, ended, lines, ranks):
        ends = self.ends(lines)
        self.assertEqual([line[3:5] for line in ends], [[rank, ranks] for rank in range(ranks)], ended.stderr)
        for line in ends[1:]:
            self.assertEqual(line[6], ends[0][6])
        return ends

    def test_the_arrival_of_ranks(self):
        """They call init_process_group and meet the others, whose store has keys of former memberships."""
        ended, lines = self.job(TRAIN + self.GROWTH, 2)
        ends = self.grows(ended, lines, 4)
        self.assertEqual(sorted(line[1] for line in ends), [0, 1, 2, 3])

    MIDDLE = """
meet = elastic.meet
def die_when_they_meet(timeout):
    if elastic.membership() == 2 and worker == {0} and not {1}:
        die()
    store = meet(timeout)
    if elastic.membership() == 2 and worker == {0}:
        die()
    return store
elastic.meet = die_when_they_meet
"""

    def dies_in_the_middle(self, worker, after):
        begin = TRAIN + self.MIDDLE.format(worker, after)
        _, lines = self.job(begin + "DIES = 1\n" + DEATH, 4)
        ends = self.ends(lines)
        self.assertEqual([line[1] for line in ends], [each for each in (0, 2, 3) if each != worker])
        self.assertEqual([line[3:6] + line[7:] for line in ends], [[rank, 2, 3, False] for rank in range(2)])

    def test_a_death_in_the_middle_of_a_change(self):
        self.dies_in_the_middle(2, False)

    @slow
    def test_a_death_behind_the_meeting(self):
        self.dies_in_the_middle(2, True)

    @slow
    def test_the_death_of_rank_0_in_the_middle_of_a_change(self):
        self.dies_in_the_middle(0, False)

    @slow
    def test_the_death_of_rank_0_behind_the_meeting(self):
        self.dies_in_the_middle(0, True)

    @slow
    def test_a_death_while_a_newcomer_meets_the_others(self):
        """It is in init_process_group, which goes on to the next membership."""
        for worker in (0, 1):
            growth = self.GROWTH.replace("dist.get_world_size() == 4", "elastic.membership() > 2")
            growth = growth.replace("dist.get_world_size() < 4", "elastic.membership() < 3")
            growth = growth.replace("slots(4)", "slots(3)")
            ended, lines = self.job(self.MIDDLE.format(worker, False) + TRAIN + growth, 2)
            ends = self.grows(ended, lines, 2)
            self.assertEqual([line[1] for line in ends], [1 - worker, 2])


class Groups(unittest.TestCase):
    def test_groups_and_works_of_a_former_membership(self):
        """They say in one sentence that they have ended."""
        ended = run_elastic(
            BEGIN
            + """
dist.init_process_group("hvd", timeout=__import__("datetime").timedelta(seconds=40))
old, some, x = dist.group.WORLD, dist.new_group([0, 2]), torch.ones(1)
works = [dist.irecv(torch.ones(1), 1)] if worker != 1 else []
dist.all_reduce(x)
if worker == 1:
    die()
try:
    dist.barrier()
except RuntimeError as error:
    say("told", str(error).partition(" on ")[0])
hvdrun.elastic.reset()
def fails(call):
    try:
        call()
        say("no error")
    except RuntimeError as error:
        say(type(error).__name__, str(error).partition(" on ")[0])
fails(lambda: dist.all_reduce(x))
fails(lambda: dist.new_group([0, 1, 2]))
elastic_reset = elastic.reset
elastic.enter_next = lambda: None  # it is there already
elastic_reset()
for work in works:
    fails(work.wait)
if some is not dist.GroupMember.NON_GROUP_MEMBER:
    fails(lambda: old.allreduce([x], dist.AllreduceOptions()))
    fails(lambda: old.barrier(dist.BarrierOptions()))
    fails(lambda: some.broadcast([x], dist.BroadcastOptions()))
again = dist.new_group([0, 1])
y = torch.ones(1)
dist.all_reduce(y, group=again)
say("again", y.item(), dist.get_world_size(), old.seconds == dist.group.WORLD.seconds)
""", 3)  # fmt: skip
        lines = said(ended)
        self.assertEqual(ended.returncode, 0, ended.stderr + ended.stdout)
        how = "make it anew with hvdrun.c10d.elastic.reset(), or destroy_process_group() and init_process_group()"
        default = ["ProcessSetError", f"the default group ended with membership 1: {how}"]
        each = [
            ["told", "rank 1"], default, default, ["HorovodInternalError", "rank 1"], default, default,
            ["ProcessSetError", "the group of 2 ranks ended with membership 1: make it anew with new_group()"],
            ["again", 2.0, 2, True],
        ]  # fmt: skip
        self.assertEqual(sorted(lines), sorted(each * 2), ended.stderr)


if __name__ == "__main__":
    unittest.main()
