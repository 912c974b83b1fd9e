"""Values of every operation: dtypes, shapes, forms, errors; against torch's own arithmetic."""
# JOB = torch
# LIMIT = 120

from __future__ import annotations

import itertools
import unittest

from torch_case import FLOATS, INTEGERS, TorchCase, hvd, torch

SHAPES = [[], [0], [1], [17], [3, 5], [2, 3, 4]]
ROWS = [3, 1, 4, 2]


class Reductions(TorchCase):
    def test_allreduce_of_all_dtypes_and_ops(self):
        everyone = list(range(self.size))
        for dtype, shape, op in itertools.product(
            INTEGERS + FLOATS, SHAPES, [hvd.Sum, hvd.Average, hvd.Min, hvd.Max, hvd.Product]
        ):
            if op == hvd.Average and not dtype.is_floating_point and dtype in (torch.uint8, torch.int8):
                continue  # the sum wraps before it is divided
            with self.subTest(dtype=dtype, shape=shape, op=op):
                own = self.of_rank(self.rank, shape, dtype)
                before = own.clone()
                expected = self.reduced(shape, dtype, op, everyone)
                tolerance = 1e-2 if dtype in (torch.float16, torch.bfloat16) else 1e-6
                self.same(hvd.allreduce(own, op=op), expected, tolerance)
                self.same(own, before)
                self.same(hvd.synchronize(hvd.allreduce_async(own, op=op)), expected, tolerance)
                in_place = own.clone()
                self.assertIs(hvd.allreduce_(in_place, op=op), in_place)
                self.same(in_place, expected, tolerance)
                started = own.clone()
                self.assertIs(hvd.synchronize(hvd.allreduce_async_(started, op=op)), started)
                self.same(started, expected, tolerance)

    def test_average_and_op(self):
        own = torch.ones(2) * self.rank
        with self.assertRaises(ValueError):
            hvd.allreduce(own, average=True, op=hvd.Sum)
        with self.assertWarns(DeprecationWarning):
            total = hvd.allreduce(own, average=False)
        self.same(total, torch.ones(2) * sum(range(self.size)))
        with self.assertWarns(DeprecationWarning):
            self.same(hvd.allreduce(own, average=True), total / self.size)
        self.same(hvd.allreduce(own), total / self.size)

    def test_factors(self):
        own = self.of_rank(self.rank, [9], torch.float64)
        total = self.of_all([9], torch.float64, list(range(self.size))).sum(0)
        result = hvd.allreduce(own, op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0)
        self.same(result, total * 1.5, 1e-12)
        result = hvd.allreduce(own, prescale_factor=0.25, postscale_factor=4.0)
        self.same(result, total / self.size, 1e-12)
        values = torch.arange(1000, dtype=torch.float32)
        for factors in ({"prescale_factor": 0.1}, {"postscale_factor": 0.1}):
            result = hvd.allreduce(values, op=hvd.Max, **factors)
            self.assertTrue(torch.equal(result, values * torch.tensor(0.1)), "a factor that is no float32")

    def test_groups_of_several_dtypes(self):
        everyone = list(range(self.size))
        kinds = [
            ([3], torch.float32),
            ([2, 2], torch.int32),
            ([], torch.float32),
            ([0], torch.float64),
            ([5], torch.int32),
        ]
        own = [self.of_rank(self.rank, shape, dtype) for shape, dtype in kinds]
        expected = [self.reduced(shape, dtype, hvd.Sum, everyone) for shape, dtype in kinds]
        for result in (
            hvd.grouped_allreduce(own, op=hvd.Sum),
            hvd.synchronize(hvd.grouped_allreduce_async(own, op=hvd.Sum)),
        ):
            for actual, wanted in zip(result, expected, strict=True):
                self.same(actual, wanted, 1e-6)
        copies = [tensor.clone() for tensor in own]
        for actual, copy, wanted in zip(hvd.grouped_allreduce_(copies, op=hvd.Sum), copies, expected, strict=True):
            self.assertIs(actual, copy)
            self.same(copy, wanted, 1e-6)
        self.assertEqual(hvd.grouped_allreduce([]), [])

    def test_tensors_that_are_not_contiguous(self):
        own = self.of_rank(self.rank, [4, 6], torch.float32)
        total = self.of_all([4, 6], torch.float32, list(range(self.size))).sum(0)
        self.same(hvd.allreduce(own.t(), op=hvd.Sum), total.t().contiguous())
        whole = own.clone()
        part = whole[:, ::2]
        self.assertIs(hvd.allreduce_(part, op=hvd.Sum), part)
        self.same(part.contiguous(), total[:, ::2].contiguous())
        self.same(whole[:, 1::2].contiguous(), own[:, 1::2].contiguous())
        image = torch.ones(2, 3, 4, 4).contiguous(memory_format=torch.channels_last) * self.rank
        self.same(hvd.broadcast_(image, 0).contiguous(), torch.zeros(2, 3, 4, 4))
        group = [own.clone().t(), own.clone()[1:, 1:]]
        hvd.grouped_allreduce_(group, op=hvd.Sum)
        self.same(group[1].contiguous(), total[1:, 1:].contiguous())

    def test_many_under_way_and_poll(self):
        handles = [
            hvd.allreduce_async(torch.full([100], float(self.rank + i)), op=hvd.Sum, name=f"many.{i}")
            for i in range(50)
        ]
        for i in reversed(range(50)):
            result = hvd.synchronize(handles[i])
            self.assertTrue(hvd.poll(handles[i]))
            self.assertEqual(float(result[0]), sum(range(self.size)) + self.size * i)
        with self.assertRaises(ValueError):
            hvd.synchronize(7)

    def test_compression(self):
        own = self.of_rank(self.rank, [11], torch.float32)
        total = self.of_all([11], torch.float32, list(range(self.size))).sum(0)
        for compression in (hvd.Compression.fp16, hvd.Compression.bf16, hvd.Compression.none):
            self.same(hvd.allreduce(own, op=hvd.Sum, compression=compression), total, 1e-2)
            self.same(hvd.grouped_allreduce([own], op=hvd.Sum, compression=compression)[0], total, 1e-2)
        whole = torch.arange(5)
        small, context = hvd.Compression.fp16.compress(whole)
        self.assertIs(small, whole)
        small, context = hvd.Compression.fp16.compress(own)
        self.assertEqual(small.dtype, torch.float16)
        self.same(hvd.Compression.fp16.decompress(small, context), own)

    def test_adasum(self):
        own = torch.ones(8, dtype=torch.float64)
        if self.size & (self.size - 1):
            with self.assertRaises(NotImplementedError):
                hvd.allreduce(own, op=hvd.Adasum)
            return
        self.same(hvd.allreduce(own, op=hvd.Adasum), own, 1e-9)  # equal vectors: their average
        orthogonal = torch.zeros(self.size, dtype=torch.float64)
        orthogonal[self.rank] = 2
        self.same(hvd.allreduce(orthogonal, op=hvd.Adasum), torch.full([self.size], 2.0, dtype=torch.float64), 1e-9)
        self.same(hvd.grouped_allreduce([own, orthogonal], op=hvd.Adasum)[0], own, 1e-9)


class Movements(TorchCase):
    def test_broadcast(self):
        for dtype, shape, root in itertools.product(INTEGERS + FLOATS + [torch.bool], SHAPES, range(self.size)):
            with self.subTest(dtype=dtype, shape=shape, root=root):
                own = self.of_rank(self.rank, shape, dtype)
                before, expected = own.clone(), self.of_rank(root, shape, dtype)
                self.same(hvd.broadcast(own, root), expected)
                self.same(own, before)
                self.same(hvd.synchronize(hvd.broadcast_async(own, root)), expected)
                self.assertIs(hvd.broadcast_(own, root), own)
                self.same(own, expected)

    def test_allgather(self):
        rows = [ROWS[rank % 4] for rank in range(self.size)]
        for dtype, rest in itertools.product(INTEGERS + FLOATS + [torch.bool], [[], [5], [2, 3], [0]]):
            with self.subTest(dtype=dtype, rest=rest):
                own = self.of_rank(self.rank, [rows[self.rank], *rest], dtype)
                expected = torch.cat([self.of_rank(rank, [rows[rank], *rest], dtype) for rank in range(self.size)])
                self.same(hvd.allgather(own), expected)
                self.same(hvd.synchronize(hvd.allgather_async(own)), expected)

    def test_allgather_of_nothing_and_of_numbers(self):
        own = torch.full([self.rank, 3], self.rank)
        expected = torch.cat([torch.full([rank, 3], rank) for rank in range(self.size)])
        self.same(hvd.allgather(own), expected)
        self.same(hvd.allgather(torch.empty(0, 3)), torch.empty(0, 3))
        self.same(hvd.allgather(torch.tensor(float(self.rank))), torch.arange(float(self.size)))

    def test_results_are_ordinary_tensors(self):
        gathered = hvd.allgather(torch.ones(2, 2) * self.rank)
        gathered += 1
        gathered.resize_(1)
        self.assertEqual(float(gathered[0]), 1.0)

    def test_grouped_allgather(self):
        own = [torch.full([self.rank + 1], self.rank), torch.full([2, 2], float(self.rank))]
        for result in (hvd.grouped_allgather(own), hvd.synchronize(hvd.grouped_allgather_async(own, name="group"))):
            self.same(result[0], torch.cat([torch.full([rank + 1], rank) for rank in range(self.size)]))
            self.same(result[1], torch.cat([torch.full([2, 2], float(rank)) for rank in range(self.size)]))

    def test_alltoall(self):
        for dtype in INTEGERS + FLOATS:
            own = torch.cat([torch.full([self.rank + 1, 2], to) for to in range(self.size)]).to(dtype)
            splits = torch.tensor([self.rank + 1] * self.size)
            rows, received = hvd.alltoall(own, splits)
            self.same(rows, torch.full([sum(range(1, self.size + 1)), 2], self.rank).to(dtype))
            self.same(received, torch.arange(1, self.size + 1, dtype=torch.int32))
            self.same(hvd.synchronize(hvd.alltoall_async(own, splits))[0], rows)
        even = torch.arange(self.size * 2) + 100 * self.rank
        expected = torch.cat([torch.arange(2) + 2 * self.rank + 100 * rank for rank in range(self.size)])
        self.same(hvd.alltoall(even), expected)
        self.same(hvd.synchronize(hvd.alltoall_async(even)), expected)
        self.same(hvd.alltoall(even, [2] * self.size)[0], expected)

    def test_alltoall_with_nothing(self):
        splits = [3 if to == 0 else 0 for to in range(self.size)]
        rows, received = hvd.alltoall(torch.full([3], self.rank), splits)
        self.assertEqual(rows.numel(), 3 * self.size if self.rank == 0 else 0)
        self.assertEqual(received.tolist(), [3 if self.rank == 0 else 0] * self.size)

    def test_wrong_splits(self):
        own = torch.ones(self.size)
        for splits in (
            [1] * (self.size + 1),
            [2] * self.size,
            [-1] * self.size,
            torch.ones(self.size),
            torch.ones(1, self.size),
        ):
            with self.assertRaises(ValueError):
                hvd.alltoall(own, splits)
        with self.assertRaises(ValueError):
            hvd.alltoall(torch.tensor(1.0))
        if self.size > 1:
            with self.assertRaises(ValueError):
                hvd.alltoall(torch.ones(self.size + 1))

    def test_reducescatter(self):
        for dtype, rows, op in itertools.product(
            [torch.int32, torch.int64, *FLOATS], [self.size * 2, self.size + 1, 1, 0], [hvd.Sum, hvd.Average]
        ):
            with self.subTest(dtype=dtype, rows=rows, op=op):
                own = self.of_rank(self.rank, [rows, 3], dtype)
                total = self.of_all([rows, 3], dtype, list(range(self.size))).to(torch.float64).sum(0)
                if op == hvd.Average:
                    total = total / self.size
                expected = list(torch.tensor_split(total, self.size))[self.rank].to(dtype)
                tolerance = 1e-2 if dtype in (torch.float16, torch.bfloat16) else 1e-6
                self.same(hvd.reducescatter(own, op=op), expected, tolerance)
                self.same(hvd.synchronize(hvd.reducescatter_async(own, op=op)), expected, tolerance)
        with self.assertRaises(ValueError):
            hvd.reducescatter(torch.tensor(1.0))
        with self.assertRaises(NotImplementedError):
            hvd.reducescatter(torch.ones(2), op=hvd.Max)

    def test_reducescatter_factors_and_groups(self):
        own = [torch.ones(self.size, 2) * self.rank, torch.full([self.size * 2], self.rank)]
        total = sum(range(self.size))
        result = hvd.grouped_reducescatter(own, op=hvd.Sum)
        self.same(result[0], torch.full([1, 2], float(total)))
        self.same(result[1], torch.full([2], total))
        result = hvd.synchronize(hvd.grouped_reducescatter_async(own, op=hvd.Sum, name="group"))
        self.same(result[1], torch.full([2], total))
        scaled = hvd.reducescatter(own[0], op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0)
        self.same(scaled, torch.full([1, 2], 2.0 * total))


class ProcessSets(TorchCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if cls.size < 2:
            raise unittest.SkipTest("needs 2 ranks")
        cls.even = hvd.add_process_set(list(range(0, cls.size, 2)))
        cls.odd = hvd.add_process_set(hvd.ProcessSet(list(range(1, cls.size, 2))))
        cls.own = cls.odd if cls.rank % 2 else cls.even
        cls.ranks = list(range(cls.rank % 2, cls.size, 2))

    @classmethod
    def tearDownClass(cls):
        hvd.remove_process_set(cls.even)
        hvd.remove_process_set(cls.odd)

    def test_every_operation_in_a_set(self):
        mine = torch.ones(4) * self.rank
        total = float(sum(self.ranks))
        self.same(hvd.allreduce(mine, op=hvd.Sum, process_set=self.own), torch.ones(4) * total)
        self.same(hvd.allreduce_(mine.clone(), process_set=self.own), torch.ones(4) * (total / len(self.ranks)))
        self.same(hvd.grouped_allreduce([mine, mine], op=hvd.Sum, process_set=self.own)[1], torch.ones(4) * total)
        self.same(hvd.allgather(mine[:1], process_set=self.own), torch.tensor([float(rank) for rank in self.ranks]))
        for root in self.ranks:
            self.same(hvd.broadcast(mine, root, process_set=self.own), torch.ones(4) * root)
        rows = torch.ones(len(self.ranks), 2) * self.rank
        self.same(hvd.reducescatter(rows, op=hvd.Sum, process_set=self.own), torch.full([1, 2], total))
        self.same(
            hvd.alltoall(rows, process_set=self.own)[:, 0].contiguous(),
            torch.tensor([float(rank) for rank in self.ranks]),
        )
        hvd.barrier(process_set=self.own)

    def test_a_foreign_set_and_root(self):
        other = self.even if self.rank % 2 else self.odd
        with self.assertRaises(ValueError):
            hvd.allreduce(torch.ones(1), process_set=other)
        with self.assertRaises(ValueError):
            hvd.broadcast(torch.ones(1), (self.rank + 1) % 2, process_set=self.own)
        self.assertTrue(self.own.included())
        self.assertFalse(other.included())
        self.assertEqual(self.own.size(), len(self.ranks))


class Errors(TorchCase):
    def test_what_cannot_be_sent(self):
        for wrong in (
            3,
            [1.0],
            None,
            torch.ones(2, dtype=torch.complex64),
            torch.eye(2).to_sparse(),
            torch.empty(2, device="meta"),
        ):
            for call in (
                hvd.allreduce,
                hvd.allreduce_,
                hvd.allreduce_async,
                hvd.allgather,
                lambda t: hvd.broadcast(t, 0),
                hvd.reducescatter,
                hvd.alltoall,
            ):
                with self.assertRaises(TypeError):
                    call(wrong)

    def test_ranks_that_disagree(self):
        self.needs(2)
        with self.assertRaisesRegex(hvd.HorovodInternalError, "differ.count"):
            hvd.allreduce(torch.ones(3 + self.rank), name="differ.count")
        with self.assertRaises(hvd.HorovodInternalError):
            hvd.allreduce(torch.ones(3, dtype=torch.float32 if self.rank else torch.int32), name="differ.dtype")
        with self.assertRaises(hvd.HorovodInternalError):
            hvd.allreduce(torch.ones(3), op=hvd.Sum if self.rank else hvd.Max, name="differ.op")
        with self.assertRaises(hvd.HorovodInternalError):
            hvd.allgather(torch.ones(3, 2 + self.rank), name="differ.rows")
        with self.assertRaises(hvd.HorovodInternalError):
            hvd.broadcast(torch.ones(3), self.rank, name="differ.root")
        self.same(hvd.allreduce(torch.ones(1), op=hvd.Sum), torch.tensor([float(self.size)]))

    def test_a_name_that_is_under_way(self):
        self.needs(2)
        if self.rank == 0:
            first = hvd.allreduce_async(torch.ones(2), name="twice")
            with self.assertRaisesRegex(ValueError, "twice"):
                hvd.allreduce_async(torch.ones(2), name="twice")
            hvd.barrier()
            hvd.synchronize(first)
        else:
            hvd.barrier()
            hvd.allreduce(torch.ones(2), name="twice")
        kinds = [hvd.allreduce_async(torch.ones(1), name="shared"), hvd.allgather_async(torch.ones(1), name="shared")]
        for handle in kinds:
            hvd.synchronize(handle)


if __name__ == "__main__":
    unittest.main()
