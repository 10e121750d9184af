"""A sticky error loses the device: errors name suspects, later calls fail, nothing crashes."""

from __future__ import annotations

import ctypes
import gc
import signal
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tests.counting_bench import Bench
from tests.counting_driver import ILLEGAL_ADDRESS, CountingDriver
from uhal import DeviceBuffer, Event, HostBuffer, Signature, Stream, _lane, launch
from uhal.errors import DeviceError
from uhal.faults import Launch


@pytest.fixture
def bench(bench: Bench) -> Iterator[Bench]:
    """Return a bench whose device may be lost at the end; then the driver may leak."""
    yield bench
    if bench.context.lost is not None:
        bench.driver.forgive()


def candidates(error: BaseException) -> tuple[Launch, ...]:
    assert isinstance(error, DeviceError)
    return error.candidates


def fail(bench: Bench, stream: Stream) -> DeviceError:
    """Let the device fail while the host waits for `stream`."""
    bench.driver.failures["stream_synchronize"] = [ILLEGAL_ADDRESS]
    with pytest.raises(DeviceError) as caught:
        stream.synchronize()
    return caught.value


# -- suspects --------------------------------------------------------------------------------------


def test_launches_known_to_be_done_are_no_suspects(bench: Bench) -> None:
    stream = bench.busy_stream()
    kernel = bench.function("u32 n")
    kernel[1, 1, 0, stream](1)
    stream.synchronize()
    bench.driver.busy.add(stream.handle)
    kernel[1, 1, 0, stream](2)
    error = fail(bench, stream)
    assert [launch.arguments for launch in error.candidates] == ["n=2"]
    assert "It was this one: k grid (1, 1, 1)" in str(error)


@pytest.mark.parametrize("ask", [Event.synchronize, Event.query])
def test_an_event_that_passed_narrows_the_suspects(
    bench: Bench, ask: Callable[[Event], object]
) -> None:
    stream, other = bench.busy_stream(), Stream()
    kernel = bench.function("u32 n")
    kernel[1, 1, 0, stream](1)
    event = stream.record_event()
    kernel[1, 1, 0, stream](2)
    kernel[1, 1, 0, other](3)
    bench.driver.passed.add(event.handle)
    ask(event)
    error = fail(bench, stream)
    assert {launch.arguments for launch in error.candidates} == {"n=2", "n=3"}


def test_suspects_of_every_stream_come_oldest_first_and_at_most_256_of_each(bench: Bench) -> None:
    streams = [bench.busy_stream() for _ in range(2)]
    kernel = bench.function("u32 n")
    for n in range(300):
        kernel[1, 1, 0, streams[0]](n)
    for n in range(5):
        kernel[1, 1, 0, streams[1]](n)
    error = fail(bench, streams[1])
    found = [(launch.stream_id, launch.arguments) for launch in error.candidates]
    expected = [(streams[0].id, f"n={n}") for n in range(44, 300)]
    assert found == expected + [(streams[1].id, f"n={n}") for n in range(5)]
    assert "one of the 261 launches" in str(error)


@pytest.mark.bench(UHAL_LAUNCH_BLOCKING="1")
def test_blocking_launches_name_the_one_at_its_own_line(bench: Bench) -> None:
    stream = Stream()
    kernel = bench.function("u32 n")
    for n in range(3):
        bench.driver.busy.add(stream.handle)
        kernel[1, 1, 0, stream](n)
    assert bench.driver.count("stream_synchronize") == 3
    bench.driver.busy.add(stream.handle)
    bench.driver.failures["stream_synchronize"] = [ILLEGAL_ADDRESS]
    with pytest.raises(DeviceError) as caught:
        kernel[1, 1, 0, stream](3)
    (only,) = candidates(caught.value)
    assert only.arguments == "n=3"
    assert "It was this one:" in str(caught.value)


@pytest.mark.bench(UHAL_LAUNCH_MARKS="2")
def test_marks_narrow_the_suspects_to_the_last_few(bench: Bench) -> None:
    stream = bench.busy_stream()
    kernel = bench.function("u32 n")
    for n in range(9):
        if n == 5:
            bench.driver.stopped = True
        kernel[1, 1, 0, stream](n)
    assert bench.driver.count("memset_32") == 4
    error = fail(bench, stream)
    assert [launch.arguments for launch in error.candidates] == [f"n={n}" for n in range(4, 9)]


@pytest.mark.bench(UHAL_LAUNCH_MARKS="1")
def test_the_progress_word_outlives_the_stream_that_writes_it(bench: Bench) -> None:
    stream = bench.busy_stream()
    handle = stream.handle
    bench.function("u32 n")[1, 1, 0, stream](1)
    stream.close()
    assert bench.driver.count("host_free") == 0
    bench.driver.busy.discard(handle)
    bench.device.synchronize()
    assert bench.driver.count("host_free") == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [("UHAL_LAUNCH_BLOCKING", "yes"), ("UHAL_LAUNCH_MARKS", "-1"), ("UHAL_POOL", "fast")],
)
def test_a_wrong_setting_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    driver = CountingDriver()
    gc.collect()
    before = _lane.live_counts()
    with pytest.raises(ValueError, match=f"{name}: expected .* got '{value}'"):
        driver.open_context()
    gc.collect()
    assert _lane.live_counts() == before
    assert driver.left() == {}


# -- the ledger keeps nothing alive ----------------------------------------------------------------


def test_the_ledger_keeps_no_buffer_no_local_and_no_module(bench: Bench) -> None:
    stream = bench.busy_stream()

    class Local:
        pass

    def run() -> list[weakref.ref[Any]]:
        local = Local()
        buffer = bench.buffer()
        kernel = bench.function("f32* x")
        launch(kernel, 1, 1, (buffer,), stream=stream)
        return [weakref.ref(thing) for thing in (local, buffer, kernel)]

    references = run()
    gc.collect()
    assert [reference() for reference in references] == [None, None, None]
    assert bench.driver.live["module"] == set()
    error = fail(bench, stream)
    assert len(error.candidates) == 1


def test_the_ledger_of_many_code_objects_lets_them_go(bench: Bench) -> None:
    stream = Stream()
    kernel = bench.function("")
    bound = kernel[1, 1, 0, stream]
    sizes = []
    for n in range(1200):
        exec(compile("bound()", f"<launch {n}>", "exec"), {"bound": bound})
        if n in (599, 1199):
            gc.collect()
            sizes.append(sum(1 for o in gc.get_objects() if type(o) is type(run_nothing)))
    assert sizes[1] <= sizes[0] + 50
    count = sys.getrefcount(run_nothing.__code__)
    for _ in range(1000):
        run_nothing(bound)
    for _ in range(300):
        bound()
    after = sys.getrefcount(run_nothing.__code__)
    assert after == count


def run_nothing(bound: Callable[[], None]) -> None:
    bound()


# -- a lost device ---------------------------------------------------------------------------------


class Props:
    """One of everything."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.stream = bench.busy_stream()
        self.buffer = DeviceBuffer.from_numpy(np.arange(8, dtype="f4"))
        self.view = self.buffer[2:6]
        self.other = DeviceBuffer.zeros(8, "f32")
        self.native = DeviceBuffer.uninitialized_async(8, "f32", self.stream, native=True)
        self.pinned = HostBuffer(8, "f32")
        self.start, self.end = self.stream.record_event(), self.stream.record_event()
        self.module = _lane.ModuleHandle(bench.context, bench.driver._fresh("module"))
        self.kernel = bench.function("f32* x")
        self.bound = self.kernel[1, 1]
        self.bound(self.buffer)


PUBLIC: dict[str, Callable[[Props], Any]] = {
    "launch": lambda p: launch(p.kernel, 1, 1, (p.buffer,)),
    "bind": lambda p: p.kernel[1, 1],
    "bound": lambda p: p.bound(p.buffer),
    "occupancy": lambda p: p.kernel.max_active_blocks(32),
    "function handle": lambda p: p.kernel.handle,
    "find_function": lambda p: p.module.find_function("k"),
    "Stream": lambda p: Stream(),
    "Stream.default": lambda p: Stream.default(),
    "Event": lambda p: Event(),
    "from_numpy": lambda p: DeviceBuffer.from_numpy(np.zeros(3)),
    "zeros": lambda p: DeviceBuffer.zeros(3, "f32"),
    "uninitialized": lambda p: DeviceBuffer.uninitialized(3, "f32"),
    "async": lambda p: DeviceBuffer.uninitialized_async(3, "f32", p.stream),
    "from_raw": lambda p: DeviceBuffer.from_raw(4096, 1, "u8"),
    "from_dlpack": lambda p: DeviceBuffer.from_dlpack(np.zeros(3)),
    "HostBuffer": lambda p: HostBuffer(3, "f32"),
    "pinned array": lambda p: p.pinned.array,
    "to_numpy": lambda p: p.buffer.to_numpy(),
    "to_numpy of a view": lambda p: p.view.to_numpy(),
    "copy_from": lambda p: p.buffer.copy_from(np.zeros(8, "f4")),
    "copy_to": lambda p: p.buffer.copy_to(p.other),
    "copy_from_async": lambda p: p.buffer.copy_from_async(p.pinned, p.stream),
    "copy_to_async": lambda p: p.buffer.copy_to_async(p.pinned, p.stream),
    "set_8": lambda p: p.buffer.set_8(0),
    "set_32": lambda p: p.buffer.set_32(0),
    "as_device_ptr": lambda p: p.buffer.as_device_ptr(),
    "slice": lambda p: p.buffer[:2],
    "view": lambda p: p.buffer.view("u32"),
    "record_stream": lambda p: p.buffer.record_stream(p.stream),
    "dlpack": lambda p: p.buffer.__dlpack__(),
    "stream handle": lambda p: p.stream.handle,
    "stream synchronize": lambda p: p.stream.synchronize(),
    "stream query": lambda p: p.stream.query(),
    "wait_event": lambda p: p.stream.wait_event(p.start),
    "record_event": lambda p: p.stream.record_event(),
    "add_callback": lambda p: p.stream.add_callback(print),
    "event handle": lambda p: p.start.handle,
    "event record": lambda p: p.start.record(p.stream),
    "event synchronize": lambda p: p.start.synchronize(),
    "event query": lambda p: p.start.query(),
    "elapsed_since": lambda p: p.end.elapsed_since(p.start),
    "device synchronize": lambda p: p.bench.device.synchronize(),
    "memory_info": lambda p: p.bench.device.memory_info(),
    "empty_cache": lambda p: p.bench.device.empty_cache(),
}


def lose(props: Props) -> None:
    props.bench.driver.broken = ILLEGAL_ADDRESS
    with pytest.raises(DeviceError):
        props.stream.synchronize()


def test_every_later_call_says_that_the_device_is_lost(bench: Bench) -> None:
    props = Props(bench)
    lose(props)
    bench.quiet()
    for name, act in PUBLIC.items():
        with pytest.raises(DeviceError) as caught:
            act(props)
        assert "counting:0 was lost earlier and takes no more work: " in str(caught.value), name
        assert "It was this one: k grid" in str(caught.value), name
    assert bench.driver.calls == []


def test_closing_and_collecting_on_a_lost_device_is_silent(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    props = Props(bench)
    lose(props)
    before = _lane.live_counts()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        props.buffer.close()
        props.stream.close()
        props.start.close()
        props.pinned.close()
        props.module.close()
        del props
        gc.collect()
    assert _lane.live_counts()["streams"] == before["streams"] - 1
    assert capsys.readouterr().err == ""


def test_a_lost_device_that_nobody_holds_any_more_goes_silently() -> None:
    gc.collect()
    before = _lane.live_counts()
    bench = Bench(CountingDriver())
    _lane.push_context(bench.context)
    props = Props(bench)
    _lane.pop_context()
    lose(props)
    driver = bench.driver
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        del props, bench
        gc.collect()
    assert [str(warning.message) for warning in warned] == []
    assert _lane.live_counts() == before
    assert driver.live["stream"] == set()
    assert driver.live["event"] == set()


@pytest.mark.parametrize(
    "slot", ["launch", "alloc", "memset_8", "event_record", "copy_h2d", "stream_create"]
)
def test_any_call_may_be_the_one_that_brings_the_fault(bench: Bench, slot: str) -> None:
    acts: dict[str, Callable[[Props], Any]] = {
        "launch": PUBLIC["bound"],
        "alloc": lambda p: p.bench.buffer(1 << 24),
        "memset_8": PUBLIC["set_8"],
        "event_record": PUBLIC["event record"],
        "copy_h2d": PUBLIC["from_numpy"],
        "stream_create": PUBLIC["Stream"],
    }
    props = Props(bench)
    bench.driver.failures[slot] = [ILLEGAL_ADDRESS]
    with pytest.raises(DeviceError) as caught:
        acts[slot](props)
    call = {"launch": "countLaunchKernel"}.get(slot, slot)
    assert (caught.value.call, caught.value.code) == (call, ILLEGAL_ADDRESS)
    assert len(candidates(caught.value)) == 1
    with pytest.raises(DeviceError, match="lost earlier"):
        props.bound(props.buffer)


def test_another_device_of_the_same_driver_works_on(bench: Bench) -> None:
    props = Props(bench)
    second = bench.driver.open_context(1)
    lose(props)
    bench.driver.broken = None
    _lane.push_context(second)
    assert DeviceBuffer.zeros(4, "u8").to_numpy().tolist() == [0, 0, 0, 0]
    _lane.pop_context()


# -- the GIL ---------------------------------------------------------------------------------------


LIBC = ctypes.CDLL(None)


def waiting_driver() -> CountingDriver:
    """Return a driver with sem_wait as launch slot; the function's handle is the semaphore."""
    return CountingDriver(
        instead={"launch": ctypes.cast(LIBC.sem_wait, ctypes.c_void_p).value or 0}
    )


@pytest.mark.bench(driver=waiting_driver)
def test_a_launch_that_waits_for_room_in_the_queue_lets_other_threads_run(bench: Bench) -> None:
    semaphore = ctypes.create_string_buffer(64)
    LIBC.sem_init(semaphore, 0, 600)
    stream = bench.busy_stream()
    module = _lane.ModuleHandle(bench.context, bench.driver._fresh("module"))
    attributes = bench.driver.function_attributes(0, "k")
    handle = ctypes.addressof(semaphore)
    function = _lane.Function(module, handle, "k", Signature.parse(""), attributes)
    bound = function[1, 1, 0, stream]
    for _ in range(600):
        bound()
    finished = threading.Event()

    def make_room() -> None:
        while not finished.wait(0.001):
            LIBC.sem_post(semaphore)

    helper = threading.Thread(target=make_room)
    # a launch that kept the GIL would wait forever; the alarm would end sem_wait with an error
    previous = signal.signal(signal.SIGALRM, lambda number, frame: None)
    signal.alarm(10)
    helper.start()
    try:
        for _ in range(20):
            bound()
    finally:
        signal.alarm(0)
        finished.set()
        helper.join()
        signal.signal(signal.SIGALRM, previous)


# -- reports ---------------------------------------------------------------------------------------


def test_a_wait_raises_its_report_though_another_thread_is_taking_it(bench: Bench) -> None:
    word = ctypes.c_uint32(1)
    guilty, innocent = Stream(), Stream()
    bench.function("u32 n")[1, 1, 0, guilty](1)
    taken, given = threading.Event(), threading.Event()

    def report() -> list[tuple[Exception, int, int]]:
        word.value = 0
        taken.set()
        assert given.wait(60)
        return [(IndexError("an id"), guilty.handle, 0)]

    bench.context.watch_reports(ctypes.addressof(word), report)
    threads = [threading.Thread(target=innocent.synchronize), threading.Timer(0.1, given.set)]
    threads[0].start()
    assert taken.wait(60)
    threads[1].start()
    with pytest.raises(IndexError, match="an id"):
        guilty.synchronize()
    for thread in threads:
        thread.join()
    guilty.synchronize()
    bench.context.unwatch_reports(ctypes.addressof(word))
