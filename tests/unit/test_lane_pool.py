"""The pool reuses memory as early as possible, orders uses by events, and frees without waiting."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest

from tests.counting_bench import Bench, use
from tests.counting_driver import BLOCKING_SLOTS, OUT_OF_MEMORY
from tests.sampling import rounds
from tests.unit.race_detector import RaceDetector
from uhal import DeviceBuffer, HostBuffer, Stream
from uhal.errors import DeviceError, OutOfMemoryError

QUESTIONS = ("current", "bind", "stream_query", "event_query")


def statistics(bench: Bench) -> dict[str, int]:
    return bench.context.pool_statistics()


# -- order -----------------------------------------------------------------------------------------


def test_a_freed_block_is_reused_at_once_on_its_own_stream(bench: Bench) -> None:
    stream = bench.busy_stream()
    first = bench.buffer(1000)
    (address,) = use(bench, stream, first)
    first.close()
    second = DeviceBuffer.uninitialized_async(1000, "f32", stream)
    function = bench.function("ptr x")
    bench.quiet()
    function[1, 1, 0, stream](second)
    assert bench.driver.slots() == ["launch"]
    assert use(bench, stream, second) == [address]
    assert statistics(bench)["reuses"] == 1


def test_another_stream_waits_once_on_the_device(bench: Bench) -> None:
    busy = bench.busy_stream()
    first = bench.buffer(1000)
    (address,) = use(bench, busy, first)
    first.close()
    second = bench.buffer(1000)
    others = [Stream(), Stream()]
    function = bench.function("ptr x")
    for other in others:
        bench.quiet()
        function[1, 1, 0, other](second)
        calls = bench.driver.calls
        ordered = bench.driver.slots(*QUESTIONS, "event_create")
        if other is others[0]:
            assert ordered == ["event_record", "stream_wait_event", "launch"]
            (event, recorded_in) = next(a for slot, a in calls if slot == "event_record")
            assert recorded_in == busy.handle
        else:
            # the wait uses the event that was recorded before
            assert ordered == ["stream_wait_event", "launch"]
        (waiting, waited_for, _) = next(a for slot, a in calls if slot == "stream_wait_event")
        assert (waiting, waited_for) == (other.handle, event)
        bench.quiet()
        function[1, 1, 0, other](second)
        assert bench.driver.slots() == ["launch"]
    assert use(bench, others[1], second) == [address]


def test_a_stream_takes_its_own_block_before_a_younger_one_of_another(bench: Bench) -> None:
    streams = [bench.busy_stream() for _ in range(3)]
    buffers = [bench.buffer(1000) for _ in streams]
    (first,), (own,), (last,) = map(lambda *pair: use(bench, *pair), streams, buffers)
    for buffer in buffers:
        buffer.close()
    again = DeviceBuffer.uninitialized_async(1000, "f32", streams[1])
    bench.quiet()
    assert use(bench, streams[1], again) == [own] and own not in (first, last)
    assert bench.driver.count("stream_wait_event") == 0


def test_nobody_waits_for_work_that_is_done(bench: Bench) -> None:
    busy = bench.busy_stream()
    first = bench.buffer(1000)
    use(bench, busy, first)
    first.close()
    second = bench.buffer(1000)
    bench.driver.busy.clear()
    function = bench.function("ptr x")
    bench.quiet()
    function[1, 1](second)
    assert bench.driver.slots() == ["stream_query", "launch"]


@pytest.mark.parametrize("reports", [False, True])
def test_a_closed_stream_s_work_is_waited_for_though_another_has_its_handle(
    bench: Bench, reports: bool
) -> None:
    """HSA's runtime may give a new stream the handle of a closed stream whose work is pending."""
    word = ctypes.c_uint32(0)
    if reports:
        bench.context.watch_reports(ctypes.addressof(word), list)
    closed = bench.busy_stream()
    buffer = bench.buffer(10)
    use(bench, closed, buffer)
    handle = closed.handle
    closed.close()
    with bench.driver.next_handle(handle):
        another = Stream()
    assert another.handle == handle
    bench.quiet()
    buffer.to_numpy()
    assert bench.driver.slots(*QUESTIONS)[0] == "stream_wait_event"
    bench.driver.busy.clear()
    bench.context.unwatch_reports(ctypes.addressof(word))


@pytest.mark.parametrize("maker", ["from_numpy", "zeros"])
def test_the_first_use_elsewhere_waits_for_the_upload_or_the_fill(bench: Bench, maker: str) -> None:
    busy = bench.busy_stream()
    if maker == "zeros":
        buffer = DeviceBuffer.zeros(10, "f32", stream=busy)
    else:
        buffer = DeviceBuffer.from_numpy(np.ones(10, "f4"), stream=busy)
    function = bench.function("ptr x")
    bench.quiet()
    function[1, 1](buffer)
    assert bench.driver.slots(*QUESTIONS, "event_create") == [
        "event_record",
        "stream_wait_event",
        "launch",
    ]


def test_a_block_of_several_streams_waits_for_all_but_one(bench: Bench) -> None:
    streams = [bench.busy_stream() for _ in range(3)]
    first = bench.buffer(1000)
    addresses = {use(bench, stream, first)[0] for stream in streams}
    bench.quiet()
    first.close()
    assert bench.driver.count("event_record") == 3
    second = bench.buffer(1000)
    assert use(bench, None, second)[0] not in addresses
    second.close()
    bench.driver.busy.discard(streams[0].handle)
    third, fourth = bench.buffer(1000), bench.buffer(1000)
    assert not addresses & set(use(bench, None, third, fourth))
    bench.driver.busy.discard(streams[2].handle)
    fifth = bench.buffer(1000)
    bench.quiet()
    assert set(use(bench, None, fifth)) == addresses
    # the event of the only remaining stream was recorded when the block was freed
    assert bench.driver.count("event_record") == 0
    assert bench.driver.count("stream_wait_event") == 1


@pytest.mark.parametrize("used_on", [0, 1, 2, 5])
@pytest.mark.parametrize("way", ["close", "collect", "with", "view", "exported"])
def test_freeing_never_blocks(bench: Bench, used_on: int, way: str) -> None:
    streams = [bench.busy_stream() for _ in range(used_on)]
    buffer = bench.buffer(1000)
    for stream in streams:
        use(bench, stream, buffer)
    view = buffer[10:]
    if way == "exported":
        buffer.as_device_ptr()
    bench.quiet()
    if way == "with":
        with buffer:
            pass
    elif way in ("close", "exported"):
        buffer.close()
    if way != "view":
        del view
    del buffer
    if way == "view":
        assert bench.driver.calls == []
        del view
    gc.collect()
    assert bench.driver.count(*BLOCKING_SLOTS) == 0
    assert statistics(bench)["bytes_in_use"] == 0
    assert len(bench.driver.busy) == used_on


def test_no_interleaving_makes_memory_race(bench: Bench, rng: np.random.Generator) -> None:
    driver = bench.driver
    detector = RaceDetector(driver)
    driver.on_call = detector.observe
    streams = [Stream() for _ in range(4)]
    function = bench.function("ptr x, ptr y")
    driver.parameter_sizes = [8, 8]
    buffers = [(n, bench.buffer(500)) for n in range(2)]
    made = 2
    for _ in range(rounds(3000, 100_000)):
        stream = streams[rng.integers(len(streams))]
        match rng.integers(10):
            case 0 | 1:
                driver.busy.discard(stream.handle)
                detector.finish(stream.handle)
            case 2:
                driver.busy.add(stream.handle)
            case 3 | 4 if len(buffers) > 2:
                buffers.pop(rng.integers(len(buffers)))[1].close()
            case 5 | 6 if len(buffers) < 12:
                buffers.append((made, bench.buffer(500)))
                made += 1
            case _:
                chosen = [buffers[i] for i in rng.choice(len(buffers), 2, replace=False)]
                function[1, 1, 0, stream](*(buffer for _, buffer in chosen))
                for (owner, _), data in zip(chosen, driver.parameters, strict=True):
                    address = int.from_bytes(data, "little")
                    detector.uses(stream.handle, owner, [address])
    assert detector.races == []
    assert statistics(bench)["reuses"] > 100
    driver.parameter_sizes = ()


def test_record_stream_makes_the_pool_wait_for_foreign_work(bench: Bench) -> None:
    busy = bench.busy_stream()
    buffer = bench.buffer(1000)
    (address,) = use(bench, None, buffer)
    buffer.record_stream(busy)
    buffer.close()
    again = bench.buffer(1000)
    bench.quiet()
    assert use(bench, None, again) == [address]
    (waiting,) = [a for slot, a in bench.driver.calls if slot == "stream_wait_event"]
    assert waiting[0] == Stream.default().handle


@pytest.mark.parametrize("export", [lambda b: b.as_device_ptr(), lambda b: b.__dlpack__()])
def test_exported_memory_is_reused_only_after_the_whole_device(
    bench: Bench, export: Callable[[DeviceBuffer], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[int] = []
    monkeypatch.setattr(bench.driver, "synchronize_device", waited.append)
    buffer = bench.buffer(1000)
    (address,) = use(bench, None, buffer)
    export(buffer)
    buffer.close()
    busy = bench.busy_stream()
    assert waited == []
    again = bench.buffer(1000)
    assert waited == [0]
    assert busy.handle not in bench.driver.busy
    assert use(bench, None, again) == [address]


# -- sizes -----------------------------------------------------------------------------------------


def test_blocks_are_aligned_disjoint_and_waste_an_eighth_at_most(
    bench: Bench, rng: np.random.Generator
) -> None:
    sizes = [1, 255, 256, 257, 512, 4096, 262_144, 262_145, 3_000_000]
    sizes += [int(n) for n in 2 ** rng.uniform(0, 21, rounds(150, 2000))]
    spans = []
    buffers = []
    for size in sizes:
        before = statistics(bench)["bytes_in_use"]
        buffer = bench.buffer(size, "u8")
        capacity = statistics(bench)["bytes_in_use"] - before
        assert size <= capacity <= max(256, -(-size * 9 // 8 // 256) * 256 + 256)
        (address,) = use(bench, None, buffer)
        assert address % 256 == 0
        spans.append((address, address + capacity))
        buffers.append(buffer)
    for (_, end), (start, _) in pairwise(sorted(spans)):
        assert end <= start
    assert statistics(bench)["blocks_in_use"] == len(buffers)


def test_a_class_is_found_again_for_every_size_in_it(bench: Bench) -> None:
    bench.buffer(1000, "u8").close()
    allocations = statistics(bench)["driver_allocations"]
    for size in (1000, 961, 1024):
        bench.buffer(size, "u8").close()
    found = statistics(bench)
    assert (found["reuses"], found["driver_allocations"]) == (3, allocations)


def test_statistics_tell_what_is_in_use_reserved_and_was_most(bench: Bench) -> None:
    assert set(statistics(bench).values()) == {0}
    large = bench.buffer(1 << 20, "u8")
    small = bench.buffer(1, "u8")
    found = statistics(bench)
    assert found["bytes_in_use"] == (1 << 20) + 256
    assert found["bytes_reserved"] == (1 << 20) + (2 << 20)
    assert (found["blocks_in_use"], found["driver_allocations"]) == (2, 2)
    assert (found["segments"], found["allocations"]) == (2, 2)
    large.close()
    small.close()
    found = statistics(bench)
    assert (found["bytes_in_use"], found["blocks_in_use"]) == (0, 0)
    assert found["peak_bytes_in_use"] == (1 << 20) + 256
    assert found["bytes_reserved"] == 3 << 20
    assert bench.device.empty_cache() == 3 << 20
    found = statistics(bench)
    assert (found["driver_frees"], found["peak_bytes_reserved"]) == (2, 3 << 20)
    bench.device.reset_peak_memory_stats()
    found = statistics(bench)
    assert (found["peak_bytes_in_use"], found["peak_bytes_reserved"]) == (0, 0)


def test_empty_cache_gives_back_what_nobody_uses(bench: Bench) -> None:
    kept = bench.buffer(1 << 20, "u8")
    busy = bench.busy_stream()
    pending = bench.buffer(1 << 20, "u8")
    use(bench, busy, pending)
    idle = bench.buffer(1 << 20, "u8")
    exported = bench.buffer(3 << 20, "u8")
    exported.as_device_ptr()
    pending.close()
    idle.close()
    exported.close()
    # only the exported block needs a wait, which also ends the pending work
    assert bench.device.empty_cache() == 5 << 20
    assert bench.driver.count("free") == 3
    assert bench.device.empty_cache() == 0
    again = bench.buffer(1 << 20, "u8")
    bench.driver.busy.add(busy.handle)
    use(bench, busy, again)
    again.close()
    assert bench.device.empty_cache() == 0
    bench.driver.busy.clear()
    assert bench.device.empty_cache() == 1 << 20
    use(bench, None, kept)


# -- a full device ---------------------------------------------------------------------------------

OVERLAPPING = slice(0, 600), slice(300, 900)
MAKERS: dict[str, Callable[[], object]] = {
    "uninitialized": lambda: DeviceBuffer.uninitialized(1 << 20, "u8"),
    "zeros": lambda: DeviceBuffer.zeros(1 << 20, "u8"),
    "from_numpy": lambda: DeviceBuffer.from_numpy(np.zeros(1 << 20, "u1")),
    "from_slice": lambda: DeviceBuffer.from_slice([1] * 300_000, "u8"),
    "async": lambda: DeviceBuffer.uninitialized_async(1 << 20, "u8", Stream.default()),
    "small": lambda: DeviceBuffer.uninitialized(1, "u8"),
}


@pytest.mark.parametrize("maker", MAKERS)
def test_a_full_device_is_drained_emptied_and_asked_again(bench: Bench, maker: str) -> None:
    busy = bench.busy_stream()
    cached = bench.buffer(5 << 20, "u8")
    use(bench, busy, cached)
    cached.close()
    bench.driver.failures["alloc"] = [OUT_OF_MEMORY]
    bench.quiet()
    made = MAKERS[maker]()
    found = bench.driver.slots(*QUESTIONS)
    assert found[:4] == ["alloc", "stream_synchronize", "free", "alloc"]
    del made


@pytest.mark.parametrize("maker", MAKERS)
def test_a_device_that_stays_full_is_an_out_of_memory_error(bench: Bench, maker: str) -> None:
    held = bench.buffer(6 << 20, "u8")
    before = statistics(bench)
    bench.driver.failures["alloc"] = [OUT_OF_MEMORY, OUT_OF_MEMORY]
    with pytest.raises(OutOfMemoryError) as caught:
        MAKERS[maker]()
    assert isinstance(caught.value, MemoryError)
    assert (caught.value.code, caught.value.backend) == (OUT_OF_MEMORY, "counting")
    asked = {"small": 2 << 20, "from_slice": 320 << 10}.get(maker, 1 << 20)
    assert (
        f"Asked for {asked} bytes; 1 live buffers hold {6 << 20} bytes and 0 more are reserved by "
        f"the pool. The largest owners:\n  {6 << 20} bytes in 1 buffer [counting_bench.py:"
    ) in str(caught.value)
    after = statistics(bench)
    assert (after.pop("retries"), after.pop("out_of_memory")) == (1, 1)
    assert after == {name: before[name] for name in after}
    assert MAKERS[maker]() is not None
    use(bench, None, held)


def test_the_temporary_of_an_overlapping_copy_may_find_no_memory(bench: Bench) -> None:
    buffer = DeviceBuffer.from_numpy(np.arange(900_000, dtype="u4").view("u1")[:1_000_000])
    first, second = buffer[:600_000], buffer[300_000:900_000]
    expected = buffer.to_numpy()
    bench.driver.failures["alloc"] = [OUT_OF_MEMORY, OUT_OF_MEMORY]
    with pytest.raises(OutOfMemoryError):
        first.copy_from(second)
    assert np.array_equal(buffer.to_numpy(), expected)
    first.copy_from(second)
    assert np.array_equal(first.to_numpy(), expected[300_000:900_000])


def test_pinned_memory_may_run_out(bench: Bench) -> None:
    bench.driver.failures["host_alloc"] = [OUT_OF_MEMORY]
    with pytest.raises(OutOfMemoryError, match="host_alloc: OUT_OF_MEMORY"):
        HostBuffer(10, "f32")
    assert len(HostBuffer(10, "f32")) == 10


@pytest.mark.parametrize("maker", ["plain", "native"])
def test_an_allocation_that_breaks_off_is_not_counted(bench: Bench, maker: str) -> None:
    bench.buffer().close()
    busy = bench.busy_stream()
    stream = Stream()
    before = statistics(bench)
    slot = {"plain": "alloc", "native": "alloc_async"}[maker]
    bench.driver.failures = {slot: [OUT_OF_MEMORY], "stream_synchronize": [1]}
    with pytest.raises(DeviceError, match="stream_synchronize"):
        DeviceBuffer.uninitialized_async(1 << 20, "f32", stream, native=maker == "native")
    found = statistics(bench)
    assert found["bytes_reserved"] == before["bytes_reserved"]
    assert found["bytes_in_use"] == before["bytes_in_use"]
    busy.synchronize()
