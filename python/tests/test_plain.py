"""The package without NumPy: bytes, array.array and memoryview."""

import array
import sys
import unittest

sys.modules["numpy"] = None  # import numpy fails from here on

import hvdrun as hvd  # noqa: E402
from hvdrun import _hvd  # noqa: E402

hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()


class Plain(unittest.TestCase):
    def test_allreduce(self):
        for code in "bBhHiIlLqQfd":
            got = hvd.allreduce(array.array(code, [1, 2, 3]), op=hvd.Sum)
            self.assertEqual((got.format, got.tolist()), (code, [SIZE, 2 * SIZE, 3 * SIZE]))

    def test_in_place(self):
        numbers = array.array("d", [RANK] * 4)
        self.assertIs(hvd.allreduce_(numbers, op=hvd.Max), numbers)
        self.assertEqual(list(numbers), [SIZE - 1] * 4)
        data = bytearray(b"\x01\x02")
        hvd.allreduce_(data, op=hvd.Sum)
        self.assertEqual(list(data), [SIZE, 2 * SIZE])

    def test_read_only(self):
        with self.assertRaises(ValueError):
            hvd.allreduce_(b"fixed")

    def test_bytes(self):
        self.assertEqual(bytes(hvd.allgather(b"rank %d;" % RANK)), b"".join(b"rank %d;" % r for r in range(SIZE)))
        self.assertEqual(bytes(hvd.allgather(b"")), b"")
        self.assertEqual(bytes(hvd.broadcast(b"%d" % RANK, SIZE - 1)), b"%d" % (SIZE - 1))

    def test_views(self):
        data = memoryview(bytearray(range(24))).cast("B", [4, 6])
        got = hvd.allreduce(data, op=hvd.Max)
        self.assertEqual(got.tolist(), data.tolist())
        self.assertEqual(hvd.allgather(data).shape, (4 * SIZE, 6))

    def test_tuples(self):
        numbers = array.array("f", [1.5, 2.5])
        address, count = numbers.buffer_info()
        _hvd.allreduce("tuple", (address, count, 7), None, hvd.Sum, 0, 1.0, 1.0, 0, numbers)
        self.assertEqual(list(numbers), [1.5 * SIZE, 2.5 * SIZE])
        for wrong in ((), (1,), (address, -1, 7), (address, 1, 99), (address, 1, 7, 0, 0), ("a", 1, 7)):
            with self.assertRaises((TypeError, ValueError)):
                _hvd.allreduce("tuple", wrong, None, hvd.Sum, 0, 1.0, 1.0, 0, None)

    def test_numbers_of_arguments(self):
        with self.assertRaises(TypeError):
            _hvd.allreduce("x")
        with self.assertRaises(TypeError):
            _hvd.barrier()

    def test_memory(self):
        memory = _hvd.alloc(1000)
        self.assertEqual((memory.nbytes, len(memory), memory.shared), (1000, 1000, True))
        view = memoryview(memory)
        view[:3] = b"abc"
        del memory
        self.assertEqual(bytes(view[:4]), b"abc\0")
        hvd.shutdown()
        self.assertEqual(bytes(view[:4]), b"abc\0")
        view[:3] = bytes((1, 2, 3))
        hvd.init()
        hvd.allreduce_(view, op=hvd.Sum, name="lasting")
        self.assertEqual(list(view[:4]), [hvd.size(), 2 * hvd.size(), 3 * hvd.size(), 0])
        view.release()
        self.assertEqual(len(memoryview(_hvd.alloc(0))), 0)
        with self.assertRaises(hvd.OutOfMemoryError):
            _hvd.alloc(1 << 62)
        with self.assertRaises(ValueError):
            _hvd.alloc(-1)
        with self.assertRaises((hvd.HvdError, BufferError)):
            memoryview(_hvd.alloc_device(64))  # with a GPU there is such memory, but no view of it

    def test_persistent(self):
        array = bytearray(range(5))
        out = bytearray(5)
        allreduce = _hvd.allreduce_init("persistent", array, out, hvd.Sum, 0, 1.0, 1.0, 0, None)
        allreduce.wait()
        for step in range(3):
            array[0] = step
            allreduce.start()
            with self.assertRaises(hvd.DuplicateNameError):
                allreduce.start()
            with self.assertRaises(hvd.DuplicateNameError):
                _hvd.allreduce("persistent", array, out, hvd.Sum, 0, 1.0, 1.0, 0, None)
            while step == 1 and not allreduce.poll():
                pass
            allreduce.wait(20)
            self.assertEqual(list(out), [each * hvd.size() for each in array])
        with self.assertRaises(ValueError):
            allreduce.wait(-1)
        if hvd.size() > 1 and hvd.rank() == 0:
            allreduce.start()
            with self.assertRaises(hvd.WaitTimeoutError):
                allreduce.wait(0.1)
        hvd.barrier()
        if hvd.rank() > 0:
            allreduce.start()
        allreduce.wait()
        del allreduce
        hvd.allreduce(b"ab", name="persistent", op=hvd.Sum)
        dropped = _hvd.allreduce_init("dropped", bytearray(100000), None, hvd.Sum, 0, 1.0, 1.0, 0, None)
        dropped.start()
        del dropped
        hvd.barrier()

    def test_statuses(self):
        self.assertEqual(_hvd.status_name(-13), "HVD_ERR_TIMEOUT")
        from hvdrun import exceptions

        for status in range(-13, 0):
            self.assertEqual(exceptions.from_status(status, "x").status_name, _hvd.status_name(status))


if __name__ == "__main__":
    unittest.main()
