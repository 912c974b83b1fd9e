"""hvdrun.elastic: states that outlive deaths, newcomers and leavers, without any framework."""
# RANKS = 0
# LIMIT = 240

from __future__ import annotations

import unittest

from elastic_jobs import run_elastic, said
from programs import run_program, slow

TRAIN = """
import hvdrun as hvd
from array import array
hvd.init()
first = hvd.rank()

class Watched(hvd.elastic.ObjectState):
    def sync_from(self, root, among):
        super().sync_from(root, among)
        if hvd.elastic.membership() > 1:
            say("sync", hvd.rank(), root, among.ranks)

def total():  # proves that all ranks are there
    one = array("q", [1])
    return hvd.allreduce_(one, op=hvd.Sum, name="total")[0]
"""

GIVEN = "mine = hvd.ProcessSet([0, 1]), hvd.ProcessSet([1]); hvd.init(process_sets=mine)"


class Elastic(unittest.TestCase):
    def job(self, program, start, *options, begin=TRAIN):
        ended = run_elastic(begin + program, start, *options)
        self.assertEqual(ended.returncode, 0, ended.stderr + ended.stdout)
        return ended, said(ended)

    def test_a_death(self):
        """The others keep their process and their commit, and nothing is sent to them."""
        ended, lines = self.job(
            """
@hvd.elastic.run
def train(state):
    while state.step < 20:
        if state.step == 6 and first == 1:
            die()
        total()
        state.step += 1
        state.log.append(hvd.size())
        state.commit()
    return state.log
state = Watched(step=0, log=[])
log = train(state)
say("end", first, hvd.rank(), hvd.size(), log, hvd.elastic.membership())
""", 3)  # fmt: skip
        ends = sorted(line for line in lines if line[0] == "end")
        self.assertEqual(ends[0], ["end", 0, 0, 2, [3] * 6 + [2] * 14, 2], ended.stderr)
        self.assertEqual(ends[1], ["end", 2, 1, 2, [3] * 6 + [2] * 14, 2], ended.stderr)
        self.assertEqual([line for line in lines if line[0] == "sync"], [])
        self.assertIn("the job goes on with 2 ranks", ended.stderr)

    def test_growth(self):
        """A newcomer takes the state of one rank; the others send and receive nothing."""
        ended, lines = self.job(
            """
@hvd.elastic.run
def train(state):
    while state.step < 2000 and not (hvd.size() == 4 and state.step - state.grown >= 5):
        total()
        state.step += 1
        if state.step == 3 and hvd.rank() == 0:
            slots(4)
        if hvd.size() < 4:
            state.grown = state.step
            time.sleep(0.02)
        state.commit()
    return state.step
state = Watched(step=0, grown=0)
say("end", hvd.elastic.membership(), train(state), hvd.size())
""", 2)  # fmt: skip
        ends = [line for line in lines if line[0] == "end"]
        self.assertEqual(len(ends), 4, ended.stderr)
        self.assertEqual(len({line[2] for line in ends}), 1, ends)
        syncs = [line for line in lines if line[0] == "sync"]
        self.assertTrue({2, 3} <= {line[1] for line in syncs} <= {0, 2, 3}, syncs)
        self.assertTrue(all(line[2] == 0 for line in syncs), syncs)

    def test_state_comes_from_the_own_host(self):
        """Each rank that lacks it; where no rank of the host has it, from the first rank that has."""
        _, lines = self.job(
            """
import platform
platform.node = lambda: "host" + str(first % 2)  # as it was at the start; newcomers: 2 is on host0, 3 on host1
@hvd.elastic.run
def train(state):
    while state.step < 2000 and not (hvd.size() == 4 and state.step - state.grown >= 5):
        total()
        state.step += 1
        if state.step == 3 and hvd.rank() == 0:
            slots(4)
        if hvd.size() < 4:
            state.grown = state.step
            time.sleep(0.02)
        state.commit()
    return state.step
train(Watched(step=0, grown=0))
""", 2)  # fmt: skip
        syncs = [line for line in lines if line[0] == "sync" and line[2] != line[1]]
        self.assertEqual({(line[1], line[2]) for line in syncs if line[1] > 1}, {(2, 0), (3, 1)}, syncs)

    def test_who_gives_the_state(self):
        from hvdrun.elastic import _givers

        self.assertEqual(_givers(4, [4, 4, -2, 4, -2, 3], [1, 2, 1, 2, 2, 3]), {0: [0, 2, 5], 1: [1, 4]})
        self.assertEqual(_givers(2, [2, 2], [1, 2]), {})
        self.assertEqual(_givers(-1, [-1, -1, -1], [1, 1, 2]), {0: [0, 1, 2]})

    def test_a_death_before_the_first_membership(self):
        """The others are no newcomers, though their first membership is the second."""
        ended = run_elastic(
            """
if os.environ["HVD_WORKER"] == "1":
    die()
time.sleep(0.3)
import hvdrun as hvd
hvd.init()
@hvd.elastic.run
def train(state):
    state.step += 1
    state.commit()
state = hvd.elastic.ObjectState(step=0)
train(state)
say(hvd.size(), hvd.elastic.membership(), state.step)
""", 3)  # fmt: skip
        self.assertEqual((ended.returncode, said(ended)), (0, [[2, 2, 1]] * 2), ended.stderr)

    def test_shrinking(self):
        """A rank that has to leave ends with status 0, at a commit."""
        ended, lines = self.job(
            """
@hvd.elastic.run
def train(state):
    while hvd.size() == 3 or state.step < 8:
        total()
        state.step += 1
        if state.step == 3 and hvd.rank() == 0:
            slots(2)
        time.sleep(0.01)
        state.commit()
try:
    train(Watched(step=0))
except SystemExit as why:
    say("left", hvd.is_initialized(), why.code)
    raise
say("end", hvd.rank(), hvd.size())
""", 3)  # fmt: skip
        self.assertEqual(sorted(lines), [["end", 0, 2], ["end", 1, 2], ["left", False, 0]], ended.stderr)

    def test_a_step_that_was_not_committed(self):
        _, lines = self.job(
            """
@hvd.elastic.run
def train(state):
    if hvd.size() == 2:
        for number in range(5):
            state.items.append(number)
            total()
            if number == 2:
                state.commit()
            if number == 4 and first == 1:
                die()
        total()
    return state.items
say(train(Watched(items=[])))
""", 2)  # fmt: skip
        self.assertEqual(lines, [[[0, 1, 2]]])

    def test_process_sets(self):
        """Sets keep their objects and the ranks that stay; one without ranks is an error that names it."""
        ended, lines = self.job(
            """
sets = [hvd.add_process_set(ranks) for ranks in ([0, 2], [1, 3], [1])]
found = {sets[0]: "first"}
def use(name):
    return [hvd.allreduce_(array("q", [first + 1]), op=hvd.Sum, name=name, process_set=each)[0]
            for each in sets if hvd.rank() in each.ranks]
before = use("before")
@hvd.elastic.run
def train(state):
    while state.step < 6:
        if state.step == 3 and first == 1:
            die()
        if state.step == 3 and hvd.elastic.membership() == 2:
            state.sums = use("after")  # the first operation
        total()
        state.step += 1
        state.commit()
state = Watched(step=0, sums=None)
train(state)
try:
    hvd.barrier(process_set=sets[2])
except hvd.ProcessSetError as why:
    say(first, before, state.sums, [each.ranks for each in sets], [each.process_set_id for each in sets],
        found[sets[0]], hvd.add_process_set([0]).process_set_id, sets[0].rank() if first != 3 else None, str(why))
""", 4)  # fmt: skip
        sentence = "process set 3 (rank 1 of membership 1) has no rank that is left"
        rest = [[[0, 1], [2], []], [1, 2, 3], "first", 4]
        self.assertEqual(sorted(lines), [
            [0, [4], [4], *rest, 0, sentence],
            [2, [4], [4], *rest, 1, sentence],
            [3, [6], [4], *rest, None, sentence],
        ], ended.stderr)  # fmt: skip

    def test_process_sets_of_newcomers(self):
        """A rank that comes later has the sets of the others, by init(), by their ranks, or by their numbers."""
        ended, lines = self.job(
            """
old = hvd.elastic.membership() == 1
if old:
    hvd.add_process_set([0])
@hvd.elastic.run
def train(state):
    while hvd.size() < 4:
        total()
        state.step += 1
        if state.step == 3 and hvd.rank() == 0:
            slots(4)
        time.sleep(0.01)
        state.commit()
train(Watched(step=0))
both = hvd.add_process_set([1, 3])
again = None if old else hvd.add_process_set([0]).process_set_id
sums = [hvd.allreduce_(array("q", [1]), op=hvd.Sum, name="sum", process_set=each)[0]
        for each in (*mine, both) if each.included()]
say(hvd.rank(), [each.process_set_id for each in (*mine, both)], again, sums,
    sorted((number, each.ranks) for number, each in hvd.elastic.process_sets().items()))
""", 3, begin=TRAIN.replace("hvd.init()", GIVEN))  # fmt: skip
        every = [[0, [0, 1, 2, 3]], [1, [0, 1]], [2, [1]], [3, [0]], [4, [1, 3]]]
        self.assertEqual(sorted(line for line in lines if line[0] != "sync"), [
            [0, [1, 2, 4], None, [2], every],
            [1, [1, 2, 4], None, [2, 1, 2], every],
            [2, [1, 2, 4], None, [], every],
            [3, [1, 2, 4], 3, [2], every],
        ], ended.stderr)  # fmt: skip

    @slow
    def test_nobody_has_the_state(self):
        """The last rank that has it dies while it gives it to a newcomer, which must not begin from nothing."""
        ended = run_elastic(
            TRAIN
            + """
class Giving(hvd.elastic.ObjectState):
    def sync_from(self, root, among):
        if hvd.elastic.membership() == 2 and hvd.rank() == 0:
            die()
        super().sync_from(root, among)
@hvd.elastic.run
def train(state):
    while hvd.size() < 2:
        total()
        state.step += 1
        if state.step == 3:
            slots(2)
        time.sleep(0.01)
        state.commit()
train(Giving(step=0))
""", 1)  # fmt: skip
        self.assertEqual(ended.returncode, 1, ended.stderr)
        self.assertIn("no rank is left that has the state of the training: all of them came later", ended.stderr)

    @slow
    def test_a_check_without_a_commit(self):
        """Steps after the last commit are kept, also for the newcomer, and a later death does not undo them."""
        ended, lines = self.job(
            """
@hvd.elastic.run
def train(state):
    while state.step < 2000:
        total()
        if hvd.size() == 3 and first == 1:
            die()
        state.step += 1
        if state.step == 2:
            state.commit()
            state.grown = 0
        if state.step == 3 and hvd.rank() == 0:
            slots(3)
        if hvd.elastic.membership() == 1:
            state.grown = state.step
            time.sleep(0.01)
        if hvd.elastic.membership() == 3:
            return state.step, state.grown
        state.check_host_updates()
say(*train(Watched(step=0, grown=0)))
""", 2)  # fmt: skip
        self.assertEqual(len(lines) - len([line for line in lines if line[0] == "sync"]), 2, ended.stderr)
        (step, grown), other = [line for line in lines if line[0] != "sync"]
        self.assertEqual([step, grown], other)
        self.assertEqual(step, grown + 1)  # the step that the death broke was done again
        self.assertGreater(grown, 3)

    @slow
    def test_a_class_with_a_sync_of_its_own(self):
        """As scripts for Horovod have it: every rank calls sync(), and takes what rank 0 has."""
        _, lines = self.job(
            """
class Own(hvd.elastic.State):
    def __init__(self):
        super().__init__()
        self.step = self.saved = self.syncs = 0
    def save(self):
        self.saved = self.step
    def restore(self):
        self.step = self.saved
    def sync(self):
        self.syncs += 1
        step = array("q", [self.step])
        hvd.broadcast_(step, 0, name="own")
        self.step = self.saved = step[0]
@hvd.elastic.run
def train(state):
    while state.step < 6:
        total()
        state.step += 1
        if state.step == 4 and first == 0:
            die()
        state.commit()
state = Own()
train(state)
say(state.step, state.syncs, hvd.size())
""", 3)  # fmt: skip
        self.assertEqual(lines, [[6, 2, 2]] * 2)


class OtherJobs(unittest.TestCase):
    def test_a_job_that_is_not_elastic(self):
        ended = run_program(
            """
            import os, hvdrun as hvd
            from horovod.common.elastic import ObjectState, run_fn, notification_manager
            hvd.init()
            @hvd.elastic.run
            def train(state):
                state.step += 1
                state.commit()
                return state.step, hvd.elastic.membership(), hvd.elastic.membership_changed()
            os.write(1, (repr(train(ObjectState(None, None, step=1))) + "\\n").encode())
            """
        )
        self.assertEqual((ended.returncode, ended.stdout), (0, "(2, 0, False)\n" * 2), ended.stderr)

    def test_an_error_of_a_job_that_is_not_elastic(self):
        ended = run_program(
            """
            import os, hvdrun as hvd
            hvd.init()
            @hvd.elastic.run
            def train(state):
                if hvd.rank() == 1:
                    os._exit(3)
                hvd.barrier()
            train(hvd.elastic.ObjectState())
            """
        )
        self.assertEqual(ended.returncode, 3, ended.stderr)
        self.assertIn("HorovodInternalError", ended.stderr)
