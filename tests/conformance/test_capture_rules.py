"""Calls that would invalidate a capture are refused early; the capture continues."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from uhal import (
    Device,
    DeviceBuffer,
    Event,
    HostBuffer,
    Module,
    Stream,
    StreamFlags,
    diagnostics,
    launch,
)
from uhal.errors import ArgumentTypeError, ArgumentValueError, CaptureError, NotSupportedError

COUNT = 64


class Stage:
    """A stream and objects for mistakes; `captured` checks that the stream still works."""

    def __init__(self, basic: Module) -> None:
        self.stream = Stream()
        self.other = Stream()
        self.fill = basic.get_function("fill")
        self.module = basic
        self.buffer = DeviceBuffer.zeros(COUNT, "u32")
        self.outside = self.other.record_event()
        self.array = np.zeros(COUNT, "u4")

    def close(self) -> None:
        self.outside.close()
        self.stream.close()
        self.other.close()
        self.buffer.close()

    def launch(self, value: int, stream: Stream | None = None) -> None:
        launch(self.fill, 1, COUNT, (COUNT, value, self.buffer), stream=stream or self.stream)

    def reads(self, value: int) -> bool:
        return bool((self.buffer.to_numpy(stream=self.stream) == value).all())


@pytest.fixture
def stage(basic: Module) -> Iterator[Callable[[], Stage]]:
    stages: list[Stage] = []

    def make() -> Stage:
        stages.append(Stage(basic))
        return stages[-1]

    yield make
    while stages:
        stages.pop().close()
    gc.collect()


class Tensor:
    """Another library's memory."""

    def __dlpack__(self, **keywords: object) -> object:
        raise AssertionError("it was asked for")

    def __dlpack_device__(self) -> tuple[int, int]:
        raise AssertionError("it was asked for")


MISTAKES: dict[str, tuple[Callable[[Stage], object], str]] = {
    "synchronize the stream": (lambda s: s.stream.synchronize(), "Stream.synchronize: stream"),
    "query the stream": (lambda s: s.stream.query(), "Stream.query: stream"),
    "synchronize the device": (lambda s: s.stream.device.synchronize(), "Device.synchronize: "),
    "call back": (lambda s: s.stream.add_callback(print), "Stream.add_callback: stream"),
    "close the stream": (lambda s: s.stream.close(), "Stream.close: stream"),
    "close the module": (lambda s: s.module.close(), "Module.close: stream"),
    "capture it again": (lambda s: s.stream.capture().__enter__(), "Stream.capture: stream"),
    "copy from ordinary memory": (
        lambda s: s.buffer.copy_from_async(s.array, s.stream),
        "a copy from ordinary memory: stream",
    ),
    "copy to ordinary memory": (
        lambda s: s.buffer.copy_to_async(s.array, s.stream),
        "a copy to ordinary memory: stream",
    ),
    "copy and wait": (
        lambda s: s.buffer.copy_from(s.array, stream=s.stream),
        "a copy that waits: stream",
    ),
    "read and wait": (lambda s: s.buffer.to_numpy(stream=s.stream), "a copy that waits: stream"),
    "copy rows and wait": (
        lambda s: s.buffer.copy_2d_from(s.array.reshape(8, 8), stream=s.stream),
        "a copy that waits: stream",
    ),
    "make a buffer of an array": (
        lambda s: DeviceBuffer.from_numpy(s.array, stream=s.stream),
        "a copy from ordinary memory: stream",
    ),
    "launch in the default stream": (
        lambda s: launch(s.fill, 1, COUNT, (COUNT, 9, s.buffer)),
        "launch of fill: stream",
    ),
    "fill in the default stream": (lambda s: s.buffer.set_32(9), "work without stream=: stream"),
    "read in the default stream": (lambda s: s.buffer.to_numpy(), "work without stream=: stream"),
    "wait for an event from outside": (
        lambda s: s.stream.wait_event(s.outside),
        "Stream.wait_event: stream",
    ),
    "wait for a captured event": (
        lambda s: s.stream.record_event().synchronize(),
        "Event.synchronize: the event",
    ),
    "ask a captured event": (lambda s: s.stream.record_event().query(), "Event.query: the event"),
    "launch on a tensor of another library": (
        lambda s: launch(s.fill, 1, COUNT, (COUNT, 9, Tensor()), stream=s.stream),
        "launch of fill, argument 2, a Tensor: stream",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_plan_goes_on_after_a_mistake(stage: Callable[[], Stage], mistake: str) -> None:
    act, words = MISTAKES[mistake]
    made = stage()
    with made.stream.capture("lint") as plan:
        made.launch(1)
        with pytest.raises(CaptureError) as refused:
            act(made)
        made.launch(7)
    message = str(refused.value)
    assert message.startswith(words), message
    assert "plan 'lint'" in message
    assert message.rstrip("]").rpartition("[")[2].startswith("test_capture_rules.py:")
    assert made.reads(0)
    with plan:
        plan.replay()
        assert made.reads(7)
    made.launch(3)
    assert made.reads(3)


def test_a_plan_is_not_made_of_the_default_stream(device: Device) -> None:
    with pytest.raises(CaptureError, match="the default stream cannot be captured"):
        Stream.default(device).capture().__enter__()


def test_a_plan_and_the_legacy_stream(stage: Callable[[], Stage], device: Device) -> None:
    made = stage()
    try:
        legacy = Stream.legacy(device)
    except NotSupportedError:
        return
    with pytest.raises(CaptureError, match="the legacy default stream cannot be captured"):
        legacy.capture().__enter__()
    with made.stream.capture() as plan:
        for stream in (legacy, Stream.legacy(device)):
            with pytest.raises(CaptureError, match="waits for every blocking stream"):
                made.launch(3, stream)
        made.launch(7)
    with plan:
        plan.replay()
        assert made.reads(7)
    with Stream(StreamFlags.NON_BLOCKING) as free:
        with free.capture() as plan:
            made.launch(5, free)
            made.launch(3, legacy)
        assert made.reads(3)
        with plan:
            plan.replay()
            free.synchronize()
        assert made.reads(5)


def test_a_plan_does_not_take_memory_of_the_drivers(stage: Callable[[], Stage]) -> None:
    made = stage()
    with made.stream.capture() as plan:
        made.launch(1)
        with pytest.raises((CaptureError, NotSupportedError)):
            DeviceBuffer.uninitialized_async(COUNT, "u32", made.stream, native=True)
    plan.close()


def test_a_plan_of_a_stream_left_behind_is_refused(stage: Callable[[], Stage]) -> None:
    made = stage()
    with (
        pytest.raises(CaptureError, match=r"the work of stream \d+ \(joined at test_capture_rule"),
        made.stream.capture() as plan,
    ):
        made.launch(1)
        made.other.wait_event(made.stream.record_event())
        made.launch(2, made.other)
    assert plan.closed
    for stream in (made.stream, made.other):
        made.launch(4, stream)
        stream.synchronize()
    assert made.reads(4)


def test_a_plan_that_captures_leaves_other_threads_alone(stage: Callable[[], Stage]) -> None:
    made = stage()
    said: list[str] = []
    apart = DeviceBuffer.zeros(COUNT, "u32")  # nothing orders the default stream and the other

    def beside() -> None:
        made.launch(5, made.other)
        launch(made.fill, 1, COUNT, (COUNT, 6, apart))
        made.other.synchronize()
        try:
            made.launch(8)
        except CaptureError as error:
            said.append(str(error))

    with made.stream.capture() as plan:
        made.launch(1)
        thread = threading.Thread(target=beside)
        thread.start()
        thread.join()
    assert "only the thread that captures may use it" in said[0]
    assert made.reads(5)
    assert (apart.to_numpy() == 6).all()
    plan.close()


def test_a_plan_whose_thread_ended_gives_the_stream_back(stage: Callable[[], Stage]) -> None:
    made = stage()
    kept = []

    def begin() -> None:
        capture = made.stream.capture()
        kept.append((capture, capture.__enter__()))
        made.launch(1)

    thread = threading.Thread(target=begin)
    thread.start()
    thread.join()
    with pytest.raises(CaptureError, match=r"has ended; plan.close\(\) gives the stream back"):
        made.launch(2)
    kept.pop()[1].close()
    made.launch(2)
    assert made.reads(2)


def test_a_plan_that_nobody_ends_is_abandoned(stage: Callable[[], Stage]) -> None:
    made = stage()
    before = diagnostics()["live"]["plans"]

    def capturing() -> Iterator[None]:
        with made.stream.capture():
            made.launch(1)
            yield

    generator = capturing()
    next(generator)
    assert diagnostics()["live"]["plans"] == before + 1
    del generator
    assert diagnostics()["live"]["plans"] == before
    made.stream.capture().__enter__()
    assert diagnostics()["live"]["plans"] == before
    made.launch(2)
    assert made.reads(2)


def test_a_plan_with_wrong_slots(stage: Callable[[], Stage], device: Device) -> None:
    made = stage()
    with DeviceBuffer.zeros(COUNT, "u32") as unused:
        with pytest.raises(ArgumentValueError, match="no launch uses it"):
            with made.stream.capture() as plan:
                plan.slot("unused", unused)
        for name, value, words in (
            ("stream", 1, "other than 'stream'"),
            ("no name", 1, "a keyword of replay"),
            ("text", "x", "expected a number or a DeviceBuffer, got str"),
            ("nothing", unused[:0], "expected memory of"),
        ):
            with pytest.raises(ArgumentValueError, match=words), made.stream.capture() as plan:
                plan.slot(name, value)
        with made.stream.capture("one") as plan:
            value = plan.slot("value", 1)
            out = plan.slot("out", made.buffer)
            with pytest.raises(ArgumentValueError, match="declared already"):
                plan.slot("value", 2)
            with pytest.raises(ArgumentValueError, match="overlaps that of slot 'out'"):
                plan.slot("half", made.buffer[:8])
            with pytest.raises(ArgumentValueError, match="a copy or fill"):
                made.buffer.set_32(1, stream=made.stream)
            launch(made.fill, 1, COUNT, (COUNT, value, out), stream=made.stream)
        with plan:
            with pytest.raises(ArgumentValueError, match="no such slot, only value, out"):
                plan.replay(values=2)
            with pytest.raises(ArgumentTypeError, match="slot 'out'"):
                plan.replay(value=5, out=made.array)
            plan.replay()
            assert made.reads(1)
            with made.stream.capture() as second:
                with pytest.raises(CaptureError, match="a plan cannot be part of another"):
                    plan.replay()
                made.launch(2)
                with pytest.raises(ArgumentValueError, match="a slot of another plan"):
                    launch(made.fill, 1, COUNT, (COUNT, value, made.buffer), stream=made.stream)
            second.close()
            assert "slot value = 1" in str(plan)
            assert "fill grid (1, 1, 1), block (64, 1, 1)" in str(plan)
            with pytest.raises(ArgumentTypeError, match="only while its plan is captured"):
                launch(made.fill, 1, COUNT, (COUNT, value, made.buffer), stream=made.stream)


def test_a_plan_keeps_pinned_memory(stage: Callable[[], Stage]) -> None:
    made = stage()
    source = HostBuffer(COUNT, "u32")
    source.array[:] = 11
    with made.stream.capture() as plan:
        made.buffer.copy_from_async(source, made.stream)
    source.close()
    del source
    gc.collect()
    with plan:
        plan.replay()
        assert made.reads(11)


def test_a_plan_leaves_its_events_to_be_recorded_anew(stage: Callable[[], Stage]) -> None:
    made = stage()
    with Event() as event:
        with made.stream.capture() as plan:
            made.launch(1)
            event.record(made.stream)
        plan.replay()
        with pytest.raises(CaptureError, match="recorded in the capture of plan"):
            event.synchronize()
        with pytest.raises(CaptureError, match="a capture that is over"):
            made.other.wait_event(event)
        event.record(made.stream)
        made.other.wait_event(event)
        event.synchronize()
        assert event.query()
        plan.close()
