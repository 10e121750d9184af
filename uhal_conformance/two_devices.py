"""Requirements on two devices of one backend; run in a process with two devices."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from uhal import Api, Device, DeviceBuffer, Event, HostBuffer, Module, Stream, diagnostics, launch
from uhal.errors import DeviceError, InvalidHandleError


class Pair:
    """Two devices with a module, a stream and a buffer on each."""

    def __init__(self, backend: str, image: str) -> None:
        assert Device.count(backend) == 2
        self.devices = [Api.quick_init(0, backend), Device(1, backend)]
        self.streams, self.steps, self.buffers = [], [], []
        self.values = np.arange(10_000, dtype="u4")
        for device in self.devices:
            with device:
                self.streams.append(Stream())
                self.steps.append(Module.from_file(image).get_function("step"))
                self.buffers.append(DeviceBuffer.from_numpy(self.values))


def refused(act: Callable[[], Any], words: str = "") -> None:
    try:
        act()
    except InvalidHandleError as error:
        assert words in str(error), error
    else:
        raise AssertionError("not refused")


def check_foreign_objects_are_refused(backend: str, image: str) -> None:
    pair = Pair(backend, image)
    first, second = pair.devices
    assert first != second
    assert first.uuid != second.uuid
    step, buffer, foreign = pair.steps[0], pair.buffers[0], pair.buffers[1]
    one, two = f"{backend}:0", f"{backend}:1"
    refused(
        lambda: launch(step, 1, 1, (10, 1, 1, foreign)),
        f"expected a DeviceBuffer of {one}, the kernel's device, got one of {two}.",
    )
    refused(
        lambda: launch(step, 1, 1, (10, 1, 1, buffer), stream=pair.streams[1]),
        f"expected a Stream of {one}, the kernel's device, got one of {two}.",
    )
    refused(lambda: step[1, 1, 0, pair.streams[1]])
    refused(lambda: buffer.to_numpy(stream=pair.streams[1]), f"expected one of {one}")
    refused(lambda: buffer.record_stream(pair.streams[1]))
    refused(lambda: pair.streams[0].record_event(Event(device=second)))
    refused(lambda: DeviceBuffer.zeros(3, "u8", device=first, stream=pair.streams[1]))
    with Event(device=first) as start, Event(device=second) as end:
        refused(lambda: end.elapsed_since(start), "two events of one device")
    assert np.array_equal(buffer.to_numpy(), pair.values)
    assert np.array_equal(foreign.to_numpy(), pair.values)


def check_copies_between_devices(backend: str, image: str) -> None:
    pair = Pair(backend, image)
    rng = np.random.default_rng()
    for _ in range(30):
        source, to = (int(n) for n in rng.permutation(2))
        start, stop = sorted(int(n) for n in rng.integers(0, pair.values.size, 2))
        multiply, add = (int(n) for n in rng.integers(0, 2**32, 2))
        stream, buffer = pair.streams[source], pair.buffers[source]
        pair.steps[source][4, 64, 0, stream](buffer.size, multiply, add, buffer)
        # the copy is ordered behind the launch, on any stream
        pair.buffers[to][start:stop].copy_from(buffer[start:stop])
        expected = buffer.to_numpy()
        assert np.array_equal(pair.buffers[to].to_numpy()[start:stop], expected[start:stop])
    with Stream(device=pair.devices[1]) as stream:
        pair.buffers[1].copy_from_async(pair.buffers[0], stream)
        stream.synchronize()
    assert np.array_equal(pair.buffers[1].to_numpy(), pair.buffers[0].to_numpy())
    pair.buffers[0].copy_to(pair.buffers[1])


def check_events_order_streams_of_two_devices(backend: str, image: str) -> None:
    pair = Pair(backend, image)
    first, second = pair.streams
    shared = HostBuffer(pair.values.size, "u4", device=pair.devices[0])
    for number in range(20):
        pair.steps[0][1, 64, 0, first](pair.values.size, 3, number, pair.buffers[0])
        pair.buffers[0].copy_to_async(shared, first)
        second.wait_event(first.record_event())
        pair.buffers[1].copy_from_async(shared, second)
        first.wait_event(second.record_event())
    second.synchronize()
    assert np.array_equal(pair.buffers[1].to_numpy(), pair.buffers[0].to_numpy())


def check_threads_each_on_their_device(backend: str, image: str) -> None:
    pair = Pair(backend, image)
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            with pair.devices[number % 2] as device, Stream() as stream:
                step = pair.steps[number % 2]
                for add in range(100):
                    buffer = DeviceBuffer.from_numpy(pair.values)
                    assert buffer.device == Device.current() == device
                    step[2, 64, 0, stream](buffer.size, 5, add, buffer)
                    expected = pair.values * np.uint32(5) + np.uint32(add)
                    assert np.array_equal(buffer.to_numpy(stream=stream), expected)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


def check_tasks_each_on_their_device(backend: str, image: str) -> None:
    pair = Pair(backend, image)

    async def work(number: int) -> None:
        for _ in range(3):
            await asyncio.sleep(0)
            with pair.devices[number]:
                await asyncio.sleep(0)
                assert Device.current() == pair.devices[number]
                assert DeviceBuffer.zeros(4, "u8").device == pair.devices[number]
                await asyncio.create_task(check_inherited(number))
            assert Device.current() == pair.devices[0]

    async def check_inherited(number: int) -> None:
        assert Device.current() == pair.devices[number]
        with pair.devices[1 - number]:
            await asyncio.sleep(0)
            assert Device.current() == pair.devices[1 - number]

    async def work_in_all() -> None:
        await asyncio.gather(*(work(number % 2) for number in range(6)))

    asyncio.run(work_in_all())


def check_one_closes_and_the_other_works_on(backend: str, image: str) -> None:
    pair = Pair(backend, image)
    pools = set(diagnostics()["pools"])
    assert pools == {f"{backend}:0", f"{backend}:1"}
    pair.devices[0].close()
    refused(lambda: pair.buffers[0].to_numpy())
    refused(lambda: pair.buffers[1].copy_from(pair.buffers[0]))
    with pair.devices[1]:
        pair.steps[1][1, 1](10, 2, 0, pair.buffers[1])
        assert pair.buffers[1].to_numpy()[:10].tolist() == list(range(0, 20, 2))
    try:
        Device(2, backend)
    except DeviceError as error:
        assert "there is 2 devices" not in str(error)


def keep_busy(pair: Pair) -> DeviceBuffer:
    """Keep the second device's stream busy; return the buffer of that work."""
    busy = DeviceBuffer.zeros(1_000_000, "u32", device=pair.devices[1])
    for add in range(20):
        pair.steps[1][8, 64, 0, pair.streams[1]](busy.size, 3, add, busy)
    return busy


def check_a_source_is_kept_until_it_is_copied(backend: str, image: str) -> None:
    """The pool keeps the source of a pending copy from reuse."""
    pair = Pair(backend, image)
    values = np.random.default_rng().integers(0, 2**32, pair.values.size, "u4")
    others = np.zeros(values.size, "u4")
    for _ in range(3):
        keep_busy(pair)
        with pair.devices[0] as first:
            source = DeviceBuffer.from_numpy(values)
            for part in (slice(5_000), slice(5_000, None)):
                pair.buffers[1][part].copy_from_async(source[part], pair.streams[1])
            source.close()
            kept = [DeviceBuffer.from_numpy(others) for _ in range(4)]
            first.empty_cache()
            kept += [DeviceBuffer.from_numpy(others) for _ in range(4)]
            first.synchronize()
        pair.streams[1].synchronize()
        assert np.array_equal(pair.buffers[1].to_numpy(), values)
        assert all((buffer.to_numpy() == 0).all() for buffer in kept)


def check_memory_of_copies_is_used_again(backend: str, image: str) -> None:
    """The pool reuses sources of finished copies while the stream continues."""
    pair = Pair(backend, image)
    with pair.devices[0] as first:
        used = first.pool_statistics()["bytes_in_use"]
        for _ in range(30):
            busy = keep_busy(pair)
            source = DeviceBuffer.zeros(1_000_000, "u32")
            pair.buffers[1][:1000].copy_from_async(source[:1000], pair.streams[1])
            source.close()
            first.memory_limit = max(used + 2**24, first.pool_statistics()["bytes_reserved"])
            busy.close()
        pair.streams[1].synchronize()
        assert first.pool_statistics()["bytes_in_use"] == used
        first.memory_limit = None
        assert first.pool_statistics()["bytes_reserved"] < used + 2**25


def check_a_peers_memory_is_kept_while_a_kernel_uses_it(backend: str, image: str) -> None:
    pair = Pair(backend, image)
    first, second = pair.devices
    if not second.can_access_peer(first):
        return
    second.enable_peer_access(first)
    step, stream = pair.steps[1], pair.streams[1]
    values = np.random.default_rng().integers(0, 2**32, pair.values.size, "u4")
    expected = values * np.uint32(3) + np.uint32(1)
    with first:
        source = DeviceBuffer.from_numpy(values)
        owner = DeviceBuffer.from_numpy(values)
        given = DeviceBuffer.from_raw(owner.as_device_ptr(), owner.size, "u32", owner=owner)
        seen = given[:]
    with stream.capture() as plan:
        step[4, 64, 0, stream](values.size, 3, 1, seen)
    kept = weakref.ref(owner)
    keep_busy(pair)
    step[4, 64, 0, stream](values.size, 3, 1, source)
    pair.buffers[1].copy_from_async(source, stream)
    plan.replay()
    source.close()
    given.close()
    del source, given, seen, owner
    gc.collect()
    assert kept() is not None
    with first:
        others = [DeviceBuffer.from_numpy(pair.values) for _ in range(4)]
    stream.synchronize()
    assert np.array_equal(pair.buffers[1].to_numpy(), expected)
    assert all(np.array_equal(buffer.to_numpy(), pair.values) for buffer in others)
    assert kept() is not None
    plan.close()
    del plan
    gc.collect()
    assert kept() is None


def check_a_device_closes_while_another_reads_its_memory(backend: str, image: str) -> None:
    pair = Pair(backend, image)
    keep_busy(pair)
    source = DeviceBuffer.from_numpy(pair.values + np.uint32(1), device=pair.devices[0])
    pair.buffers[1].copy_from_async(source, pair.streams[1])
    source.close()
    pair.streams[0].close()
    pair.buffers[0].close()
    pair.devices[0].close()
    pair.streams[1].synchronize()
    assert np.array_equal(pair.buffers[1].to_numpy(), pair.values + np.uint32(1))


CHECKS = (
    check_foreign_objects_are_refused,
    check_copies_between_devices,
    check_events_order_streams_of_two_devices,
    check_threads_each_on_their_device,
    check_tasks_each_on_their_device,
    check_one_closes_and_the_other_works_on,
    check_a_source_is_kept_until_it_is_copied,
    check_memory_of_copies_is_used_again,
    check_a_peers_memory_is_kept_while_a_kernel_uses_it,
    check_a_device_closes_while_another_reads_its_memory,
)
