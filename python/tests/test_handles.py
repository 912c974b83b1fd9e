"""Handles: limits, signals, dropped ones, what they keep, threads, forks."""
# RANKS = 2 4

import gc
import os
import signal
import threading
import time
import weakref

import hvdrun as hvd
from hvdrun import _hvd
from ranks import RANK, SIZE, RankTest, need_numpy, np

need_numpy()


class Owner:
    pass


def start(name, array, owner=None, out=None):
    return _hvd.allreduce_async(name, array, out, hvd.Sum, 0, 1.0, 1.0, 0, owner)


class Unnamed(RankTest):
    """Names of operations without a name come round; the next one of a name begins when the one before has ended."""

    CALLS = 16000

    def test_any_number_pending(self):
        arrays = [np.full(3, RANK + call, "float32") for call in range(self.CALLS)]
        if RANK != 0:
            hvd.barrier()
        handles = [hvd.allreduce_async(array, op=hvd.Sum) for array in arrays]
        if RANK == 0:
            self.assertEqual(_hvd.pending(), self.CALLS)
            hvd.barrier()
        base = sum(range(SIZE))
        for call in reversed(range(self.CALLS)) if RANK % 2 else range(self.CALLS):
            self.equal(hvd.synchronize(handles[call]), [base + SIZE * call] * 3)
        self.assertEqual(_hvd.pending(), 0)

    def test_one_kind_does_not_wait_for_another(self):
        """The other ranks start after the first has got an answer of another kind, which it has asked for last."""
        handles = [hvd.allreduce_async(np.full(1, call), op=hvd.Sum) for call in range(3000)] if RANK == 0 else []
        self.equal(hvd.allgather(np.full(1, RANK)), range(SIZE))
        if RANK:
            handles = [hvd.allreduce_async(np.full(1, call), op=hvd.Sum) for call in range(3000)]
        for call, handle in enumerate(handles):
            self.equal(handle.wait(), [SIZE * call])

    def test_dropped(self):
        for call in range(3000):
            hvd.allreduce_async(np.full(1, call))
        gc.collect()
        self.equal(hvd.allreduce(np.full(1, RANK), op=hvd.Sum), [sum(range(SIZE))])
        while _hvd.pending():
            time.sleep(0.001)

    def test_threads(self):
        handles = [hvd.allreduce_async(np.full(2, RANK + call), op=hvd.Sum) for call in range(4000)]
        wrong = []

        def wait(first):
            calls = range(first, 4000, 4)
            wrong.extend(call for call in calls if handles[call].wait()[0] != sum(range(SIZE)) + SIZE * call)

        threads = [threading.Thread(target=wait, args=(first,)) for first in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_a_name_of_the_script_is_refused(self):
        handle = start("own", np.ones(1))
        with self.assertRaises(hvd.DuplicateNameError):
            start("own", np.ones(1))
        handle.wait()


class Limits(RankTest):
    def test_time_limit(self):
        array = np.ones(4)
        if RANK == 0:
            handle = start("late", array)
            for limit in (0, 0.001, 0.12):
                began = time.monotonic()
                with self.assertRaises(hvd.WaitTimeoutError) as caught:
                    handle.wait(limit)
                self.assertGreaterEqual(time.monotonic() - began, limit)
                self.assertIsInstance(caught.exception, TimeoutError)
                self.assertIn("late", str(caught.exception))
            self.assertFalse(handle.poll() or handle.done)
            self.assertIn("pending", repr(handle))
            hvd.barrier()
        else:
            hvd.barrier()
            handle = start("late", array)
        self.assertIsNone(handle.wait(30))
        self.assertIsNone(handle.wait())
        self.assertTrue(handle.done and handle.poll())
        self.equal(array, [SIZE] * 4)
        for wrong in (-1, float("nan")):
            with self.assertRaises(ValueError):
                handle.wait(wrong)

    def test_errors_come_again(self):
        handle = start("unequal", np.ones(RANK + 1))
        for _ in range(2):
            with self.assertRaises(hvd.MismatchError):
                handle.wait()
        self.assertIn("MISMATCH", repr(handle))

    def test_duplicate(self):
        array = np.ones(1)
        if RANK == 0:
            handle = start("twice", array)
            with self.assertRaises(hvd.DuplicateNameError):
                start("twice", np.ones(1))
        hvd.barrier()
        if RANK != 0:
            handle = start("twice", array)
        handle.wait()

    def test_any_order(self):
        arrays = [np.full(3, k, "float32") for k in range(50)]
        order = list(range(50)) if RANK % 2 else list(reversed(range(50)))
        handles = {k: start(f"order {k}", arrays[k]) for k in order}
        for k in reversed(order):
            handles[k].wait()
            self.equal(arrays[k], [k * SIZE] * 3)

    def test_gathers_in_any_order(self):
        order = list(range(20)) if RANK % 2 else list(reversed(range(20)))
        started = {k: hvd.allgather_async(np.full((RANK + k, 2), RANK), f"gather {k}") for k in order}
        for k in order:
            self.assertEqual(started[k].wait().shape[0], sum(r + k for r in range(SIZE)))


class Signals(RankTest):
    def interrupt(self, wait):
        """The seconds from the signal to KeyboardInterrupt."""
        at = []

        def strike():
            at.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)

        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        timer = threading.Timer(0.15, strike)
        timer.start()
        try:
            with self.assertRaises(KeyboardInterrupt):
                wait()
            return time.monotonic() - at[0]
        finally:
            timer.join()
            signal.signal(signal.SIGINT, before)

    def test_interrupted_wait(self):
        array = np.ones(3)
        if RANK == 0:
            handle = start("interrupted", array)
            delays = [self.interrupt(handle.wait) for _ in range(3)]
            self.assertLess(min(delays), 0.1)
            self.assertEqual(_hvd.pending(), 1)
            hvd.barrier()
        else:
            hvd.barrier()
            handle = start("interrupted", array)
        handle.wait()
        self.equal(array, [SIZE] * 3)

    def test_interrupted_call_keeps_its_buffer(self):
        if RANK != 0:
            hvd.barrier()
            hvd.allreduce_(np.ones(70000), name="blocked", op=hvd.Sum)
            return
        array, owner = np.ones(70000), Owner()
        alive = [weakref.ref(array), weakref.ref(owner)]

        arguments = ["blocked", array, None, hvd.Sum, 0, 1.0, 1.0, 0, owner]
        self.interrupt(lambda: _hvd.allreduce(*arguments))
        arguments.clear()
        del array, owner
        gc.collect()
        self.assertEqual(_hvd.pending(), 1)
        self.assertTrue(all(ref() is not None for ref in alive))
        kept = alive[0]()
        hvd.barrier()
        while _hvd.pending():
            time.sleep(0.001)
        self.equal(kept, [SIZE] * 70000)
        del kept
        self.assertTrue(all(ref() is None for ref in alive))


class Dropped(RankTest):
    def test_buffers_live_until_the_end(self):
        owner, array, out = Owner(), np.ones(70000), np.zeros(70000)
        alive = [weakref.ref(owner), weakref.ref(array), weakref.ref(out)]
        if RANK == 0:
            start("dropped", array, owner, out)
            del owner, array
            gc.collect()
            self.assertTrue(all(ref() is not None for ref in alive))
            self.assertEqual(_hvd.pending(), 1)
            hvd.barrier()
        else:
            hvd.barrier()
            start("dropped", array, owner, out)
            del owner, array
        while _hvd.pending():
            time.sleep(0.001)
        self.assertTrue(alive[0]() is None and alive[1]() is None)
        self.equal(out, [SIZE] * 70000)

    def test_an_owner_that_calls_back(self):
        """Owners may do anything when they are released."""

        class Calls:
            def __del__(self):
                start("from a destructor", np.ones(1)).wait()

        for _ in range(10):
            start("owned", np.ones(1), Calls()).wait()

    def test_dropped_gathers(self):
        for k in range(30):
            hvd.allgather_async(np.full(RANK + 1, k), f"dropped gather {k}")
        hvd.allreduce(np.ones(1), name="behind them")
        end = time.monotonic() + 10
        while _hvd.pending() and time.monotonic() < end:
            time.sleep(0.001)
        self.assertEqual(_hvd.pending(), 0)

    def test_shutdown_refuses(self):
        if RANK == 0:
            handle = start("under way", np.ones(1))
            with self.assertRaisesRegex(hvd.DuplicateNameError, "1 operations are pending"):
                hvd.shutdown()
            hvd.barrier()
        else:
            hvd.barrier()
            handle = start("under way", np.ones(1))
        handle.wait()


class Threads(RankTest):
    def test_waits_release_the_gil(self):
        if RANK != 0:
            hvd.barrier()
            start("slow", np.ones(1)).wait()
            return
        handle, seen = start("slow", np.ones(1)), []
        waiter = threading.Thread(target=lambda: seen.append(handle.wait()))
        waiter.start()
        for _ in range(5):
            time.sleep(0.01)
            self.assertFalse(handle.poll())
        hvd.barrier()
        waiter.join()
        self.assertEqual(seen, [None])

    def test_two_wait_for_one(self):
        array, seen = np.ones(1), []
        if RANK != 0:
            hvd.barrier()
        handle = start("shared", array)
        waiters = [threading.Thread(target=lambda: seen.append(handle.wait(20))) for _ in range(4)]
        for waiter in waiters:
            waiter.start()
        if RANK == 0:
            time.sleep(0.05)
            hvd.barrier()
        for waiter in waiters:
            waiter.join()
        self.assertEqual(seen, [None] * 4)

    def test_operations_in_threads(self):
        failures = []

        def work(number):
            try:
                for k in range(40):
                    got = hvd.allreduce(np.full(5, k), name=f"thread {number}", op=hvd.Sum)
                    assert (got == k * SIZE).all()
                    rows = hvd.allgather(np.full(2, RANK), name=f"gather {number}")
                    assert rows.shape == (2 * SIZE,)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])


class Forks(RankTest):
    def test_child(self):
        if RANK != 0:
            hvd.barrier()
            start("parent", np.ones(1)).wait()
            return
        array = np.ones(1)
        handle = start("parent", array)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                for call in (lambda: hvd.allreduce(np.ones(1)), handle.wait, hvd.rank, hvd.barrier, hvd.shutdown):
                    try:
                        call()
                        break
                    except hvd.ForkedError:
                        pass
                else:
                    del handle, call
                    gc.collect()
                    status = 0
            finally:
                os._exit(status)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        hvd.barrier()
        handle.wait()
        self.equal(array, [SIZE])
