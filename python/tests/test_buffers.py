"""Objects that only describe their memory: __array_interface__, __cuda_array_interface__, __dlpack__."""
# RANKS = 1 2

import gc
import types
import weakref

import hvdrun as hvd
from hvdrun import _hvd
from ranks import RANK, SIZE, TOTAL, RankTest, need_numpy, np

need_numpy()

BFLOAT16 = 10
INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
DTYPES = ["bool", *INTEGERS, "float16", "float32", "float64"]


class Described:
    """An object with attributes, which keeps an array."""

    def __init__(self, array, **attributes):
        self.array = array
        self.__dict__.update(attributes)


def by_interface(array, **changes):
    return Described(array, __array_interface__={**array.__array_interface__, **changes})


class Capsule:
    """An object with __dlpack__ alone."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self):
        return self.array.__dlpack__()


def allreduce(buffer, out=None, name="described"):
    _hvd.allreduce(name, buffer, out, hvd.Sum, 0, 1.0, 1.0, 0, None)


class Interfaces(RankTest):
    def test_dtypes(self):
        for dtype in DTYPES:
            for wrap in (by_interface, Capsule):
                if dtype == "bool" and wrap is Capsule:
                    continue  # NumPy 1.24 does not export it
                array = np.ones((2, 3), dtype)
                with self.subTest(dtype=dtype, wrap=wrap):
                    allreduce(wrap(array))
                    self.equal(array, np.full((2, 3), 1 if dtype == "bool" else SIZE))

    def test_shapes(self):
        for shape in ((), (0,), (1, 1, 1), (2, 0, 3)):
            for wrap in (by_interface, Capsule):
                array = np.ones(shape)
                allreduce(wrap(array), name=f"shape {len(shape)}")
                self.equal(array, np.full(shape, float(SIZE)))

    def test_strides(self):
        array = np.ones((4, 6))
        for part in (array.T, array[::2], array[:, 1:]):
            for wrap in (by_interface, Capsule):
                with self.assertRaisesRegex(ValueError, "contiguous"):
                    allreduce(wrap(part))
        explicit = by_interface(array, strides=array.strides)
        allreduce(explicit)
        self.equal(array, np.full((4, 6), SIZE))
        with self.assertRaisesRegex(ValueError, "contiguous"):
            allreduce(array.T)

    def test_read_only(self):
        array = np.ones(3)
        fixed = by_interface(array, data=(array.ctypes.data, True))
        with self.assertRaisesRegex(ValueError, "read-only"):
            allreduce(fixed)
        out = np.zeros(3)
        allreduce(fixed, out)
        self.equal(out, [SIZE] * 3)

    def test_bfloat16_by_its_name(self):
        words = np.array([0x3F80, 0x4000], np.uint16)  # 1 and 2
        described = by_interface(words, typestr="<V2")
        described.dtype = types.SimpleNamespace(name="bfloat16")
        allreduce(described)
        wanted = np.array([SIZE, 2 * SIZE], np.float32).view(np.uint32) >> 16
        self.assertEqual(words.tolist(), wanted.tolist())
        words[:] = [0x3F80, 0x4000]
        allreduce((words.ctypes.data, 2, BFLOAT16))
        self.assertEqual(words.tolist(), wanted.tolist())

    def test_wrong_ones(self):
        array = np.ones(2)
        for changes in ({"typestr": ">f8"}, {"typestr": "<c16"}, {"typestr": 5}, {"typestr": "|V2"}, {"shape": None},
                        {"strides": (1, 2)}, {"shape": (-2,)}, {"shape": ("a",)}, {"data": None},
                        {"data": ("a", False)}):
            with self.subTest(changes=changes), self.assertRaises(TypeError):
                allreduce(by_interface(array, **changes))
        with self.assertRaises(TypeError):
            allreduce(Described(array, __array_interface__=5))
        with self.assertRaises(TypeError):
            allreduce(Capsule(np.ones(2, complex)))

    def test_cuda_interface(self):
        """Its address and stream are taken. Host memory stands for a device's here."""
        array = np.full(4, RANK + 1.0)
        for stream in (None, 0):
            array[:] = RANK + 1
            interface = {**array.__array_interface__, "stream": stream}
            allreduce(Described(array, __cuda_array_interface__=interface))
            self.equal(array, [TOTAL] * 4)
        with self.assertRaises(TypeError):
            allreduce(Described(array, __cuda_array_interface__={**interface, "stream": "one"}))

    def test_objects_are_kept(self):
        for wrap in (by_interface, Capsule):
            array = np.ones(70000)
            alive = weakref.ref(array)
            if RANK > 0:
                hvd.barrier()
            handle = _hvd.allreduce_async("kept", wrap(array), None, hvd.Sum, 0, 1.0, 1.0, 0, None)
            del array
            gc.collect()
            if RANK == 0 and SIZE > 1:
                self.assertIsNotNone(alive())
                hvd.barrier()
            elif SIZE == 1:
                hvd.barrier()
            handle.wait()
            self.assertIsNone(alive())

    def test_outputs_must_fit(self):
        for out in (np.zeros(3), np.zeros(2, "float32")):
            with self.assertRaisesRegex(ValueError, "described"):
                allreduce(np.ones(2), out)
        with self.assertRaises(ValueError):
            _hvd.grouped_allreduce("g", [np.ones(2)], [], 1, 0, 1.0, 1.0, None)
        with self.assertRaises(ValueError):
            _hvd.grouped_allreduce("g", [np.ones(2), np.ones(2, "f")], None, 1, 0, 1.0, 1.0, None)
        with self.assertRaises(ValueError):
            _hvd.allgather("g", np.ones(6), 4, 2, None, 0, None)
        with self.assertRaises(ValueError):
            _hvd.reducescatter("g", np.ones(6), 6, 1, np.ones(7), 1, 0, 1.0, 1.0, None)

    def test_groups_in_place_and_apart(self):
        ins = [np.full(k, RANK + 1.0) for k in (1, 0, 70000)]
        outs = [np.zeros_like(array) for array in ins]
        _hvd.grouped_allreduce("apart", ins, outs, hvd.Sum, 0, 1.0, 1.0, None)
        for out in outs:
            self.assertTrue((out == TOTAL).all())
        _hvd.grouped_allreduce("in place", ins, None, hvd.Sum, 0, 1.0, 1.0, None)
        for array in ins:
            self.assertTrue((array == TOTAL).all())
