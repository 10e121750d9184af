"""Slots in Python, and emulations of slots that a library lacks."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.counting_driver import NOT_READY, OUT_OF_MEMORY, CountingDriver
from uhal import DeviceBuffer, Event, Stream, _lane
from uhal.device import Device
from uhal.emulation import TOGETHER, complete
from uhal.errors import DeviceError, NotFoundError, OutOfMemoryError
from uhal.python_slots import PythonSlots, function_type

CODES = {"not_ready": NOT_READY, "out_of_memory": OUT_OF_MEMORY}
HOST_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Poor(CountingDriver):
    """A counting driver without some slots, which are emulated."""

    def __init__(self, *lacking: str) -> None:
        super().__init__()
        own = {name: at for name, at in self._table.slots.items() if name not in lacking}
        self._table = _lane.HotTable(complete(own, backend="poor", **CODES), **CODES)
        self.own = own


def call(driver: Poor, slot: str, *arguments: Any) -> int:
    status: int = function_type(slot)(driver.hot_table.slots[slot])(*arguments)
    return status


def opened(driver: CountingDriver) -> Device:
    return driver.open_context().device


# -- emulations ------------------------------------------------------------------------------------


def test_what_a_library_has_stays_its_own() -> None:
    driver = Poor("memset_8", "memset_16", "memset_32")
    assert {name: driver.hot_table.slots[name] for name in driver.own} == driver.own


@pytest.mark.parametrize("width", [1, 2, 4])
@pytest.mark.parametrize("count", [0, 1, 1023, 4096, 50_003])
def test_fills_are_copies(width: int, count: int, rng: np.random.Generator) -> None:
    driver = Poor("memset_8", "memset_16", "memset_32")
    memory = rng.integers(0, 256, size=width * count + 64, dtype=np.uint8)
    kept = memory[width * count :].copy()
    value = int(rng.integers(1 << (8 * width)))
    stream = driver._fresh("stream")
    assert call(driver, f"memset_{8 * width}", memory.ctypes.data, value, count, stream) == 0
    pattern = np.frombuffer(value.to_bytes(width, "little"), dtype=np.uint8)
    np.testing.assert_array_equal(memory[: width * count], np.tile(pattern, count))
    np.testing.assert_array_equal(memory[width * count :], kept)
    assert driver.count("copy_h2d") == (count > 0)


def test_a_fill_passes_on_what_a_copy_answers() -> None:
    driver = Poor("memset_8", "memset_16", "memset_32")
    memory = ctypes.create_string_buffer(10_000)
    driver.failures["copy_d2d"] = [1]
    stream = driver._fresh("stream")
    assert call(driver, "memset_8", ctypes.addressof(memory), 7, 10_000, stream) == 1


def test_a_synchronous_library_needs_neither_streams_nor_events() -> None:
    lacking = [name for group in TOGETHER for name in group]
    driver = Poor(*lacking, "stream_callback")
    device = opened(driver)
    stream, first, last = (
        Stream(device=device),
        Event(device=device),
        Event(device=device),
    )
    buffer = DeviceBuffer.from_numpy(np.arange(8, dtype=np.float32), device=device)
    first.record(stream)
    called = threading.Event()
    stream.add_callback(called.set)
    last.record(stream)
    stream.wait_event(last)
    stream.synchronize()
    assert called.wait(10)
    assert last.elapsed_since(first) >= 0
    np.testing.assert_array_equal(buffer.to_numpy(), np.arange(8, dtype=np.float32))
    assert not {slot for slot, _ in driver.calls}.intersection(lacking)


@pytest.mark.parametrize("nbytes", [0, 1, 4096, 100_000])
def test_host_memory_is_ordinary_memory(nbytes: int) -> None:
    driver = Poor("host_alloc", "host_free")
    pointer = ctypes.c_void_p()
    assert call(driver, "host_alloc", ctypes.addressof(pointer), nbytes, 0) == 0
    assert pointer.value is not None and pointer.value % 4096 == 0
    ctypes.memset(pointer, 7, nbytes)
    assert call(driver, "host_free", pointer) == 0


def test_recording_an_emulated_event_waits_for_its_stream() -> None:
    driver = Poor(*TOGETHER[1])
    event = ctypes.c_void_p()
    assert call(driver, "event_create", ctypes.addressof(event), 0) == 0
    stream = driver._fresh("stream")
    driver.busy.add(stream)
    assert call(driver, "event_record", event, stream) == 0
    assert driver.slots() == ["stream_synchronize"]
    assert call(driver, "event_query", event) == 0
    assert call(driver, "event_destroy", event) == 0


def test_callbacks_run_when_their_own_stream_gets_there() -> None:
    driver = Poor("stream_callback")
    driver.current = driver.device_context(0)
    held, free = driver._fresh("stream"), driver._fresh("stream")
    driver.busy.add(held)
    reached: list[str] = []
    functions = [
        HOST_FUNCTION(lambda _, name=name: reached.append(name)) for name in ("held", "free")
    ]
    for function, stream in zip(functions, (held, free), strict=True):
        assert call(driver, "stream_callback", stream, function, None) == 0
    until(lambda: reached == ["free"])
    driver.busy.clear()
    until(lambda: reached == ["free", "held"])
    until(lambda: not driver.live["event"])


def until(reached: Callable[[], bool]) -> None:
    """Wait until `reached()` is true; fail after half a minute."""
    deadline = time.monotonic() + 30
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.001)


@pytest.mark.parametrize(
    ("slots", "message"),
    [
        ({"launch": 1}, "poor: nothing stands in for alloc, free"),
        ({"event_create": 1}, r"poor: event_create, .* go together; event_destroy, .* is missing"),
        ({"current": 1}, "poor: current, bind go together; bind is missing"),
    ],
)
def test_what_cannot_be_completed_is_refused(slots: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        complete(slots, backend="poor", **CODES)


# -- slots in Python -------------------------------------------------------------------------------


class Failing(CountingDriver):
    """A counting driver with one slot whose Python function raises."""

    def __init__(self, slot: str, failure: BaseException) -> None:
        def fail(*arguments: Any) -> None:
            raise failure

        self._failing = PythonSlots({slot: fail}, out_of_memory=OUT_OF_MEMORY)
        super().__init__(instead=self._failing.addresses)


def test_an_exception_reaches_the_user_as_the_cause() -> None:
    failure = KeyError("a mistake")
    device = opened(Failing("event_create", failure))
    with pytest.raises(DeviceError, match="event_create: KeyError: 'a mistake'") as caught:
        Event(device=device)
    assert caught.value.__cause__ is failure
    device.close()


@pytest.mark.parametrize("failure", [NotFoundError("no such event"), KeyboardInterrupt()])
def test_an_exception_of_ours_and_an_interrupt_stay_what_they_are(failure: BaseException) -> None:
    device = opened(Failing("event_create", failure))
    with pytest.raises(type(failure)) as caught:
        Event(device=device)
    assert caught.value is failure
    device.close()


def test_a_memory_error_says_that_the_device_is_full() -> None:
    device = opened(Failing("alloc", MemoryError()))
    with pytest.raises(OutOfMemoryError):
        DeviceBuffer.uninitialized(8, "f32", device=device)


def test_a_result_is_written_through_the_first_parameter() -> None:
    slots = PythonSlots(
        {"alloc": lambda nbytes: 0x1234 + nbytes, "event_elapsed": lambda start, end: 2.5},
        out_of_memory=OUT_OF_MEMORY,
    )
    address, elapsed = ctypes.c_uint64(), ctypes.c_float()
    alloc = function_type("alloc")(slots.addresses["alloc"])
    assert alloc(ctypes.addressof(address), 6) == 0
    assert address.value == 0x123A
    measure = function_type("event_elapsed")(slots.addresses["event_elapsed"])
    assert measure(ctypes.addressof(elapsed), 1, 2) == 0
    assert elapsed.value == 2.5


def test_a_name_that_is_no_slot_is_refused() -> None:
    with pytest.raises(KeyError, match="fly"):
        PythonSlots({"fly": print}, out_of_memory=OUT_OF_MEMORY)
