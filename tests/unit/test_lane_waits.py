"""An exception of a signal handler ends the wait, and only the wait.

The counting driver's slots are Python functions, so the waiting slot sends the signal itself, when
the main thread is certainly in the native call. conformance/test_waits.py tests real drivers.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import os
import signal
import subprocess
import tempfile
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.counting_bench import Bench
from tests.counting_driver import CountingDriver
from uhal import DeviceBuffer, Event, EventFlags, HostBuffer, Stream
from uhal.errors import DeviceWarning, InvalidHandleError

LARGE = 1 << 18

PATIENT = """
#include <signal.h>
/* Whether waits last until Ctrl-C ends them; what waits otherwise. In C, for Python would call the
   signal's handler before it asks whether to go on. */
int interrupts;
int (*stream_wait)(void *), (*event_wait)(void *), (*event_look)(void *);
static int wait_while(int (*go_on)(void *), void *user_data) {
    raise(SIGINT);
    while (go_on(user_data)) {}
    return 600;
}
int stream_wait_while(void *stream, int (*go_on)(void *), void *user_data) {
    return interrupts ? wait_while(go_on, user_data) : stream_wait(stream);
}
int event_wait_while(void *event, int (*go_on)(void *), void *user_data) {
    return interrupts ? wait_while(go_on, user_data) : event_wait(event);
}
int event_query(void *event) {
    return interrupts ? (raise(SIGINT), 600) : event_look(event);
}
int copied;
int copy_d2h(void *to, unsigned long from, unsigned long bytes, void *stream) {
    copied++;
    return raise(SIGINT);
}
"""
"""600 is the counting driver's NOT_READY."""

CALL = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)


@functools.cache
def patient() -> ctypes.CDLL:
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "patient.c")
        source.write_text(PATIENT)
        library = source.with_suffix(".so")
        compiler = os.environ.get("CC", "cc")
        subprocess.run([compiler, "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
        return ctypes.CDLL(str(library))


class PatientDriver(CountingDriver):
    """A counting driver with functions of `patient` in some slots."""

    def __init__(self, slots: dict[str, tuple[str, str, str]], **options: Any) -> None:
        """Map each slot's name to its C function, the function's variable, and the slot put
        there."""
        self._called = []
        instead = {}
        for slot, (function, variable, called) in slots.items():
            self._called.append(CALL(self._answer(called)))
            address = ctypes.cast(self._called[-1], ctypes.c_void_p)
            ctypes.c_void_p.in_dll(patient(), variable).value = address.value
            pointer = ctypes.cast(getattr(patient(), function), ctypes.c_void_p)
            instead[slot] = pointer.value or 0
        super().__init__(instead=instead, **options)

    def interrupt_in_c(self, value: bool) -> None:
        ctypes.c_int.in_dll(patient(), "interrupts").value = value


class AskingDriver(PatientDriver):
    """A driver whose waits poll the caller's callback, so that Ctrl-C ends them."""

    def __init__(self, **options: Any) -> None:
        slots = {
            f"{kind}_synchronize_while": (
                f"{kind}_wait_while",
                f"{kind}_wait",
                f"{kind}_synchronize",
            )
            for kind in ("stream", "event")
        }
        super().__init__(slots, **options)
        self.interrupt_in_c(True)

    def let_go(self) -> None:
        """Stop interrupting waits, so that they end with the work."""
        self.interrupt_in_c(False)


class BlockingDriver(PatientDriver):
    """A driver whose waits only end when the test lets the work end, as in vendors' drivers."""

    def __init__(self) -> None:
        super().__init__(
            {"event_query": ("event_query", "event_look", "event_query")},
            without=("stream_synchronize_while", "event_synchronize_while"),
        )
        self.done = threading.Event()
        self.waiting = 0
        self.interrupts = 1
        self.on_call = self._hold

    def _hold(self, slot: str, arguments: tuple[Any, ...]) -> None:
        if slot == "event_synchronize":
            assert threading.current_thread() is not threading.main_thread()
            self.waiting += 1
            if self.interrupts:
                self.interrupts -= 1
                os.kill(os.getpid(), signal.SIGINT)
            assert self.done.wait(60)
            self.waiting -= 1

    def let_go(self) -> None:
        """Let all waits end when the work ends, including abandoned waits."""
        self.interrupts = 0
        self.done.set()
        end = time.monotonic() + 60
        while self.waiting and time.monotonic() < end:
            time.sleep(0.001)
        assert not self.waiting


asking = pytest.mark.bench(driver=AskingDriver)
blocking = pytest.mark.bench(driver=BlockingDriver)
both = pytest.mark.parametrize(
    "kind", [pytest.param("asking", marks=asking), pytest.param("blocking", marks=blocking)]
)


@contextlib.contextmanager
def handler(function: Any) -> Iterator[None]:
    before = signal.signal(signal.SIGINT, function)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True)
def ctrl_c() -> Iterator[None]:
    """Restore Python's default handler, under any test runner."""
    with handler(signal.default_int_handler):
        yield


def busy_stream(bench: Bench) -> Stream:
    """Return a stream with a pending launch."""
    stream = bench.busy_stream()
    bench.function("")[1, 1, 0, stream]()
    return stream


WAITS: dict[str, Callable[[Bench, Stream], object]] = {
    "stream": lambda b, s: s.synchronize(),
    "event": lambda b, s: s.record_event().synchronize(),
    "blocking event": lambda b, s: s.record_event(Event(EventFlags.BLOCKING_SYNC)).synchronize(),
    "device": lambda b, s: b.context.synchronize(),
    "download": lambda b, s: b.buffer().to_numpy(stream=s),
    "download into": lambda b, s: b.buffer(4).copy_to(np.zeros(4, "f4"), stream=s),
    "upload": lambda b, s: b.buffer(LARGE).copy_from(np.ones(LARGE, "f4"), stream=s),
    "pinned download": lambda b, s: b.buffer(4).copy_to(HostBuffer(4, "f32"), stream=s),
    "rows in": lambda b, s: b.buffer(64).copy_2d_from(np.ones((4, 8), "f4"), pitch=16, stream=s),
    "rows out": lambda b, s: b.buffer(64).copy_2d_to(np.ones((4, 8), "f4"), pitch=16, stream=s),
}


@both
@pytest.mark.parametrize("name", WAITS)
def test_ctrl_c_ends_a_wait_and_the_next_one_is_a_wait(bench: Bench, kind: str, name: str) -> None:
    stream = busy_stream(bench)
    handle = stream.handle
    with pytest.raises(KeyboardInterrupt):
        WAITS[name](bench, stream)
    assert not stream.query()
    bench.driver.let_go()
    # The abandoned event is done. The lane must query the stream itself.
    bench.driver.busy.add(handle)
    stream.synchronize()
    assert handle not in bench.driver.busy
    assert bench.driver.misuse == []
    bench.context.synchronize()
    gc.collect()
    assert bench.context.pool_statistics()["blocks_in_use"] == 0


@both
@pytest.mark.parametrize("name", ["download", "rows in", "rows out"])
def test_an_interrupted_copy_of_ordinary_memory_had_not_begun(
    bench: Bench, kind: str, name: str
) -> None:
    stream = busy_stream(bench)
    bench.quiet()
    with pytest.raises(KeyboardInterrupt):
        WAITS[name](bench, stream)
    assert bench.driver.count("copy_h2d", "copy_d2h") == 0
    bench.driver.let_go()
    bench.context.synchronize()


@asking
def test_memory_of_a_copy_that_is_still_under_way_is_kept(bench: Bench) -> None:
    """A call that copies memory registered by the caller returns before the copy ends."""

    class Watched(np.ndarray[Any, Any]):
        pass

    stream = Stream()
    array = np.zeros(4, "f4").view(Watched)
    reference = weakref.ref(array)

    def grow_busy(slot: str, arguments: tuple[Any, ...]) -> None:
        if slot == "copy_d2h":
            bench.driver.busy.add(stream.handle)

    bench.driver.on_call = grow_busy
    with pytest.raises(KeyboardInterrupt):
        bench.buffer(4).copy_to(array, stream=stream)
    bench.driver.on_call = lambda slot, arguments: None
    del array
    gc.collect()
    assert reference() is not None
    bench.driver.let_go()
    stream.synchronize()
    assert reference() is None


@blocking
def test_other_threads_wait_in_the_driver(bench: Bench) -> None:
    stream = busy_stream(bench)
    bench.quiet()
    thread = threading.Thread(target=stream.synchronize)
    thread.start()
    thread.join(60)
    assert bench.driver.slots() == ["stream_query", "stream_synchronize"]


@blocking
def test_a_wait_that_was_left_keeps_its_event(bench: Bench) -> None:
    """The lane does not record or destroy the event before the driver's own wait ends."""
    driver: Any = bench.driver
    stream = busy_stream(bench)
    event = stream.record_event()
    handle = event.handle
    with pytest.raises(KeyboardInterrupt):
        event.synchronize()
    with pytest.raises(KeyboardInterrupt):
        driver.interrupts = 1
        stream.synchronize()
    left = {arguments[0] for slot, arguments in driver.calls if slot == "event_synchronize"}
    event.close()
    assert event.closed
    assert left <= driver.live["event"]
    bench.quiet()
    other = busy_stream(bench)
    driver.interrupts = 1
    with pytest.raises(KeyboardInterrupt):
        other.synchronize()
    recorded = {arguments[0] for slot, arguments in driver.calls if slot == "event_record"}
    assert not recorded & left
    driver.let_go()
    bench.context.synchronize()
    assert handle not in driver.live["event"]
    with pytest.raises(InvalidHandleError, match="closed"):
        event.synchronize()


@blocking
def test_threads_that_wait_are_few(bench: Bench) -> None:
    """Without other threads, the main thread polls, and Ctrl-C also ends this wait."""
    driver: Any = bench.driver
    stream = busy_stream(bench)
    for _ in range(4):
        driver.interrupts = 1
        with pytest.raises(KeyboardInterrupt):
            stream.synchronize()
    assert driver.waiting == 4
    driver.interrupt_in_c(True)
    with pytest.raises(KeyboardInterrupt):
        stream.synchronize()
    driver.interrupt_in_c(False)
    assert driver.waiting == 4
    driver.let_go()
    bench.context.synchronize()
    driver.busy.add(stream.handle)
    stream.synchronize()
    assert ("event_synchronize" in driver.slots()) and driver.waiting == 0


@both
def test_a_handler_that_raises_nothing_does_not_end_the_wait(bench: Bench, kind: str) -> None:
    driver: Any = bench.driver
    stream = busy_stream(bench)
    seen = []

    def handle(number: int, frame: object) -> None:
        seen.append(number)
        if kind == "asking":
            raise TimeoutError("enough")
        driver.busy.discard(stream.handle)
        driver.done.set()

    ends = pytest.raises(TimeoutError) if kind == "asking" else contextlib.nullcontext()
    with handler(handle), ends:
        stream.synchronize()
    assert seen == [signal.SIGINT]
    driver.let_go()


@both
def test_a_handler_may_close_what_is_waited_for(bench: Bench, kind: str) -> None:
    stream = busy_stream(bench)
    handle = stream.handle

    def close(number: int, frame: object) -> None:
        stream.close()
        raise KeyboardInterrupt

    with handler(close), pytest.raises(KeyboardInterrupt):
        stream.synchronize()
    assert stream.closed
    assert handle not in bench.driver.live["stream"]
    bench.driver.let_go()
    bench.driver.busy.clear()
    bench.context.synchronize()


@asking
def test_a_destructor_that_is_interrupted_says_so_and_passes_it_on(bench: Bench) -> None:
    """An interrupted destructor does not free native objects while the work runs."""
    driver: Any = bench.driver
    other = driver.open_context(1)
    driver.busy.update(driver.live["stream"])
    before = {kind: set(handles) for kind, handles in driver.live.items()}
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with pytest.raises(KeyboardInterrupt):
            del other
            for _ in range(1000):
                pass
    assert [str(one.message) for one in said] == ["closing counting:1: KeyboardInterrupt"]
    assert said[0].category is DeviceWarning
    assert driver.live == before
    driver.forgive()
    driver.let_go()
    driver.busy.clear()


class WaitingFrees(AskingDriver):
    """Freeing memory waits for all pending work, as with most drivers."""

    def __init__(self) -> None:
        super().__init__(frees_wait=True)


@pytest.mark.bench(driver=WaitingFrees)
def test_pinned_memory_is_freed_when_the_driver_need_not_wait(bench: Bench) -> None:
    stream, other = busy_stream(bench), busy_stream(bench)
    buffer = HostBuffer(4, "f32")
    address = buffer.address
    bench.driver.let_go()
    DeviceBuffer.zeros(4, "f32").copy_to_async(buffer, stream)
    bench.quiet()
    buffer.close()
    stream.synchronize()
    HostBuffer(4, "f32").close()
    assert bench.driver.count("host_free") == 0
    other.synchronize()
    HostBuffer(4, "f32").close()
    assert address not in bench.driver.live["pinned"]
    assert bench.driver.live["pinned"] == set()


@pytest.mark.bench(driver=WaitingFrees)
def test_emptying_the_cache_can_be_interrupted(bench: Bench) -> None:
    busy_stream(bench)
    bench.buffer(LARGE).close()
    bench.quiet()
    before = bench.context.pool_statistics()
    with pytest.raises(KeyboardInterrupt):
        bench.context.empty_cache()
    assert bench.driver.count("free") == 0
    assert bench.context.pool_statistics() == before
    bench.driver.let_go()
    assert bench.context.empty_cache() >= 4 * LARGE


class CopyingDriver(CountingDriver):
    """Ctrl-C arrives during each copy to the host."""

    def __init__(self) -> None:
        pointer = ctypes.cast(patient().copy_d2h, ctypes.c_void_p)
        super().__init__(instead={"copy_d2h": pointer.value or 0})


@pytest.mark.bench(driver=CopyingDriver)
def test_large_copies_of_ordinary_memory_go_in_pieces(bench: Bench) -> None:
    """A signal is handled between two pieces."""
    size = (256 << 20) + 100
    buffer = DeviceBuffer.uninitialized(size, "u8")
    array = np.empty(size, "u1")
    bench.driver.stopped = True
    bench.quiet()
    buffer.copy_from(array)
    copies = [arguments for slot, arguments in bench.driver.calls if slot == "copy_h2d"]
    assert [copy[2] for copy in copies] == [256 << 20, 100]
    assert copies[1][0] - copies[0][0] == copies[1][1] - copies[0][1] == 256 << 20
    copied = ctypes.c_int.in_dll(patient(), "copied")
    before = copied.value
    with pytest.raises(KeyboardInterrupt):
        buffer.copy_to(array)
    assert copied.value == before + 1


@pytest.mark.bench(driver=WaitingFrees)
def test_pinned_memory_goes_with_its_device(bench: Bench) -> None:
    stream = busy_stream(bench)
    HostBuffer(4, "f32").close()
    bench.driver.let_go()
    assert len(bench.driver.live["pinned"]) == 1
    stream.close()
