"""Ctrl-C ends every wait of the main thread while the work goes on, and nothing else is changed.

Each device is tested in its own process. A thread sends the signal when the main thread is about to
wait for held work. If the wait does not end, the thread opens the gate and prints an error.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ubridge
from uhal import Device, DeviceBuffer, Event, EventFlags, HostBuffer, Module, Stream
from uhal.errors import InvalidHandleError
from uhal_conformance.children import check_child, run_child
from uhal_conformance.gate import Gate
from uhal_conformance.row import DeviceRow
from uhal_conformance.sampling import rounds

LARGE = 1 << 21
"""Size of a read that no backend stages."""
PATIENCE = 20.0
"""Seconds after which an interrupted wait counts as not ended."""
INTO_THE_WAIT = 0.05
"""Seconds for the main thread to get from its last instruction into the wait."""


class Held:
    """A stream whose work is held, and objects to wait for there."""

    def __init__(self, basic: Module, rng: np.random.Generator) -> None:
        self.stream = Stream()
        self.values = rng.integers(0, 2**32, LARGE // 4, "u4")
        self.buffer = DeviceBuffer.from_numpy(self.values, stream=self.stream)
        self.rows = DeviceBuffer.from_numpy(self.values.reshape(8, -1)[:, :64], stream=self.stream)
        self.stream.synchronize()
        self.gate = Gate(basic)
        self.gate.hold(self.stream)
        self.buffer.record_stream(self.stream)
        self.event = self.stream.record_event()
        self.blocking = self.stream.record_event(Event(EventFlags.BLOCKING_SYNC))
        self.out = np.full(LARGE // 4, 7, "u4")
        self.out_rows = np.full((8, 64), 7, "u4")


WAITS: dict[str, Callable[[Held], object]] = {
    "Stream.synchronize": lambda held: held.stream.synchronize(),
    "Event.synchronize": lambda held: held.event.synchronize(),
    "a blocking event": lambda held: held.blocking.synchronize(),
    "Device.synchronize": lambda held: Device.current().synchronize(),
    "to_numpy": lambda held: held.buffer.to_numpy(),
    "to_numpy in the stream": lambda held: held.buffer.to_numpy(stream=held.stream),
    "copy_to": lambda held: held.buffer.copy_to(held.out, stream=held.stream),
    "copy_to pinned": lambda held: held.buffer.copy_to(HostBuffer(LARGE // 4, "u4")),
    "copy_from": lambda held: held.buffer.copy_from(held.values),
    "copy_2d_to": lambda held: held.rows.copy_2d_to(held.out_rows, stream=held.stream),
    "copy_2d_from": lambda held: held.rows.copy_2d_from(held.out_rows, stream=held.stream),
    "from_numpy": lambda held: DeviceBuffer.from_numpy(held.values, stream=held.stream),
}


def interrupt_each(image: str, backend: str, seed: int) -> None:
    """In a child process: interrupt every wait twice; print wrong results."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs ignore SIGINT
    device = Device(0, backend)
    rng = np.random.default_rng(seed)
    with device, Module.from_file(Path(image)) as basic:
        held = Held(basic, rng)
        for name, wait in WAITS.items():
            for _ in range(2):
                interrupt(name, lambda wait=wait: wait(held), held.gate)  # type: ignore[misc]
        assert not held.stream.query()
        assert not held.event.query()
        # the interrupted copy has not begun: otherwise it would have overtaken the held work
        assert (held.out == 7).all() and (held.out_rows == 7).all()
        held.gate.open()
        held.event.synchronize()
        held.blocking.synchronize()
        held.stream.synchronize()
        assert np.array_equal(held.buffer.to_numpy(), held.values)
        for wait in WAITS.values():
            wait(held)
        assert np.array_equal(held.out, held.values)
        held.gate.close()
        implicit_waits(device, basic, rng)


def implicit_waits(device: Device, basic: Module, rng: np.random.Generator) -> None:
    """Interrupt waits within other calls: a tensor's value, closing, emptying the cache."""
    tensor = ubridge.asarray(np.array([3.5], "f4"))
    default = Gate(basic)
    default.hold(Stream.default())
    interrupt("Tensor.item", tensor.item, default)
    default.close()
    assert tensor.item() == 3.5

    gate = Gate(basic)
    stream = Stream()
    gate.hold(stream)
    DeviceBuffer.uninitialized(1 << 20, "u8").close()
    HostBuffer(100, "u4").close()
    stream.close()
    interrupt("Device.synchronize, of a closed stream", device.synchronize, gate)
    if device.backend != "rocm":  # frees of ROCm do not wait
        interrupt("Device.empty_cache", device.empty_cache, gate)
    gate.open()
    device.synchronize()
    assert device.empty_cache() >= 1 << 20

    with Stream() as stream:
        buffer = DeviceBuffer.zeros(8, "u4", stream=stream)
        with stream.capture("held") as plan:
            basic.get_function("step")[1, 8, 0, stream](8, 3, 5, buffer)
        gate = Gate(basic)
        gate.hold(stream)
        plan.replay()
        interrupt("Plan.close", plan.close, gate)
        assert not plan.closed
        gate.close()
        plan.replay()
        plan.close()
        assert buffer.to_numpy().tolist() == [20] * 8
    gone = weakref.ref(buffer)
    del buffer, plan
    gc.collect()
    assert gone() is None


def interrupt(name: str, wait: Callable[[], object], gate: Gate) -> None:
    about_to_wait = threading.Event()
    ended = threading.Event()

    def send() -> None:
        about_to_wait.wait()
        time.sleep(INTO_THE_WAIT)
        os.kill(os.getpid(), signal.SIGINT)
        if not ended.wait(PATIENCE):
            print(f"{name} was not ended by Ctrl-C")
            gate.open()

    sender = threading.Thread(target=send)
    sender.start()
    try:
        about_to_wait.set()
        wait()
        print(f"{name} did not raise KeyboardInterrupt")
        while sender.is_alive():  # wait for the signal
            time.sleep(0.001)
    except KeyboardInterrupt:
        pass
    ended.set()
    sender.join()


@pytest.mark.drawn(2, among_backends=True)
def test_ctrl_c_ends_every_wait(row: DeviceRow, image: Callable[[str], Path], seed: int) -> None:
    assert check_child(interrupt_each, str(image("basic")), row.backend, seed) == ""


# -- closing during a wait -------------------------------------------------------------------------


def close_under_waits(image: str, backend: str, count: int) -> None:
    """In a child process: threads, including the main thread, wait for objects that another
    closes."""
    for _ in range(count):
        with Device(0, backend) as device:
            basic = Module.from_file(Path(image))
            gate, stream = Gate(basic), Stream()
            gate.hold(stream)
            buffer = DeviceBuffer.uninitialized(1000, "u4")
            basic.get_function("fill")[1, 1, 0, stream](1000, 5, buffer)
            event = stream.record_event()
        waits = [stream.synchronize, event.synchronize, device.synchronize, buffer.to_numpy]
        begun = threading.Barrier(len(waits) + 2)
        threads = [threading.Thread(target=come_back, args=(wait, begun)) for wait in waits]
        closer = threading.Thread(
            target=close_all, args=([stream, event, buffer], [basic, device], gate.flag, begun)
        )
        for thread in [closer, *threads]:
            thread.start()
        come_back(stream.synchronize, begun)
        for thread in [closer, *threads]:
            thread.join(60)
            assert not thread.is_alive()
        for wait in waits:
            with pytest.raises(InvalidHandleError, match="closed"):
                wait()


def come_back(wait: Callable[[], Any], begun: threading.Barrier) -> None:
    """Wait; the wait ends with the work, or with an error that names the closed object."""
    begun.wait(60)
    try:
        found = wait()
    except InvalidHandleError as refusal:
        assert "closed" in str(refusal)
    else:
        assert found is None or (found == 5).all()


def close_all(
    closing: list[Any], waiting: list[Any], flag: np.ndarray[Any, Any], begun: threading.Barrier
) -> None:
    """Close objects while work is held, then objects whose closing may wait for this work."""
    begun.wait(60)
    time.sleep(INTO_THE_WAIT)
    for one in closing:
        one.close()
    flag[0] = 1
    for one in waiting:
        one.close()


@pytest.mark.drawn(2, among_backends=True)
def test_closing_what_others_wait_for(row: DeviceRow, image: Callable[[str], Path]) -> None:
    """Waiting threads return when the work is done; later calls on the closed object are
    refused."""
    count = rounds(3, 100)
    assert check_child(close_under_waits, str(image("basic")), row.backend, count) == ""


# -- leaving ---------------------------------------------------------------------------------------


def leave_work_behind(image: str, backend: str) -> None:
    device = Device(0, backend)
    device.__enter__()
    basic = Module.from_file(Path(image))
    gate = Gate(basic)
    stream = Stream()
    gate.hold(stream)
    print("leaves", flush=True)
    globals()["kept"] = gate, stream, device
    signal.signal(signal.SIGINT, signal.default_int_handler)
    leaving = threading.Event()
    atexit.register(leaving.set)  # called first, because it is registered last

    def send() -> None:
        leaving.wait()
        time.sleep(4 * INTO_THE_WAIT)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=send, daemon=True).start()


@pytest.mark.drawn(2, among_backends=True)
def test_ctrl_c_ends_the_wait_at_exit(row: DeviceRow, image: Callable[[str], Path]) -> None:
    """The process ends despite endless work, and prints that it abandoned this work."""
    left = run_child(leave_work_behind, str(image("basic")), row.backend, timeout=60)
    assert (left.returncode, left.stdout) == (0, "leaves\n")
    words = "interrupted; pending work is not waited for"
    assert left.stderr == f"uhal, as the process ends: {words}\n"
