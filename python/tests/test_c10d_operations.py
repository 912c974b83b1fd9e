"""torch.distributed's operations on the backend hvd, against gloo's results and torch's own arithmetic."""

# JOB = torch

from __future__ import annotations

import datetime
import unittest
import warnings

from c10d_case import C10dCase, dist, torch
from torch_case import FLOATS, INTEGERS

warnings.filterwarnings("ignore", category=FutureWarning)  # newer names of the same functions

OPS = ["SUM", "PRODUCT", "MIN", "MAX"]
SHAPES = [[], [0], [1], [7], [3, 5], [300, 400]]


class Reductions(C10dCase):
    def test_allreduce_is_gloo_s(self):
        for dtype in [torch.uint8, torch.int8, torch.int32, torch.int64, torch.float16, torch.float32, torch.float64]:
            for name in OPS:
                for shape in SHAPES:
                    ours, theirs = self.of_rank(self.rank, shape, dtype), self.of_rank(self.rank, shape, dtype)
                    dist.all_reduce(ours, getattr(dist.ReduceOp, name))
                    dist.all_reduce(theirs, getattr(dist.ReduceOp, name), group=self.gloo)
                    self.same(ours, theirs)

    def test_bits(self):
        for dtype in INTEGERS:
            for name in ["BAND", "BOR", "BXOR"]:
                ours = self.of_rank(self.rank, [50], dtype)
                expected = self.of_rank(0, [50], dtype)
                for rank in range(1, self.size):
                    other = self.of_rank(rank, [50], dtype)
                    expected = {"BAND": expected & other, "BOR": expected | other, "BXOR": expected ^ other}[name]
                dist.all_reduce(ours, getattr(dist.ReduceOp, name))
                self.same(ours, expected)
        with self.assertRaisesRegex(RuntimeError, "BAND is for integers and bool, not for torch.float32"):
            dist.all_reduce(torch.zeros(3), dist.ReduceOp.BAND)

    def test_what_gloo_lacks(self):
        x = torch.full((6,), float(self.rank))
        dist.all_reduce(x, dist.ReduceOp.AVG)
        self.same(x, torch.full((6,), (self.size - 1) / 2))
        x = torch.full((6,), float(self.rank + 1), dtype=torch.bfloat16)
        dist.all_reduce(x)
        self.same(x, torch.full((6,), self.size * (self.size + 1) / 2, dtype=torch.bfloat16))
        self.needs_torch(2, 0)
        for factor in [0.5, torch.tensor(0.5)]:
            x = torch.full((6,), float(self.rank + 1))
            dist.all_reduce(x, torch._C._distributed_c10d._make_nccl_premul_sum(factor))
            self.same(x, torch.full((6,), self.size * (self.size + 1) / 4))

    def test_bool_and_complex(self):
        x = torch.tensor([self.rank == 0, True, False])
        for name, want in [("SUM", [True, True, False]), ("PRODUCT", [self.size == 1, True, False]),
                           ("MIN", [self.size == 1, True, False]), ("MAX", [True, True, False])]:
            y = x.clone()
            dist.all_reduce(y, getattr(dist.ReduceOp, name))
            self.assertEqual(y.tolist(), want, name)
        z = torch.complex(torch.arange(5.0) + self.rank, torch.arange(5.0) * 2)
        dist.all_reduce(z)
        total = sum(torch.complex(torch.arange(5.0) + rank, torch.arange(5.0) * 2) for rank in range(self.size))
        self.same(z, total)
        with self.assertRaisesRegex((RuntimeError, ValueError), "complex tensors"):
            dist.all_reduce(z, dist.ReduceOp.PRODUCT)

    def test_tensors_that_are_not_contiguous(self):
        whole = torch.arange(24.0).view(4, 6) * (self.rank + 1)
        part = whole.t()[1:5, ::2]
        dist.all_reduce(part)
        expected = (torch.arange(24.0).view(4, 6) * (self.size * (self.size + 1) // 2)).t()[1:5, ::2]
        self.same(part, expected)
        self.assertEqual(whole[0, 0], 0)
        self.assertEqual(whole[1, 0], 6 * (self.rank + 1))

    def test_reduce(self):
        for root in range(self.size):
            for dtype in [torch.int64, torch.float32]:
                x = self.of_rank(self.rank, [40], dtype)
                dist.reduce(x, root)
                if self.rank == root:
                    self.same(x, self.of_all([40], dtype, list(range(self.size))).sum(0).to(dtype))

    def test_reduce_scatter(self):
        for dtype in [torch.int32, torch.float16, torch.float32]:
            inputs = [self.of_rank(self.rank + part, [5, 3], dtype) for part in range(self.size)]
            total = sum(self.of_rank(rank + self.rank, [5, 3], dtype).double() for rank in range(self.size))
            expected = total.to(dtype)
            output = torch.empty(5, 3, dtype=dtype)
            dist.reduce_scatter(output, inputs)
            self.same(output, expected)
            output.zero_()
            work = dist.reduce_scatter(output, inputs, async_op=True)
            work.wait()
            self.same(output, expected)
            if hasattr(dist, "reduce_scatter_tensor"):
                output.zero_()
                dist.reduce_scatter_tensor(output, torch.cat(inputs))
                self.same(output, expected)

    def test_reduce_scatter_of_unequal_parts(self):
        inputs = [torch.full((part + 1,), float(self.rank)) for part in range(self.size)]
        output = torch.empty(self.rank + 1)
        dist.reduce_scatter(output, inputs, dist.ReduceOp.MAX)
        self.same(output, torch.full((self.rank + 1,), float(self.size - 1)))
        self.assertEqual([each.unique().item() for each in inputs], [self.rank] * self.size)

    def test_coalesced(self):
        tensors = [torch.full((n,), float(self.rank), dtype=dtype) for n, dtype in
                   [(3, torch.float32), (1000, torch.float32), (0, torch.float32), (5, torch.float32)]]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            dist.all_reduce_coalesced(tensors)
            total = self.size * (self.size - 1) / 2
            for each in tensors:
                self.same(each, torch.full_like(each, total))
            # torch's own function wants one dtype, its C++ code does not
            mixed = [torch.full((size,), self.rank, dtype=dtype) for size, dtype in
                     [(4, torch.float32), (5, torch.int64), (6, torch.float32)]]
            dist.distributed_c10d._get_default_group().allreduce_coalesced(
                mixed, dist.distributed_c10d.AllreduceCoalescedOptions()
            ).wait()
        self.assertEqual([each.sum().item() for each in mixed], [4 * total, 5 * total, 6 * total])


    def test_premultiplied_integers(self):
        self.needs_torch(2, 0)
        x = torch.tensor([1, 2, 3], dtype=torch.int32)
        dist.all_reduce(x, torch._C._distributed_c10d._make_nccl_premul_sum(torch.tensor(2.0)))
        self.same(x, torch.tensor([2, 4, 6], dtype=torch.int32) * self.size)

    def test_reduce_scatter_of_nothing_and_in_place(self):
        output = torch.empty(0)
        dist.reduce_scatter(output, [torch.empty(0)] * self.size)
        x = torch.arange(self.size * 3.0)
        whole = x * self.size
        group = dist.distributed_c10d._get_default_group()
        group._reduce_scatter_base(x[self.rank * 3 : self.rank * 3 + 3], x).wait()
        self.same(x[self.rank * 3 : self.rank * 3 + 3], whole[self.rank * 3 : self.rank * 3 + 3])

    def test_calls_of_the_group_without_options(self):
        group = dist.distributed_c10d._get_default_group()
        x = torch.ones(2)
        group.allreduce(x).wait()
        group.allreduce([x], dist.ReduceOp.MAX).wait()
        self.same(x, torch.full((2,), float(self.size)))
        y = torch.full((2,), float(self.rank))
        group.broadcast(y, root=self.size - 1).wait()
        self.same(y, torch.full((2,), float(self.size - 1)))
        outputs = [torch.empty(2) for _ in range(self.size)]
        group.allgather(outputs, x).wait()
        self.same(outputs[-1], x)
        group.barrier().wait()


class Copies(C10dCase):
    def test_broadcast(self):
        for dtype in [*INTEGERS, *FLOATS, torch.bool, torch.complex64]:
            for shape in SHAPES:
                root = self.size - 1
                x = self.of_rank(self.rank, shape, torch.int64).to(dtype)
                dist.broadcast(x, root)
                self.same(x, self.of_rank(root, shape, torch.int64).to(dtype))

    def test_allgather(self):
        for dtype in [torch.int8, torch.float16, torch.float32, torch.complex64, torch.bool]:
            for shape in SHAPES:
                x = self.of_rank(self.rank, shape, torch.int64).to(dtype)
                outputs = [torch.empty_like(x) for _ in range(self.size)]
                dist.all_gather(outputs, x)
                for rank, output in enumerate(outputs):
                    self.same(output, self.of_rank(rank, shape, torch.int64).to(dtype))

    def test_allgather_of_unequal_sizes(self):
        outputs = [torch.empty(rank, 2) for rank in range(self.size)]
        dist.all_gather(outputs, torch.full((self.rank, 2), float(self.rank)))
        for rank, output in enumerate(outputs):
            self.same(output, torch.full((rank, 2), float(rank)))

    def test_sizes_that_do_not_fit(self):
        self.needs(2)
        outputs = [torch.empty(4) for _ in range(self.size)]
        mine = torch.ones({0: 3, 1: 5}.get(self.rank, 4))
        with self.assertRaisesRegex(RuntimeError, "rank 0 of the group gives 3 elements, and this rank has room for 4"):
            dist.all_gather(outputs, mine)
        splits = [2] * self.size
        x, output = torch.ones(2 * self.size), torch.empty(2 * self.size)
        if self.rank == 0:
            splits = [1, 3, *[2] * (self.size - 2)]
        if self.rank < 2:
            text = r"rank 0 of the group gives [13] elements, and .* room for 2|elements, and \d come"
            with self.assertRaisesRegex(RuntimeError, text):
                dist.all_to_all_single(output, x, [2] * self.size, splits)
        else:
            dist.all_to_all_single(output, x, [2] * self.size, splits)
        dist.barrier()

    def test_allgather_into_a_tensor(self):
        if not hasattr(dist, "all_gather_into_tensor"):
            self.skipTest("needs all_gather_into_tensor")
        for shape in [(6, 4), (1000, 33)]:
            x = torch.full(shape, float(self.rank))
            output = torch.empty(self.size * shape[0], shape[1])
            dist.all_gather_into_tensor(output, x)
            stacked = torch.empty(self.size, *shape)
            work = dist.all_gather_into_tensor(stacked, x, async_op=True)
            work.wait()
            for rank in range(self.size):
                self.same(stacked[rank], torch.full(shape, float(rank)))
            self.same(output.view_as(stacked), stacked)
        with self.assertRaises((ValueError, RuntimeError)):
            dist.all_gather_into_tensor(torch.empty(3, 5), torch.empty(7))

    def test_gather_and_scatter(self):
        for root in range(self.size):
            x = torch.full((3, 2), float(self.rank))
            outputs = [torch.empty(3, 2) for _ in range(self.size)] if self.rank == root else None
            dist.gather(x, outputs, dst=root)
            for rank, output in enumerate(outputs or []):
                self.same(output, torch.full((3, 2), float(rank)))
            inputs = [torch.full((2, 5), float(part + root)) for part in range(self.size)]
            part = torch.empty(2, 5)
            dist.scatter(part, inputs if self.rank == root else None, src=root)
            self.same(part, torch.full((2, 5), float(self.rank + root)))

    def test_alltoall(self):
        inputs = [torch.full((part + 1, 2), float(10 * self.rank + part)) for part in range(self.size)]
        outputs = [torch.empty(self.rank + 1, 2) for _ in range(self.size)]
        dist.all_to_all(outputs, inputs)
        for rank, output in enumerate(outputs):
            self.same(output, torch.full((self.rank + 1, 2), float(10 * rank + self.rank)))

    def test_alltoall_single(self):
        x = torch.arange(self.size * 4.0).view(self.size * 2, 2) + 100 * self.rank
        output = torch.empty_like(x)
        dist.all_to_all_single(output, x)
        for rank in range(self.size):
            row = torch.arange(self.size * 4.0).view(-1, 2)[2 * self.rank : 2 * self.rank + 2] + 100 * rank
            self.same(output[2 * rank : 2 * rank + 2], row)
        splits = [part + 1 for part in range(self.size)]
        x = torch.full((sum(splits), 3), float(self.rank))
        output = torch.empty(self.size * (self.rank + 1), 3)
        dist.all_to_all_single(output, x, [self.rank + 1] * self.size, splits)
        expected = [float(rank) for rank in range(self.size) for _ in range(self.rank + 1)]
        self.assertEqual(output[:, 0].tolist(), expected)
        with self.assertRaisesRegex(ValueError, "splits"):
            dist.all_to_all_single(output, x, [self.rank + 1] * self.size, [1] * (self.size + 1))

    def test_objects(self):
        everything = [None] * self.size
        dist.all_gather_object(everything, {"rank": self.rank, "long": "x" * 1000 * self.rank})
        self.assertEqual([len(each["long"]) for each in everything], [1000 * rank for rank in range(self.size)])
        pair = [self.rank, "text"] if self.rank == 0 else [None, None]
        dist.broadcast_object_list(pair, 0)
        self.assertEqual(pair, [0, "text"])
        gathered = [None] * self.size if self.rank == 0 else None
        dist.gather_object(("rank", self.rank), gathered, dst=0)
        if self.rank == 0:
            self.assertEqual(gathered, [("rank", rank) for rank in range(self.size)])
        mine = [None]
        dist.scatter_object_list(mine, [[rank] for rank in range(self.size)] if self.rank == 0 else None, 0)
        self.assertEqual(mine, [[self.rank]])


class Works(C10dCase):
    def test_many_at_once(self):
        tensors = [torch.full((n % 50,), float(self.rank)) for n in range(700)]
        works = [dist.all_reduce(each, async_op=True) for each in tensors]
        for work in reversed(works):
            self.assertTrue(work.wait())
            self.assertTrue(work.is_completed())
            self.assertTrue(work.is_success())
        for each in tensors:
            self.same(each, torch.full_like(each, self.size * (self.size - 1) / 2))

    def test_futures(self):
        x = torch.full((1000,), float(self.rank + 1))
        work = dist.all_reduce(x, async_op=True)
        doubled = work.get_future().then(lambda future: future.value()[0] * 2)
        self.same(doubled.wait(), torch.full((1000,), float(self.size * (self.size + 1))))
        self.assertTrue(work.is_completed())
        self.same(work.result()[0], x)
        late = dist.all_reduce(x, async_op=True)
        late.wait()
        self.same(late.get_future().wait()[0], x)

    def test_outputs_are_there_when_it_is_completed(self):
        outputs = [torch.zeros(3) for _ in range(self.size)]
        work = dist.all_gather(outputs, torch.full((3,), float(self.rank + 1)), async_op=True)
        while not work.is_completed():
            pass
        self.same(outputs[-1], torch.full((3,), float(self.size)))
        self.assertTrue(work.is_success())
        self.assertTrue(work.wait())

    def test_a_time_out_leaves_the_operation_pending(self):
        self.needs(2)
        x = torch.ones(3)
        if self.rank == 0:
            work = dist.all_reduce(x, async_op=True)
            with self.assertRaisesRegex(RuntimeError, "pending after 0.1 s"):
                work.wait(datetime.timedelta(seconds=0.1))
            self.assertFalse(work.is_completed())
        dist.barrier(group=self.gloo)
        if self.rank == 0:
            work.wait()
        else:
            dist.all_reduce(x)
        self.same(x, torch.full((3,), float(self.size)))

    def test_ranks_that_disagree(self):
        self.needs(2)
        x = torch.zeros(4 if self.rank == 0 else 5)
        with self.assertRaisesRegex(RuntimeError, r"rank 0.*4|4.*rank 0"):
            dist.all_reduce(x)
        with self.assertRaisesRegex(RuntimeError, "rank 0.*rank|rank.*rank 0"):
            if self.rank == 0:
                dist.all_reduce(x)
            else:
                dist.broadcast(x, 0)
        dist.barrier()


class Messages(C10dCase):
    def test_a_ring(self):
        self.needs(2)
        after, before = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        for shape in SHAPES:
            x, y = self.of_rank(self.rank, shape, torch.float32), torch.empty(shape)
            work = dist.isend(x, after)
            dist.recv(y, before)
            work.wait()
            self.same(y, self.of_rank(before, shape, torch.float32))

    def test_tags_and_order(self):
        self.needs(2)
        if self.rank == 0:
            works = [dist.isend(torch.full((2,), float(n)), 1, tag=n % 2) for n in range(40)]
            for work in works:
                work.wait()
        elif self.rank == 1:
            for tag in [1, 0]:
                for n in range(tag, 40, 2):
                    x = torch.empty(2)
                    self.assertEqual(dist.recv(x, 0, tag=tag), 0)
                    self.same(x, torch.full((2,), float(n)))
        dist.barrier()

    def test_a_batch(self):
        self.needs(2)
        after, before = (self.rank + 1) % self.size, (self.rank - 1) % self.size
        x, y = torch.full((1000,), float(self.rank)), torch.empty(1000)
        works = dist.batch_isend_irecv([dist.P2POp(dist.isend, x, after), dist.P2POp(dist.irecv, y, before)])
        for work in works:
            work.wait()
        self.same(y, torch.full((1000,), float(before)))

    def test_what_cannot_be_sent(self):
        self.needs(2)
        with self.assertRaisesRegex(RuntimeError, "recv without src"):
            dist.recv(torch.empty(1))
        if self.rank < 2:
            with self.assertRaisesRegex(RuntimeError, "rank 0.*rank 1|rank 1.*rank 0"):
                dist.send(torch.zeros(3), 1) if self.rank == 0 else dist.recv(torch.zeros(4), 0)
        dist.barrier()


if __name__ == "__main__":
    unittest.main()
