"""Groups of the backend hvd: some of the ranks, several groups of the same ranks, groups that come and go."""

# JOB = torch

from __future__ import annotations

import datetime
import unittest

import hvdrun as hvd_base
import hvdrun.c10d
from c10d_case import C10dCase, dist, torch
from hvdrun.c10d import gpu


class Groups(C10dCase):
    def test_some_of_the_ranks(self):
        for ranks in [[0], list(range(self.size)), list(range(0, self.size, 2)), [self.size - 1, 0]]:
            ranks = sorted(set(ranks))
            group = dist.new_group(ranks)
            if self.rank in ranks:
                x = torch.full((100,), float(self.rank + 1))
                dist.all_reduce(x, group=group)
                self.same(x, torch.full((100,), float(sum(ranks) + len(ranks))))
                y = torch.full((3,), float(self.rank))
                dist.broadcast(y, ranks[-1], group=group)
                self.same(y, torch.full((3,), float(ranks[-1])))
                outputs = [torch.empty(2) for _ in ranks]
                dist.all_gather(outputs, torch.full((2,), float(self.rank)), group=group)
                self.assertEqual([output[0].item() for output in outputs], ranks)
                self.assertEqual(dist.get_world_size(group), len(ranks))
                if len(ranks) > 1 and self.rank == ranks[0]:
                    dist.send(torch.ones(2), ranks[-1], group=group)
                if len(ranks) > 1 and self.rank == ranks[-1]:
                    dist.recv(x[:2], ranks[0], group=group)
                dist.destroy_process_group(group)
        dist.barrier()

    def test_groups_of_the_same_ranks_do_not_meet(self):
        groups = [dist.new_group() for _ in range(3)]
        works, tensors = [], []
        order = groups if self.rank % 2 == 0 else groups[::-1]  # ranks begin in different orders
        for number, group in enumerate(order):
            number = number if order is groups else len(groups) - 1 - number
            tensors.append(torch.full((10,), float(number)))
            works.append((number, dist.all_reduce(tensors[-1], group=group, async_op=True)))
        for (number, work), tensor in zip(works, tensors, strict=True):
            work.wait()
            self.same(tensor, torch.full((10,), float(number * self.size)))
        for group in groups:
            dist.destroy_process_group(group)

    def test_groups_come_and_go(self):
        self.needs_torch(2, 8)  # an older one does not tell the group that it was destroyed
        sets = len(hvd_base._hvd.set_ids())
        for number in range(150):
            group = dist.new_group(sorted({0, self.size - 1}) if number % 2 else None)
            if number % 2 == 0 or self.rank in (0, self.size - 1):
                x = torch.ones(1)
                dist.all_reduce(x, group=group)
                self.assertEqual(x.item(), dist.get_world_size(group))
                dist.destroy_process_group(group)
        self.assertEqual(len(hvd_base._hvd.set_ids()), sets)

    def test_only_members_call(self):
        self.needs_torch(2, 1)
        if self.rank < 2:
            ranks = list(range(min(2, self.size)))
            group = dist.new_group(ranks, use_local_synchronization=True)
            x = torch.ones(5)
            dist.all_reduce(x, group=group)
            self.same(x, torch.full((5,), float(len(ranks))))
            dist.destroy_process_group(group)

    def test_subgroups(self):
        self.needs_torch(2, 0)
        mine, groups = dist.new_subgroups(2 if self.size % 2 == 0 else 1)
        x = torch.ones(1)
        dist.all_reduce(x, group=mine)
        self.assertEqual(x.item(), dist.get_world_size(mine))
        self.assertEqual(len(groups), self.size // dist.get_world_size(mine))
        dist.destroy_process_group(mine)

    def test_a_device_mesh(self):
        self.needs_torch(2, 2)
        self.needs(4)
        mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        x = torch.full((3,), float(self.rank))
        dist.all_reduce(x, group=mesh["tp"].get_group())
        self.assertEqual(x[0].item(), {0: 1, 1: 1, 2: 5, 3: 5}[self.rank])
        dist.all_reduce(x, group=mesh["dp"].get_group())
        self.assertEqual(x[0].item(), 6)

    def test_monitored_barrier(self):
        self.needs(2)
        hvdrun.c10d.monitored_barrier()
        group = dist.new_group()
        if self.rank == 0:
            with self.assertRaisesRegex(RuntimeError, f"not there after 0.3 s: rank {self.size - 1} of the group"):
                hvdrun.c10d.monitored_barrier(group, datetime.timedelta(seconds=0.3), wait_all_ranks=True)
        elif self.rank != self.size - 1:
            with self.assertRaisesRegex(RuntimeError, f"rank {self.rank} was not let through by rank 0"):
                hvdrun.c10d.monitored_barrier(group, datetime.timedelta(seconds=0.3))
        dist.barrier()
        with self.assertRaisesRegex(ValueError, "for groups of the backend hvd"):
            hvdrun.c10d.monitored_barrier(self.gloo)
        # messages that have found nobody are pending still: those of that turn are made up for
        if self.rank == self.size - 1:
            group._mark(hvdrun.c10d.calls.SEND, 0, "0.here").wait()
        for rank in range(1, self.size - 1) if self.rank == 0 else ():
            group._mark(hvdrun.c10d.calls.SEND, rank, "0.go").wait()
        if self.rank == self.size - 1:
            next(group._monitored)
        hvdrun.c10d.monitored_barrier(group)  # a late rank spoils no later turn
        dist.barrier()

    def test_torch_sees_the_backend(self):
        self.assertEqual(dist.get_backend(), "hvd")
        self.assertEqual((dist.get_rank(), dist.get_world_size()), (self.rank, self.size))


class Gpus(C10dCase):
    """Without a GPU: tensors say that they are on one, and the group of nccl is a double."""

    class Tensor(torch.Tensor):
        is_cuda = True

    class Double:
        def __getattr__(self, name):
            return lambda *arguments, **options: (name, len(arguments), options)

    def test_tensors_of_gpus_go_to_another_group(self):
        group = dist.distributed_c10d._get_default_group()
        methods = gpu.methods_of(type(group))
        here, there = torch.ones(2), torch.ones(2).as_subclass(self.Tensor)
        self.assertFalse(gpu.is_on_gpu(([[here]], there)))
        self.assertFalse(gpu.is_on_gpu(([], None, 3)))
        before, group._gpu_group = group._gpu_group, self.Double()
        try:
            self.assertEqual(methods["gather"](group, [], [there], "options"), ("gather", 3, {}))
            self.assertEqual(methods["allgather"](group, [[there]], [there]), ("allgather", 2, {}))
            self.assertEqual(methods["send"](group, [there], 1, 0), ("send", 3, {}))
            methods["allreduce"](group, [here], dist.distributed_c10d.AllreduceOptions()).wait()
        finally:
            group._gpu_group = before
        self.same(here, torch.full((2,), float(self.size)))


if __name__ == "__main__":
    unittest.main()
