"""The NumPy face: each operation, dtype and shape against NumPy's own arithmetic."""

import functools

import hvdrun as hvd
from ranks import RANK, SIZE, TOTAL, RankTest, all_values, need_numpy, np, values

need_numpy()

INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
DTYPES = ["bool", *INTEGERS, "float16", "float32", "float64"]
SHAPES = [(), (1,), (7,), (3, 5), (0,), (2, 0, 3), (40, 50, 3)]
REDUCE = {hvd.Sum: np.add, hvd.Min: np.minimum, hvd.Max: np.maximum, hvd.Product: np.multiply}


def near(dtype):
    return {"rtol": 3e-3, "atol": 3e-2} if dtype == "float16" else {"rtol": 1e-5, "atol": 1e-5}


class Combine(RankTest):
    def test_dtypes_and_operations(self):
        for dtype in DTYPES:
            for op, function in REDUCE.items():
                with self.subTest(dtype=dtype, op=op):
                    given = all_values(op, (11,), dtype)
                    wanted = functools.reduce(lambda a, b: function(a, b, dtype=dtype), given)
                    got = hvd.allreduce(given[RANK], op=op)
                    self.assertEqual(got.dtype, np.dtype(dtype))
                    self.equal(got, wanted, **near(dtype))

    def test_shapes(self):
        for shape in SHAPES:
            with self.subTest(shape=shape):
                given = all_values(1, shape, "float64")
                got = hvd.allreduce(given[RANK], name=f"shape {shape}")
                self.assertEqual(got.shape, shape)
                self.equal(got, sum(given) / SIZE)

    def test_average_of_integers_is_cut(self):
        got = hvd.allreduce(np.array([RANK + 1, -RANK - 1, 0]))
        self.assertEqual(got.tolist(), [TOTAL // SIZE, -(TOTAL // SIZE), 0])

    def test_average_argument(self):
        self.assertEqual(hvd.allreduce(np.ones(1), average=False)[0], SIZE)
        self.assertEqual(hvd.allreduce(np.ones(1), average=True)[0], 1)
        with self.assertRaises(ValueError):
            hvd.allreduce(np.ones(1), average=True, op=hvd.Sum)

    def test_factors(self):
        got = hvd.allreduce(np.full(3, 2.0), op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0)
        self.equal(got, [3 * SIZE] * 3)
        with self.assertRaises(ValueError):
            hvd.allreduce(np.ones(1), prescale_factor=0)

    def test_in_place(self):
        array = np.full(5, RANK + 1.0)
        self.assertIs(hvd.allreduce_(array, op=hvd.Sum), array)
        self.equal(array, [TOTAL] * 5)

    def test_not_contiguous(self):
        given = all_values(3, (6, 8), "float32")
        wanted = sum(given)
        self.equal(hvd.allreduce(given[RANK].T, op=hvd.Sum), wanted.T, rtol=1e-5)
        self.equal(hvd.allreduce(given[RANK][::2, ::-3], op=hvd.Sum), wanted[::2, ::-3], rtol=1e-5)
        array = given[RANK]
        hvd.allreduce_(array[::2, ::-3], op=hvd.Sum)
        self.equal(array[::2, ::-3], wanted[::2, ::-3], rtol=1e-5)
        self.equal(array[1::2], values(3, RANK, (6, 8), "float32")[1::2])

    def test_byte_order(self):
        array = np.array([1, 2, 300], ">i4")
        self.assertEqual(hvd.allreduce(array, op=hvd.Sum).tolist(), [SIZE, 2 * SIZE, 300 * SIZE])
        hvd.allreduce_(array, op=hvd.Sum)
        self.assertEqual(array.tolist(), [SIZE, 2 * SIZE, 300 * SIZE])

    def test_lists_and_numbers(self):
        self.assertEqual(hvd.allreduce([1.0, 2.0], op=hvd.Sum).tolist(), [SIZE, 2 * SIZE])
        self.assertEqual(hvd.allreduce(3, op=hvd.Sum).tolist(), 3 * SIZE)
        self.assertEqual(hvd.allreduce(np.float32(RANK), op=hvd.Max), SIZE - 1)

    def test_groups_of_several_dtypes(self):
        given = [np.ones(3), np.full((2, 2), RANK, "int32"), np.ones(()), np.ones(0, "float32")]
        got = hvd.grouped_allreduce(given, op=hvd.Sum)
        self.assertEqual([g.dtype for g in got], [g.dtype for g in given])
        self.equal(got[0], [SIZE] * 3)
        self.equal(got[1], [[TOTAL - SIZE] * 2] * 2)
        self.equal(got[2], SIZE)
        hvd.grouped_allreduce_(given, op=hvd.Sum)
        self.equal(given[1], [[TOTAL - SIZE] * 2] * 2)

    def test_shared_memory(self):
        array = hvd.empty((300, 1000), "float32")
        array[:] = RANK + 1
        hvd.allreduce_(array, op=hvd.Sum)
        self.assertTrue((array == TOTAL).all())

    def test_large(self):
        given = values(9, RANK, (3_000_001,), "float32")
        got = hvd.allreduce(given, op=hvd.Sum)
        wanted = sum(values(9, r, (3_000_001,), "float32")[::997] for r in range(SIZE))
        self.equal(got[::997], wanted, rtol=1e-4, atol=1e-4)

    def test_bfloat16(self):
        try:
            import ml_dtypes
        except ImportError:
            self.skipTest("no ml_dtypes here")
        array = np.array([1, 2.5, RANK], ml_dtypes.bfloat16)
        got = hvd.allreduce(array, op=hvd.Sum)
        self.assertEqual(got.dtype, array.dtype)
        self.equal(got, [SIZE, 2.5 * SIZE, TOTAL - SIZE])
        self.assertEqual(hvd.allgather(array).dtype, array.dtype)


class Move(RankTest):
    def test_allgather(self):
        for dtype in DTYPES:
            given = [values(4, r, (r + 1, 3), dtype) for r in range(SIZE)]
            got = hvd.allgather(given[RANK])
            self.assertEqual(got.dtype, np.dtype(dtype))
            self.assertTrue((got == np.concatenate(given)).all())

    def test_allgather_of_nothing(self):
        self.assertEqual(hvd.allgather(np.zeros((0, 3))).shape, (0, 3))
        self.assertEqual(hvd.allgather(np.zeros((2, 0))).shape, (2 * SIZE, 0))
        self.assertEqual(hvd.allgather(np.zeros((RANK, 2))).shape, (TOTAL - SIZE, 2))
        self.assertEqual(hvd.allgather(np.int64(RANK)).tolist(), list(range(SIZE)))

    def test_allgather_result_is_writable_and_lives(self):
        got = hvd.allgather(np.full(1000, RANK, "int32"))
        got += 1
        self.assertEqual(got[::1000].tolist(), list(range(1, SIZE + 1)))

    def test_grouped_allgather(self):
        got = hvd.grouped_allgather([np.full(2, RANK), np.full((1, 2), RANK, "float32")])
        self.assertEqual(got[0].tolist(), [r for r in range(SIZE) for _ in range(2)])
        self.assertEqual(got[1].shape, (SIZE, 2))

    def test_alltoall(self):
        self.assertEqual(hvd.alltoall(np.arange(SIZE) + 10 * RANK).tolist(), [10 * r + RANK for r in range(SIZE)])
        splits = [r + RANK for r in range(SIZE)]
        rows = np.repeat(np.arange(SIZE), splits)[:, None] * [1, 1]
        got, received = hvd.alltoall(rows, splits)
        self.assertEqual(received, [r + RANK for r in range(SIZE)])
        self.assertEqual(got.shape, (sum(received), 2))
        self.assertTrue((got == RANK).all())

    def test_wrong_splits(self):
        for splits in ([1] * (SIZE + 1), [5] * SIZE, [-1] * SIZE):
            with self.assertRaises(ValueError):
                hvd.alltoall(np.zeros(SIZE), splits)
        if SIZE > 1:
            with self.assertRaises(ValueError):
                hvd.alltoall(np.zeros(SIZE + 1))

    def test_reducescatter(self):
        given = all_values(5, (2 * SIZE + 1, 3), "float64")
        wanted = np.array_split(sum(given), SIZE)[RANK]
        self.equal(hvd.reducescatter(given[RANK], op=hvd.Sum), wanted)
        self.equal(hvd.reducescatter(given[RANK]), wanted / SIZE)
        got = hvd.grouped_reducescatter([given[RANK], given[RANK][:, 0]], op=hvd.Sum)
        self.equal(got[0], wanted)
        self.equal(got[1], wanted[:, 0])

    def test_broadcast(self):
        for root in range(SIZE):
            given = all_values(6, (4, 2), "int16")
            self.assertTrue((hvd.broadcast(given[RANK], root) == given[root]).all())
            array = given[RANK].T
            self.assertIs(hvd.broadcast_(array, root), array)
            self.assertTrue((array == given[root].T).all())
        with self.assertRaises(ValueError):
            hvd.broadcast(np.zeros(1), SIZE)

    def test_send_and_receive(self):
        if RANK > 1 or SIZE < 2:
            return
        if RANK == 0:
            hvd.send(np.arange(5), 1, "post")
        else:
            self.assertEqual(hvd.receive(np.zeros(5, int), 0, "post").tolist(), [0, 1, 2, 3, 4])

    def test_join(self):
        if RANK == 0:
            self.assertEqual(hvd.allreduce(np.ones(1), name="alone", op=hvd.Sum)[0], 1)
        self.assertIn(hvd.join(), range(SIZE))

    def test_names_after_a_join(self):
        """Ranks have called different numbers of unnamed operations; after the join their calls match again."""
        for _ in range(2):
            for _ in range(RANK):
                with self.assertRaises(hvd.MismatchError):
                    hvd.allreduce(np.ones(1), op=hvd.Max)
            hvd.join()
            self.equal(hvd.allreduce(np.ones(2), op=hvd.Sum), [SIZE] * 2)


class Wrong(RankTest):
    def test_types(self):
        for wrong in (object(), np.zeros(2, complex), np.array(["a"]), "text", np.zeros(2, "datetime64[s]")):
            with self.assertRaises(TypeError, msg=repr(wrong)):
                hvd.allreduce_(wrong)

    def test_read_only(self):
        array = np.ones(3)
        array.flags.writeable = False
        with self.assertRaises(ValueError):
            hvd.allreduce_(array)
        self.equal(hvd.allreduce(array, op=hvd.Sum), [SIZE] * 3)

    def test_disagreement(self):
        if SIZE == 1:
            return
        with self.assertRaises(hvd.MismatchError) as caught:
            hvd.allreduce(np.ones(RANK + 1), name="unequal")
        self.assertIn("unequal", str(caught.exception))
        self.assertEqual(caught.exception.status_name, "HVD_ERR_MISMATCH")
        with self.assertRaises(ValueError):
            hvd.allgather(np.ones((2, RANK + 1)), name="unequal rows")
        for shape in ((3, 2), (6,), (1, 6)):
            mine = np.ones((2, 3) if RANK == 0 else shape)
            for call in (lambda: hvd.allreduce(mine, name="shape"), lambda: hvd.broadcast(mine, 0, name="shape"),
                         lambda: hvd.grouped_allreduce([mine, mine], name="shape")):
                with self.assertRaisesRegex(hvd.MismatchError, "[\"']shape[\"'].*of its own"):
                    call()
        rows = np.ones((SIZE, 2, 3) if RANK == 0 else (SIZE, 3, 2))
        for call in (lambda: hvd.allgather(rows, name="rows"), lambda: hvd.alltoall(rows, name="rows"),
                     lambda: hvd.reducescatter(rows, name="rows")):
            with self.assertRaisesRegex(hvd.MismatchError, "rows.*shape of its own"):
                call()
        with self.assertRaisesRegex(ValueError, "no elements"):
            hvd.allgather(np.ones((2, min(RANK, 1))), name="no elements")
        with self.assertRaisesRegex(ValueError, "no elements"):
            hvd.alltoall(np.ones((SIZE, min(RANK, 1))), name="no elements")
        self.equal(hvd.allreduce(np.ones(2), name="unequal", op=hvd.Sum), [SIZE] * 2)

    def test_names(self):
        for wrong in ("", "x" * 256):
            with self.assertRaises(hvd.InvalidArgumentError):
                hvd.allreduce_async(np.ones(1), name=wrong or None, op=99)
        with self.assertRaises(ValueError):
            hvd.allreduce(np.ones(1), name="zero\0")
        with self.assertRaises(TypeError):
            hvd.allreduce(np.ones(1), name=5)

    def test_sentences(self):
        with self.assertRaises(hvd.InvalidArgumentError) as caught:
            hvd.allreduce(np.ones(1), name="odd", op=77)
        self.assertIn("odd", str(caught.exception))


class Sets(RankTest):
    def test_sets(self):
        if SIZE < 3:
            return
        ranks = list(range(1, SIZE))
        some = hvd.add_process_set(ranks)
        self.assertEqual((some.size(), some.ranks), (SIZE - 1, ranks))
        self.assertEqual(some.included(), RANK > 0)
        if some.included():
            self.assertEqual(some.rank(), RANK - 1)
            self.equal(hvd.allreduce(np.full(2, RANK), op=hvd.Sum, process_set=some), [sum(ranks)] * 2)
            self.equal(hvd.broadcast(np.full(2, RANK), SIZE - 1, process_set=some), [SIZE - 1] * 2)
            self.assertEqual(hvd.allgather(np.int64(RANK), process_set=some).tolist(), ranks)
        else:
            with self.assertRaises(hvd.ProcessSetError):
                hvd.allreduce(np.ones(1), process_set=some)
        with self.assertRaises(hvd.ProcessSetError):
            hvd.add_process_set(ranks)
        self.assertTrue(hvd.remove_process_set(some))
        with self.assertRaises(ValueError):
            hvd.allreduce(np.ones(1), process_set=some)
        self.assertFalse(hvd.remove_process_set(hvd.global_process_set))

    def test_numbers(self):
        self.assertEqual(hvd.global_process_set.ranks, list(range(SIZE)))
        self.assertEqual(hvd.local_size() * hvd.cross_size(), SIZE)
        self.assertEqual(hvd.cross_rank() * hvd.local_size() + hvd.local_rank(), RANK)
        self.assertTrue(hvd.is_homogeneous())


class Again(RankTest):
    def test_shutdown_and_init(self):
        hvd.shutdown()
        self.assertFalse(hvd.is_initialized())
        with self.assertRaises(hvd.NotInitializedError):
            hvd.rank()
        with self.assertRaises(hvd.NotInitializedError):
            hvd.allreduce(np.ones(1))
        hvd.init()
        self.equal(hvd.allreduce(np.ones(1), op=hvd.Sum), [SIZE])

    def test_many_unnamed(self):
        for k in range(3000):
            self.assertEqual(hvd.allreduce(np.array([k]), op=hvd.Max)[0], k)
