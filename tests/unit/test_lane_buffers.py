"""Views, empty buffers, and memory from the driver's own stream-ordered allocator."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from tests.counting_bench import Bench, use
from tests.counting_driver import BLOCKING_SLOTS, CountingDriver
from uhal import DeviceBuffer, HostBuffer, Stream
from uhal.errors import ArgumentValueError, InvalidHandleError, NotSupportedError


def test_a_view_holds_the_memory_and_closes_with_its_parent(bench: Bench) -> None:
    parent = bench.buffer(1000)
    (address,) = use(bench, None, parent)
    view = parent[100:][100:200]
    assert (view.size, use(bench, None, view)) == (100, [address + 800])
    del parent
    gc.collect()
    other = bench.buffer(1000)
    assert use(bench, None, other) != [address]
    assert use(bench, None, view) == [address + 800]
    view_of_view = view[10:20]
    view.close()
    assert view.closed
    # closing a view closes neither its parent nor its siblings
    assert not view_of_view.closed
    assert use(bench, None, view_of_view) == [address + 840]


def test_closing_the_parent_closes_its_views(bench: Bench) -> None:
    parent = bench.buffer(1000)
    view = parent[1:3]
    deeper = view[:1]
    parent.close()
    for buffer in (parent, view, deeper):
        assert buffer.closed
        with pytest.raises(InvalidHandleError, match="the buffer is closed"):
            buffer.to_numpy()
        buffer.close()


def test_fills_are_of_whole_aligned_words(bench: Bench) -> None:
    buffer = bench.buffer(16, "u8")
    fills = {1: DeviceBuffer.set_8, 2: DeviceBuffer.set_16, 4: DeviceBuffer.set_32}
    for width, fill in fills.items():
        for offset in range(5):
            for nbytes in range(9):
                bench.quiet()
                part = buffer[offset : offset + nbytes]
                fits = nbytes == 0 or offset % width == 0 == nbytes % width
                if fits:
                    fill(part, 7)
                else:
                    with pytest.raises(ArgumentValueError, match=f"aligned {width}-byte words"):
                        fill(part, 7)
                assert bench.driver.count(f"memset_{8 * width}") == (fits and nbytes > 0)


@pytest.mark.parametrize("nbytes", [0, 1, 15, 17, 32])
def test_bytes_of_a_copy_are_as_many_as_the_buffers(bench: Bench, nbytes: int) -> None:
    buffer = bench.buffer(4, "f32")
    bench.quiet()
    for wrong in (bytes(nbytes), bytearray(nbytes), memoryview(bytes(nbytes))):
        with pytest.raises(ArgumentValueError, match=f"expected 16 bytes, got {nbytes}"):
            buffer.copy_from(wrong)
    for target in (bytearray(nbytes), memoryview(bytearray(nbytes))):
        with pytest.raises(ArgumentValueError, match=f"expected 16 bytes, got {nbytes}"):
            buffer.copy_to(target)
    assert bench.driver.count("copy_h2d", "copy_d2h") == 0


def test_nothing_takes_no_memory_and_works_everywhere(bench: Bench) -> None:
    bench.quiet()
    empty = [
        DeviceBuffer.from_numpy(np.empty((3, 0), "f4")),
        DeviceBuffer.from_slice([], "f32"),
        DeviceBuffer.zeros(0, "f32"),
        DeviceBuffer.uninitialized(0, "f32"),
        DeviceBuffer.uninitialized_async(0, "f32", Stream.default()),
        bench.buffer(4)[2:2],
    ]
    allocations = bench.context.pool_statistics()["driver_allocations"]
    assert allocations == 1
    for buffer in empty:
        assert (len(buffer), buffer.nbytes) == (0, 0)
        assert buffer.to_numpy().shape == (0,)
        buffer.copy_from(np.empty(0, "f4"))
        buffer.copy_from(empty[0])
        buffer.copy_to(bytearray())
        buffer.set_8(1)
        buffer.set_32(1)
        assert buffer[:].view("u8").size == 0
    assert bench.driver.count("copy_h2d", "copy_d2h", "copy_d2d", "memset_8", "memset_32") == 0
    bench.function("const f32* x, f32* y")[1, 1](empty[0], empty[1])
    assert bench.driver.count("launch") == 1
    for buffer in empty:
        buffer.close()


def test_the_drivers_own_allocator_works_in_stream_order(bench: Bench) -> None:
    stream, other = bench.busy_stream(), bench.busy_stream()
    buffer = DeviceBuffer.uninitialized_async(1000, "f32", stream, native=True)
    use(bench, other, buffer)
    bench.quiet()
    buffer.close()
    found = [
        (slot, arguments)
        for slot, arguments in bench.driver.calls
        if slot not in ("current", "bind")
    ]
    assert [slot for slot, _ in found[-2:]] == ["stream_wait_event", "free_async"]
    assert found[-2][1][0] == stream.handle
    assert found[-1][1][1] == stream.handle
    assert bench.driver.count(*BLOCKING_SLOTS, "free") == 0


def test_memory_of_a_closed_stream_goes_back_on_the_default_one(bench: Bench) -> None:
    stream = bench.busy_stream()
    buffer = DeviceBuffer.uninitialized_async(1000, "f32", stream, native=True)
    stream.close()
    bench.quiet()
    buffer.close()
    calls = [(s, a) for s, a in bench.driver.calls if s in ("stream_wait_event", "free_async")]
    assert [slot for slot, _ in calls] == ["stream_wait_event", "free_async"]
    assert {calls[0][1][0], calls[1][1][1]} == {Stream.default().handle}


@pytest.mark.parametrize(
    "without",
    [
        pytest.param(
            slot, marks=pytest.mark.bench(driver=lambda s=slot: CountingDriver(without=(s,)))
        )
        for slot in ("alloc_async", "free_async")
    ],
)
def test_a_driver_without_its_own_allocator_says_so(bench: Bench, without: str) -> None:
    with pytest.raises(NotSupportedError, match="no stream-ordered allocation of its own"):
        DeviceBuffer.uninitialized_async(10, "f32", Stream.default(), native=True)
    DeviceBuffer.uninitialized_async(10, "f32", Stream.default())


# -- rows ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spare", [-1, 0, 1])
def test_the_last_row_of_a_copy_may_end_with_the_buffer(
    bench: Bench, spare: int, rng: np.random.Generator
) -> None:
    rows, columns, gap = (int(n) for n in rng.integers(2, 9, 3))
    pitch = columns + gap
    size = (rows - 1) * pitch + columns + spare
    array = rng.standard_normal((rows, columns), dtype="f4")
    expected = np.full(size, -1, "f4")
    buffer = DeviceBuffer.from_numpy(expected)
    pinned = HostBuffer(size, "f32")
    back = bench.buffer(rows * columns)
    copies = (
        lambda: buffer.copy_2d_from(array, pitch=pitch),
        lambda: buffer.copy_2d_to(pinned, (rows, columns), pitch=pitch, destination_pitch=pitch),
        lambda: back.copy_2d_from(buffer, (rows, columns), source_pitch=pitch),
    )
    if spare < 0:
        for copy in copies:
            bench.quiet()
            with pytest.raises(ArgumentValueError, match=f"expected rows within {size} "):
                copy()
            assert bench.driver.slots() == []
        return
    for copy in copies:
        copy()
    at = np.arange(rows)[:, None] * pitch + np.arange(columns)
    expected[at] = array
    assert np.array_equal(buffer.to_numpy(), expected)
    assert np.array_equal(pinned.array[at], array)
    assert np.array_equal(back.to_numpy(), array.ravel())


@pytest.mark.parametrize("distance", [-13, -12, -11, -9, -1, 0, 1, 9, 11, 12, 13])
def test_rows_that_overlap_are_copied_as_they_were(
    bench: Bench, distance: int, rng: np.random.Generator
) -> None:
    rows, columns, start = 3, 4, 16
    span = rows * columns
    values = rng.standard_normal(start + 2 * span + 2, dtype="f4")
    buffer = DeviceBuffer.from_numpy(values)
    bench.quiet()
    to = start + distance
    buffer[to:].copy_2d_from(buffer[start:], (rows, columns))
    values[to : to + span] = values[start : start + span].copy()
    assert np.array_equal(buffer.to_numpy(), values)
    # rows that only touch need no temporary copy
    assert bench.driver.count("copy_d2d") == (2 if abs(distance) < span else 1)
