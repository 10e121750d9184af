"""Contents of a graph in recorded order, and errors of its native library.

The tests call the library through its slots, so that uhal's own checks do not run first.
"""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import numpy as np
import pytest

from uhal import Device, DeviceBuffer, Event, EventFlags, Function, Module, Stream
from uhal.errors import DeviceError
from uhal.registry import backend as opened_backend
from uhal_conformance.sampling import rounds
from uhal_conformance.slots import U32, U64, Slots, launch_graph

N = 700


def launch_step(
    slots: Slots, step: Function, stream: int, address: int, multiply: int, add: int
) -> None:
    values = (U64(N), U32(multiply), U32(add), U64(address))
    slots.launch(step.handle, (3, 1, 1), (64, 1, 1), stream, *values)


@pytest.fixture
def slots(device: Device) -> Slots:
    return Slots(opened_backend(device.backend))


class Numbers:
    """A buffer and its expected contents."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.expected = rng.integers(0, 2**32, N, "u4")
        self.buffer = DeviceBuffer.from_numpy(self.expected)
        self.address = int(self.buffer.as_device_ptr())

    def check(self) -> None:
        assert np.array_equal(self.buffer.to_numpy(), self.expected)


@pytest.fixture
def streams(device: Device) -> Iterator[list[Stream]]:
    with Stream() as first, Stream() as second, Stream() as third:
        yield [first, second, third]


@pytest.fixture
def events(device: Device) -> Iterator[list[Event]]:
    with Event(EventFlags.DISABLE_TIMING) as first, Event() as second:
        yield [first, second]


def test_a_graph_of_several_streams_runs_in_order(
    slots: Slots, streams: list[Stream], events: list[Event], basic: Module, seed: int
) -> None:
    step = basic.get_function("step")
    for case in range(rounds(4, 200)):
        replay_random_work(slots, streams, events, step, seed + case)


def replay_random_work(
    slots: Slots, streams: list[Stream], events: list[Event], step: Function, seed: int
) -> None:
    choose = random.Random(seed)
    rng = np.random.default_rng(seed)
    numbers = [Numbers(rng) for _ in range(3)]
    model: list[Callable[[], None]] = []
    for one in numbers:
        one.check()

    def follow(later: Stream, earlier: Stream) -> None:
        event = choose.choice(events)
        slots("event_record", event.handle, earlier.handle)
        slots("stream_wait_event", later.handle, event.handle, 0)

    def work(stream: Stream) -> None:
        to, source = choose.sample(numbers, 2)
        kind, value, add = choose.randrange(5), choose.randrange(2**32), choose.randrange(2**32)
        if kind == 0:
            slots("copy_d2d", to.address, source.address, 4 * N, stream.handle)
            model.append(lambda: np.copyto(to.expected, source.expected))
        elif kind == 1:
            slots("memset_32", to.address, value, N, stream.handle)
            model.append(lambda: to.expected.fill(value))
        else:
            launch_step(slots, step, stream.handle, to.address, value, add)
            model.append(
                lambda: np.copyto(to.expected, to.expected * np.uint32(value) + np.uint32(add))
            )

    backend = slots.backend
    backend.begin_capture(streams[0].handle)
    # The work moves from stream to stream, so that a wrong order changes the result.
    used = [streams[0]]
    for _ in range(choose.randrange(1, 25)):
        if choose.random() < 0.4:
            used.append(choose.choice(streams))
            follow(used[-1], used[-2])
        work(used[-1])
    if used[-1] is not streams[0]:
        follow(streams[0], used[-1])
    with ExitStack() as stack:
        graph = backend.end_capture(streams[0].handle)
        stack.callback(backend.destroy_graph, graph)
        executable = backend.instantiate_graph(graph)
        stack.callback(backend.destroy_executable_graph, executable.handle)
        for _ in range(3):
            launch_graph(backend, executable.handle, choose.choice(streams).handle)
            for apply in model:
                apply()
        for stream in streams:
            stream.synchronize()
        for one in numbers:
            one.check()


def _wait_for_work_outside(slots: Slots, stream: Stream, events: list[Event]) -> None:
    with Stream() as other:
        slots("event_record", events[0].handle, other.handle)
        slots("stream_wait_event", stream.handle, events[0].handle, 0)


def _begin_again(slots: Slots, stream: Stream, events: list[Event]) -> None:
    slots.backend.begin_capture(stream.handle)


def _ask_a_captured_event(slots: Slots, stream: Stream, events: list[Event]) -> None:
    slots("event_record", events[0].handle, stream.handle)
    slots("event_query", events[0].handle)


MISTAKES: dict[str, Callable[[Slots, Stream, list[Event]], None]] = {
    "query": lambda slots, stream, events: slots("stream_query", stream.handle),
    "synchronize": lambda slots, stream, events: slots("stream_synchronize", stream.handle),
    "wait for work outside": _wait_for_work_outside,
    "begin again": _begin_again,
    "ask a captured event": _ask_a_captured_event,
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_graph_is_refused_a_mistake(
    slots: Slots,
    streams: list[Stream],
    events: list[Event],
    basic: Module,
    rng: np.random.Generator,
    mistake: str,
) -> None:
    step = basic.get_function("step")
    backend, stream = slots.backend, streams[0]
    numbers = Numbers(rng)
    numbers.check()
    backend.begin_capture(stream.handle)
    launch_step(slots, step, stream.handle, numbers.address, 3, 1)
    with pytest.raises(DeviceError):
        MISTAKES[mistake](slots, stream, events)
    try:
        backend.destroy_graph(backend.end_capture(stream.handle))
    except DeviceError:
        pass  # some mistakes invalidate the capture
    assert backend.capture_status(stream.handle) == "none"
    launch_step(slots, step, stream.handle, numbers.address, 5, 7)
    stream.synchronize()
    numbers.expected = numbers.expected * np.uint32(5) + np.uint32(7)
    numbers.check()


def test_a_graph_needs_its_streams_joined(
    slots: Slots, streams: list[Stream], events: list[Event], basic: Module, seed: int
) -> None:
    step = basic.get_function("step")
    backend = slots.backend
    numbers = Numbers(np.random.default_rng(seed))
    numbers.check()
    first, second, _ = (stream.handle for stream in streams)
    backend.begin_capture(first)
    slots("event_record", events[0].handle, first)
    slots("stream_wait_event", second, events[0].handle, 0)
    assert backend.capture_status(second) == "active"
    launch_step(slots, step, second, numbers.address, 3, 1)
    with pytest.raises(DeviceError):
        backend.end_capture(first)
    assert backend.capture_status(first) == backend.capture_status(second) == "none"
    launch_step(slots, step, second, numbers.address, 5, 1)
    streams[1].synchronize()
    numbers.expected = numbers.expected * np.uint32(5) + np.uint32(1)
    numbers.check()


def test_a_graph_stream_may_be_destroyed_while_it_captures(
    slots: Slots, device: Device, basic: Module, rng: np.random.Generator
) -> None:
    step = basic.get_function("step")
    numbers = Numbers(rng)
    numbers.check()
    handle = ctypes.c_void_p()
    slots("stream_create", ctypes.byref(handle), 0, 0)
    slots.backend.begin_capture(handle.value or 0)
    launch_step(slots, step, handle.value or 0, numbers.address, 3, 1)
    slots("stream_destroy", handle)
    device.synchronize()
    numbers.check()
