"""Streams run their work in order, in parallel, and after the events they wait for."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from uhal import Device, DeviceBuffer, Event, EventFlags, HostBuffer, Module, Stream, StreamFlags
from uhal.errors import ArgumentTypeError, ArgumentValueError, InvalidHandleError
from uhal_conformance.gate import Gate
from uhal_conformance.sampling import rounds

Gates = Callable[[], Gate]


class Steps:
    """x → x * multiply + add on the device and in numpy: a wrong order changes the exact result."""

    def __init__(self, basic: Module, rng: np.random.Generator, size: int = 1000) -> None:
        self._kernel = basic.get_function("step")
        self._rng = rng
        self.expected = rng.integers(0, 2**32, size, "u4")
        self.buffer = DeviceBuffer.from_numpy(self.expected)

    def launch(self, stream: Stream | None) -> None:
        multiply, add = (int(n) for n in self._rng.integers(0, 2**31, 2))
        size = self.buffer.size
        grid = int(self._rng.integers(1, 5))
        self._kernel[grid, 128, 0, stream](size, 2 * multiply + 1, add, self.buffer)
        self.expected = self.expected * np.uint32(2 * multiply + 1) + np.uint32(add)

    def check(self) -> None:
        assert np.array_equal(self.buffer.to_numpy(), self.expected)


@pytest.fixture
def steps(basic: Module, rng: np.random.Generator) -> Callable[[], Steps]:
    return lambda: Steps(basic, rng)


@pytest.mark.parametrize("flags", StreamFlags)
def test_work_of_a_stream_runs_in_order(
    device: Device, steps: Callable[[], Steps], flags: StreamFlags
) -> None:
    chain = steps()
    with Stream(flags) as stream:
        assert stream.flags is flags
        for _ in range(rounds(500, 20_000)):
            chain.launch(stream)
        stream.synchronize()
        chain.check()


def test_the_default_stream_is_what_none_means(device: Device, steps: Callable[[], Steps]) -> None:
    chain = steps()
    default = Stream.default()
    for number in range(100):
        chain.launch(default if number % 2 else None)
    default.synchronize()
    chain.check()
    assert Stream.default().handle == default.handle
    default.close()
    assert not default.closed
    chain.launch(None)
    chain.check()


def test_a_stream_goes_on_while_another_is_held(
    device: Device, steps: Callable[[], Steps], gate: Gates
) -> None:
    held, free = steps(), steps()
    with Stream(StreamFlags.NON_BLOCKING) as first, Stream(StreamFlags.NON_BLOCKING) as second:
        barrier = gate()
        barrier.hold(first)
        held.launch(first)
        for _ in range(50):
            free.launch(second)
        second.synchronize()
        assert np.array_equal(free.buffer.to_numpy(stream=second), free.expected)
        assert not first.query()
        assert second.query()
        barrier.open()
        first.synchronize()
        assert first.query()
        held.check()


@pytest.mark.parametrize("flags", [StreamFlags.DEFAULT, StreamFlags.NON_BLOCKING])
def test_no_stream_waits_for_the_default_stream(
    device: Device, steps: Callable[[], Steps], gate: Gates, flags: StreamFlags
) -> None:
    held, free = steps(), steps()
    with Stream(flags) as stream:
        default = Stream.default()
        default.synchronize()  # it has copied what `free` needs
        for first, second in ((default, stream), (stream, default)):
            barrier = gate()
            barrier.hold(first)
            held.launch(first)
            free.launch(second)
            second.synchronize()
            assert not first.query()
            barrier.open()
            first.synchronize()
    held.check()
    free.check()


def test_a_stream_waits_for_the_events_of_others(
    device: Device, steps: Callable[[], Steps], gate: Gates
) -> None:
    chain = steps()
    streams = [Stream(StreamFlags.NON_BLOCKING) for _ in range(4)]
    barrier = gate()
    barrier.hold(streams[0])
    for number in range(100):
        stream = streams[number % 4]
        if number:
            stream.wait_event(streams[(number - 1) % 4].record_event())
        chain.launch(stream)
    assert not streams[1].query()
    barrier.open()
    streams[99 % 4].synchronize()
    chain.check()


def test_waiting_is_for_the_record_that_was_made_before(
    device: Device, steps: Callable[[], Steps], gate: Gates
) -> None:
    """A wait is for the last record before the wait, even if the event is recorded again
    later."""
    chain = steps()
    first, second, third = (Stream(StreamFlags.NON_BLOCKING) for _ in range(3))
    event = Event()
    chain.launch(first)
    event.record(first)
    second.wait_event(event)
    barrier = gate()
    barrier.hold(third)
    event.record(third)
    chain.launch(second)
    second.synchronize()
    assert np.array_equal(chain.buffer.to_numpy(stream=second), chain.expected)
    assert not event.query()
    barrier.open()
    event.synchronize()


def test_waiting_for_an_event_never_recorded_waits_for_nothing(device: Device) -> None:
    event = Event()
    with Stream() as stream:
        stream.wait_event(event)
        stream.synchronize()
        event.synchronize()
        assert event.query()


def test_fifty_streams(device: Device, steps: Callable[[], Steps]) -> None:
    chains = [(steps(), Stream()) for _ in range(50)]
    for _ in range(20):
        for chain, stream in chains:
            chain.launch(stream)
    for chain, stream in chains:
        assert np.array_equal(chain.buffer.to_numpy(stream=stream), chain.expected)
    assert len({stream.id for _, stream in chains}) == 50


def test_priorities_are_clamped_to_what_the_device_has(
    device: Device, steps: Callable[[], Steps]
) -> None:
    found = {}
    for priority in (-100, -1, 0, 100):
        chain = steps()
        with Stream(priority=priority) as stream:
            found[priority] = stream.priority
            for _ in range(10):
                chain.launch(stream)
            stream.synchronize()
            chain.check()
    assert found[-100] <= found[-1] <= found[0] <= found[100]


def test_closing_a_stream_lets_its_work_finish(
    device: Device, steps: Callable[[], Steps], gate: Gates
) -> None:
    chain = steps()
    stream = Stream()
    barrier = gate()
    barrier.hold(stream)
    for _ in range(20):
        chain.launch(stream)
    stream.close()
    stream.close()
    assert stream.closed
    for act in (stream.synchronize, stream.query, stream.record_event):
        with pytest.raises(InvalidHandleError, match="closed"):
            act()
    barrier.open()
    # the buffer still orders its reads after the closed stream's launches
    chain.check()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("fast",), ArgumentTypeError),
        ((None,), ArgumentTypeError),
        ((True,), ArgumentTypeError),
        ((2,), ArgumentValueError),
        ((-1,), ArgumentValueError),
    ],
)
def test_wrong_flags_are_refused(
    device: Device, arguments: tuple[Any, ...], error: type[Exception]
) -> None:
    with pytest.raises(error, match="flags: expected StreamFlags"):
        Stream(*arguments)


NO_NUMBERS = (1.5, "1", None, True, np.float32(1), 1j, np.zeros(2))
NO_FLAGS = (-1, 8, 2**31, 2**32, 2**33, 2**64, 10**30, -(2**33))


def test_flags_of_every_wrong_kind_and_size_are_refused(device: Device) -> None:
    for make in (Stream, Event):
        for wrong in NO_NUMBERS:
            with pytest.raises(ArgumentTypeError, match=f"flags: expected {make.__name__}Flags"):
                make(wrong)  # type: ignore[call-overload]
        for number in NO_FLAGS:
            with pytest.raises(ArgumentValueError, match=f"flags: expected {make.__name__}Flags"):
                make(number)


def test_priorities_are_ints_of_any_size(device: Device) -> None:
    for wrong in NO_NUMBERS:
        with pytest.raises(ArgumentTypeError, match="priority: expected an int, got"):
            Stream(0, wrong)  # type: ignore[arg-type]
    with Stream(0, -(2**70)) as most, Stream(0, 2**70) as least, Stream(0, np.int8(0)) as usual:
        assert most.priority <= usual.priority <= least.priority


def test_streams_are_equal_where_the_native_ones_are(device: Device) -> None:
    default = Stream.default()
    assert default == Stream.default()
    assert len({Stream.default() for _ in range(5)}) == 1
    with Stream() as one, Stream() as other:
        assert one == one
        assert len({one, other, default}) == 3
        assert one != other
        assert one != one.handle
        known = {one: 1, other: 2}
        assert (known[one], known[other]) == (1, 2)
    assert one != other


# -- host callbacks --------------------------------------------------------------------------------


def test_callbacks_run_in_order_when_the_stream_gets_there(
    device: Device, steps: Callable[[], Steps], gate: Gates
) -> None:
    called: list[tuple[int, int]] = []
    done = threading.Event()
    chain = steps()
    with Stream() as stream:
        barrier = gate()
        barrier.hold(stream)
        for number in range(50):
            chain.launch(stream)
            stream.add_callback(lambda n: called.append((n, threading.get_ident())), number)
        stream.add_callback(done.set)
        assert called == []
        barrier.open()
        assert done.wait(30)
        stream.synchronize()
    assert [number for number, _ in called] == list(range(50))
    threads = {thread for _, thread in called}
    assert len(threads) == 1
    assert threading.get_ident() not in threads
    chain.check()


def test_the_stream_does_not_wait_for_the_python_body(
    device: Device, steps: Callable[[], Steps]
) -> None:
    chain = steps()
    release, done = threading.Event(), threading.Event()
    with Stream() as stream:
        stream.add_callback(release.wait, 30)
        stream.add_callback(done.set)
        chain.launch(stream)
        stream.synchronize()
        chain.check()
        assert not done.is_set()
        release.set()
        assert done.wait(30)


def test_a_failing_callback_is_reported_and_the_next_one_runs(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", reported.append)
    done = threading.Event()

    def fail() -> None:
        raise RuntimeError("on purpose")

    with Stream() as stream:
        stream.add_callback(fail)
        stream.add_callback(done.set)
        assert done.wait(30)
    (report,) = reported
    assert isinstance(report.exc_value, RuntimeError)
    assert report.object is fail
    reported.clear()
    del report
    with Stream() as stream, pytest.raises(TypeError, match="callable"):
        stream.add_callback(5)  # type: ignore[arg-type]


def test_a_callback_may_use_the_device(device: Device, steps: Callable[[], Steps]) -> None:
    """The callback may even launch into its own stream, because a launch does not wait."""
    chain = steps()
    done = threading.Event()
    with Stream() as stream:

        def launch_more() -> None:
            with device:
                for _ in range(5):
                    chain.launch(stream)
            done.set()

        chain.launch(stream)
        stream.add_callback(launch_more)
        assert done.wait(30)
        stream.synchronize()
        chain.check()


def test_a_full_queue_behind_a_callback_does_not_deadlock(
    device: Device, steps: Callable[[], Steps], gate: Gates
) -> None:
    """The callback needs the GIL while launches wait for room in the driver's queue."""
    chain = steps()
    called = threading.Event()
    with Stream() as stream:
        stream.add_callback(called.set)
        for _ in range(3000):
            chain.launch(stream)
        stream.synchronize()
        assert called.wait(30)
        chain.check()


def test_what_a_callback_held_is_let_go(device: Device) -> None:
    class Held:
        pass

    import weakref

    held = Held()
    reference = weakref.ref(held)
    done = threading.Event()
    with Stream() as stream:
        stream.add_callback(lambda _: None, held)
        del held
        stream.add_callback(done.set)
        assert done.wait(30)
    gc.collect()
    assert reference() is None


# -- events ----------------------------------------------------------------------------------------


def test_events_tell_time_that_grows(device: Device, steps: Callable[[], Steps]) -> None:
    chain = steps()
    with Stream() as stream:
        events = []
        for _ in range(5):
            events.append(stream.record_event())
            for _ in range(20):
                chain.launch(stream)
        events.append(stream.record_event())
        events[-1].synchronize()
        spans = [later.elapsed_since(events[0]) for later in events]
        assert spans[0] == 0
        assert spans == sorted(spans)
        assert spans[-1] > 0
        assert events[0].elapsed_since(events[-1]) == pytest.approx(-spans[-1])


def test_elapsed_says_what_is_missing(device: Device, gate: Gates) -> None:
    with Stream() as stream:
        recorded = stream.record_event()
        stream.synchronize()
        silent = stream.record_event(Event(EventFlags.DISABLE_TIMING))
        fresh = Event()
        barrier = gate()
        barrier.hold(stream)
        pending = stream.record_event()
        assert not pending.query()
        for end, words in (
            (silent, "the end event was made with EventFlags.DISABLE_TIMING"),
            (fresh, "the end event was never recorded"),
            (pending, "the end event is still pending"),
        ):
            with pytest.raises(ArgumentValueError, match=words):
                end.elapsed_since(recorded)
        with pytest.raises(ArgumentValueError, match="the start event was never recorded"):
            recorded.elapsed_since(fresh)
        barrier.open()
        pending.synchronize()
        assert pending.elapsed_since(recorded) >= 0
        fresh.close()
        with pytest.raises(InvalidHandleError, match="the event is closed"):
            fresh.query()
        assert "closed" in repr(fresh)


EVENT_FLAGS = {
    "DEFAULT": EventFlags.DEFAULT,
    "BLOCKING_SYNC": EventFlags.BLOCKING_SYNC,
    "DISABLE_TIMING": EventFlags.DISABLE_TIMING,
    "both": EventFlags.BLOCKING_SYNC | EventFlags.DISABLE_TIMING,
    "INTERPROCESS": EventFlags.INTERPROCESS | EventFlags.DISABLE_TIMING,
}


@pytest.mark.parametrize("name", EVENT_FLAGS)
def test_events_with_every_flag(device: Device, name: str, gate: Gates) -> None:
    flags = EVENT_FLAGS[name]
    with Event(flags) as event, Stream() as stream:
        assert event.flags == flags
        barrier = gate()
        barrier.hold(stream)
        event.record(stream)
        assert not event.query()
        threading.Timer(0.01, barrier.open).start()
        event.synchronize()
        assert event.query()


def test_an_event_may_be_closed_while_it_is_waited_for(
    device: Device, steps: Callable[[], Steps], gate: Gates
) -> None:
    chain = steps()
    with Stream() as first, Stream() as second:
        barrier = gate()
        barrier.hold(first)
        chain.launch(first)
        with first.record_event() as event:
            second.wait_event(event)
        chain.launch(second)
        barrier.open()
        second.synchronize()
        chain.check()


# -- streams of others -----------------------------------------------------------------------------


@pytest.mark.parametrize("attribute", ["__cuda_stream__", "cuda_stream", "ptr", "handle"])
def test_streams_of_other_libraries(
    device: Device, steps: Callable[[], Steps], attribute: str
) -> None:
    chain = steps()
    owner = Stream()
    value: Any = owner.handle
    if attribute == "__cuda_stream__":
        foreign = type("Foreign", (), {attribute: lambda self: (0, owner.handle)})()
    else:
        foreign = type("Foreign", (), {attribute: value})()
    wrapped = Stream.from_handle(foreign)
    assert wrapped.handle == owner.handle
    chain.launch(wrapped)
    chain.launch(owner)
    wrapped.synchronize()
    assert np.array_equal(chain.buffer.to_numpy(stream=owner), chain.expected)
    wrapped.close()
    # closing the wrapper does not destroy the owner's stream
    chain.launch(owner)
    owner.synchronize()
    chain.check()


def test_what_is_no_stream_is_refused(device: Device) -> None:
    for wrong in (None, "x", 1.5, True, object()):
        with pytest.raises(ArgumentTypeError, match="handle: expected"):
            Stream.from_handle(wrong)
    with pytest.raises(ArgumentValueError, match="got 0"):
        Stream.from_handle(0)
    for act in (
        lambda: DeviceBuffer.zeros(3, "u8", stream=5),  # type: ignore[arg-type]
        lambda: DeviceBuffer.zeros(3, "u8").to_numpy(stream="x"),  # type: ignore[arg-type]
        lambda: DeviceBuffer.uninitialized_async(3, "u8", None),  # type: ignore[arg-type]
    ):
        with pytest.raises(ArgumentTypeError, match="stream: expected"):
            act()


def test_pinned_copies_are_in_stream_order(
    device: Device, steps: Callable[[], Steps], gate: Gates
) -> None:
    chain = steps()
    results = [HostBuffer(1000, "u4") for _ in range(10)]
    expected = []
    with Stream() as stream:
        barrier = gate()
        barrier.hold(stream)
        for result in results:
            chain.launch(stream)
            chain.buffer.copy_to_async(result, stream)
            expected.append(chain.expected)
        barrier.open()
        stream.synchronize()
    for result, values in zip(results, expected, strict=True):
        assert np.array_equal(result.array, values)
