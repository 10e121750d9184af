"""The pool under load: contents of buffers survive uses on several streams, and frees."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from uhal import Device, DeviceBuffer, HostBuffer, Module, Stream, StreamFlags
from uhal.errors import OutOfMemoryError
from uhal_conformance.gate import Gate
from uhal_conformance.sampling import rounds


@dataclass
class Holding:
    """A buffer, its expected contents, and the stream that wrote them."""

    buffer: DeviceBuffer
    expected: np.ndarray[tuple[int], np.dtype[np.uint32]]
    stream: Stream


@pytest.mark.drawn(3, among_backends=True)
def test_contents_under_load(device: Device, basic: Module, rng: np.random.Generator) -> None:
    """The test orders data between streams by events; the pool orders the reuse of memory."""
    fill, step = basic.get_function("fill"), basic.get_function("step")
    streams = [Stream(StreamFlags.NON_BLOCKING) for _ in range(4)]
    held: list[Holding] = []
    sizes = [1, 64, 1000, 5000, 70_000, 300_000]
    checks = 0
    for turn in range(rounds(2500, 200_000)):
        stream = streams[rng.integers(len(streams))]
        choice = int(rng.integers(8))
        if choice <= 2 and len(held) < 40:
            size = int(rng.choice(sizes))
            buffer = DeviceBuffer.uninitialized(size, "u32")
            fill[2, 32, 0, stream](size, turn, buffer)
            held.append(Holding(buffer, np.full(size, turn, "u4"), stream))
        elif choice <= 4 and held:
            item = held[rng.integers(len(held))]
            if item.stream is not stream:
                stream.wait_event(item.stream.record_event())
                item.stream = stream
            step[2, 32, 0, stream](item.buffer.size, 3, turn, item.buffer)
            item.expected = item.expected * np.uint32(3) + np.uint32(turn)
        elif choice == 5 and held:
            item = held.pop(rng.integers(len(held)))
            assert np.array_equal(item.buffer.to_numpy(stream=item.stream), item.expected)
            checks += 1
        elif held:
            # free the buffer now, even with pending work
            held.pop(rng.integers(len(held))).buffer.close()
    for item in held:
        assert np.array_equal(item.buffer.to_numpy(), item.expected)
    statistics = device.pool_statistics()
    assert statistics["reuses"] > 0
    print(f"{checks} contents checked, {statistics['reuses']} reuses")


def test_memory_freed_behind_a_gate_is_not_written_by_its_next_owner(
    device: Device, basic: Module, gate: Callable[[], Gate]
) -> None:
    fill = basic.get_function("fill")
    size = 54_321
    result = HostBuffer(size, "u32")
    with Stream(StreamFlags.NON_BLOCKING) as held, Stream(StreamFlags.NON_BLOCKING) as free:
        barrier = gate()
        barrier.hold(held)
        first = DeviceBuffer.uninitialized(size, "u32")
        fill[2, 32, 0, held](size, 1, first)
        first.copy_to_async(result, held)
        first.close()
        for value in (2, 3):
            other = DeviceBuffer.uninitialized(size, "u32")
            fill[2, 32, 0, free](size, value, other)
            other.close()
        barrier.open()
        held.synchronize()
        free.synchronize()
    assert (result.array == 1).all()


def test_a_device_that_has_not_so_much_memory_says_so(device: Device) -> None:
    with pytest.raises(OutOfMemoryError, match=f"Asked for {2**60}"):
        DeviceBuffer.uninitialized(2**60, "u8")
    assert DeviceBuffer.zeros(4, "u8").to_numpy().tolist() == [0] * 4


def test_memory_goes_back_when_asked(device: Device) -> None:
    device.empty_cache()
    before = device.pool_statistics()["bytes_reserved"]
    buffer = DeviceBuffer.zeros(10 << 20, "u8")
    assert device.pool_statistics()["bytes_reserved"] == before + (10 << 20)
    device.synchronize()
    buffer.close()
    assert device.pool_statistics()["bytes_reserved"] == before + (10 << 20)
    assert device.empty_cache() >= 10 << 20
    assert device.pool_statistics()["bytes_reserved"] == before


def test_native_stream_ordered_memory(
    device: Device, basic: Module, gate: Callable[[], Gate]
) -> None:
    fill = basic.get_function("fill")
    with Stream() as stream, Stream() as other:
        barrier = gate()
        barrier.hold(stream)
        buffer = DeviceBuffer.uninitialized_async(1000, "u32", stream, native=True)
        fill[1, 32, 0, stream](1000, 4, buffer)
        other.wait_event(stream.record_event())
        result = HostBuffer(1000, "u32")
        buffer.copy_to_async(result, other)
        buffer.close()
        barrier.open()
        other.synchronize()
        assert (result.array == 4).all()


def test_a_device_keeps_to_its_limit_and_names_who_has_the_memory(
    device: Device, basic: Module
) -> None:
    fill = basic.get_function("fill")
    device.empty_cache()
    size = 1 << 20
    device.memory_limit = device.pool_statistics()["bytes_reserved"] + 11 * size
    try:
        held = DeviceBuffer.uninitialized(size, "u32")
        with pytest.raises(OutOfMemoryError, match=r"memory limit (.*\n)+  .*\[test_pool.py:\d+\]"):
            DeviceBuffer.uninitialized(2 * size, "u32")
        with Stream(StreamFlags.NON_BLOCKING) as stream:
            for turn in range(5):
                # Memory in use becomes free when its work is done.
                other = DeviceBuffer.uninitialized(size + turn * size // 8, "u32")
                fill[2, 32, 0, stream](other.size, turn, other)
                assert (other.to_numpy(stream=stream) == turn).all()
                other.close()
        (owner,) = [one for one in device.memory_owners() if one.site.startswith("test_pool.py")]
        assert (owner.nbytes, owner.buffers) == (4 * size, 1)
        held.close()
    finally:
        device.memory_limit = None
    assert len(DeviceBuffer.uninitialized(4 * size, "u32")) == 4 * size
