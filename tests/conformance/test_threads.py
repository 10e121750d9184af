"""Any thread may use any object: eight threads at once compute correct numbers."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from uhal import Device, DeviceBuffer, Event, HostBuffer, Module, Stream
from uhal.errors import InvalidHandleError
from uhal_conformance.gate import Gate
from uhal_conformance.sampling import rounds

THREADS = 8


def run_together(work: Callable[[int], None]) -> None:
    """Run `work(number)` on eight threads that begin at once; raise the first failure."""
    barrier = threading.Barrier(THREADS)

    def run(number: int) -> None:
        barrier.wait(60)
        work(number)

    with ThreadPoolExecutor(THREADS) as pool:
        for done in [pool.submit(run, number) for number in range(THREADS)]:
            done.result(300)


def test_eight_threads_with_a_stream_each(device: Device, basic: Module, seed: int) -> None:
    step = basic.get_function("step")

    def work(number: int) -> None:
        rng = np.random.default_rng([seed, number])
        with device, Stream() as stream:
            for _ in range(rounds(40, 2000)):
                expected = rng.integers(0, 2**32, int(rng.integers(1, 5000)), "u4")
                buffer = DeviceBuffer.from_numpy(expected, stream=stream)
                for _ in range(5):
                    multiply, add = (int(n) for n in rng.integers(0, 2**32, 2))
                    step[2, 64, 0, stream](buffer.size, multiply, add, buffer)
                    expected = expected * np.uint32(multiply) + np.uint32(add)
                assert np.array_equal(buffer.to_numpy(stream=stream), expected)

    run_together(work)


def test_eight_threads_on_the_default_stream(device: Device, basic: Module) -> None:
    """A sum that is correct only if every launch ran exactly once."""
    step = basic.get_function("step")
    total = DeviceBuffer.zeros(1000, "u32")
    each = rounds(300, 20_000)

    def work(number: int) -> None:
        bound = step[1, 100]
        for _ in range(each):
            bound(1000, 1, number + 1, total)

    run_together(work)
    assert (total.to_numpy() == each * THREADS * (THREADS + 1) // 2).all()


def test_eight_threads_share_one_pool(device: Device, basic: Module, seed: int) -> None:
    """Create buffers, pass them to other threads, and free them there."""
    fill = basic.get_function("fill")
    shelf: list[tuple[DeviceBuffer, int]] = []

    def work(number: int) -> None:
        rng = np.random.default_rng([seed, number])
        with device, Stream() as stream:
            for turn in range(rounds(150, 5000)):
                size = int(rng.integers(1, 3000))
                value = number * 1_000_000 + turn
                buffer = DeviceBuffer.uninitialized(size, "u32")
                fill[1, 64, 0, stream](size, value, buffer)
                shelf.append((buffer, value))
                del buffer
                try:
                    other, expected = shelf.pop(int(rng.integers(len(shelf))))
                except (IndexError, ValueError):
                    continue
                assert (other.to_numpy() == expected).all()

    run_together(work)
    for buffer, expected in shelf:
        assert (buffer.to_numpy() == expected).all()


@pytest.mark.drawn(3, among_backends=True)
def test_eight_threads_make_and_close_everything(
    device: Device, image: Callable[[str], Path]
) -> None:
    path = image("globals")

    def work(number: int) -> None:
        with device:
            for turn in range(rounds(15, 500)):
                with Stream() as stream, Event() as event, HostBuffer(4, "u32") as pinned:
                    with Module.from_file(path) as module:
                        out = DeviceBuffer.zeros(4, "u32", stream=stream)
                        module.get_function("who")[1, 4, 0, stream](out)
                        out.copy_to_async(pinned, stream)
                        event.record(stream)
                    event.synchronize()
                    assert pinned.array.tolist() == [1] * 4
                if turn % 5 == number % 5:
                    gc.collect()

    run_together(work)


def test_a_kernel_needs_no_stack_of_the_thread_that_launches_it(
    device: Device, basic: Module
) -> None:
    """Python programs can give threads a small stack; a block may use 48 KiB of shared memory."""
    fill = basic.get_function("fill")
    shared = min(48 << 10, device.limits.max_shared_bytes_per_block)
    out = DeviceBuffer.zeros(64, "u32")
    fill[1, 64, shared](64, 1, out)
    found = [out.to_numpy().tolist()]

    def work() -> None:
        with device:
            for value in range(40):
                fill[1, 64, shared](64, value, out)
                device.synchronize()
            found.append(out.to_numpy().tolist())

    before = threading.stack_size(32 << 10)  # the least there is
    try:
        thread = threading.Thread(target=work)
        thread.start()
    finally:
        threading.stack_size(before)
    thread.join()
    assert found == [[1] * 64, [39] * 64]


def test_each_thread_has_its_own_current_device(device: Device) -> None:
    seen: list[Device] = []

    def work() -> None:
        with Device(device.ordinal, device.backend) as own:
            seen.append(Device.current())
            assert DeviceBuffer.zeros(1, "u8").device == own

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [device]


@pytest.mark.drawn(3, among_backends=True)
def test_a_buffer_closed_by_one_thread_while_others_launch_on_it(
    device: Device, basic: Module
) -> None:
    """Closing a buffer in use is an error of the program: it raises, and never crashes."""
    fill = basic.get_function("fill")
    bystander = DeviceBuffer.zeros(1000, "u32")
    for _ in range(rounds(30, 1000)):
        victim = DeviceBuffer.zeros(1000, "u32")
        started = threading.Event()

        def launch_on(victim: DeviceBuffer, started: threading.Event) -> None:
            with device, Stream() as stream:
                started.set()
                try:
                    while True:
                        fill[1, 1, 0, stream](1000, 5, victim)
                except InvalidHandleError:
                    stream.synchronize()

        threads = [threading.Thread(target=launch_on, args=(victim, started)) for _ in range(2)]
        for thread in threads:
            thread.start()
        started.wait(60)
        victim.close()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
    assert not bystander.to_numpy().any()


def test_a_stream_and_an_event_closed_while_others_wait_for_them(
    device: Device, basic: Module, gate: Callable[[], Gate]
) -> None:
    """The waiting threads return when the work is done, and the results are correct."""
    fill = basic.get_function("fill")
    for _ in range(rounds(3, 100)):
        barrier = gate()
        stream = Stream()
        barrier.hold(stream)
        buffer = DeviceBuffer.uninitialized(1000, "u32")
        fill[1, 1, 0, stream](1000, 5, buffer)
        event = stream.record_event()
        with ThreadPoolExecutor(4) as threads:
            waits = [threads.submit(wait) for wait in 2 * [stream.synchronize, event.synchronize]]
            time.sleep(0.01)
            stream.close()
            event.close()
            barrier.open()
            for wait in waits:
                # A wait that begins after the close raises an error.
                failure = wait.exception(60)
                assert failure is None or isinstance(failure, InvalidHandleError)
        assert (buffer.to_numpy() == 5).all()
        # freeing might wait for work behind the next gate, so free the buffer now
        buffer.close()
