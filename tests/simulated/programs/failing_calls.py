"""Work that calls every slot of the hot table, while one call of the driver fails.

    failing_calls.py once CODE LAST CALL…   each call, its 1st … LASTth time, in one process
    failing_calls.py sticky CODE CALL…      each call once, a process each: the device is lost
    failing_calls.py memory CALL…           each allocation, after the pool's own retry has failed

Prints the calls whose failure was raised, one a line.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from cuda_backend._library import header
from tests.shipped_ptx import FATBINS
from uhal import (
    Api,
    Device,
    DeviceBuffer,
    Event,
    HostBuffer,
    LaunchConfig,
    Module,
    Stream,
    StreamFlags,
    launch,
)
from uhal.errors import ArgumentValueError, DeviceError, DeviceWarning, OutOfMemoryError

IMAGE = FATBINS / "activation.fatbin.gz"
KEPT: list[object] = []
OUT_OF_MEMORY = header().constants["CUDA_ERROR_OUT_OF_MEMORY"]
CLASS_OF = {1: ArgumentValueError, OUT_OF_MEMORY: OutOfMemoryError}
# Calls that free objects: a failure leaks the driver's object. A failure to restore the thread's
# own device, after an object was created on our device, also leaks the object.
KINDS_LET_GO = {
    "cuMemFree_v2": ["allocation"],
    "cuMemFreeAsync": ["allocation"],
    "cuMemFreeHost": ["pinned"],
    "cuStreamDestroy_v2": ["stream"],
    "cuEventDestroy_v2": ["event"],
    "cuModuleUnload": ["module"],
    "cuCtxSetCurrent": ["allocation", "pinned", "stream"],
}

simulator = ctypes.CDLL(os.environ["UHAL_CUDA_LIBRARY"])
called: list[int] = []


def live() -> dict[str, int]:
    """Return the number of the driver's living objects by kind."""
    kinds = ("stream", "event", "module", "allocation", "pinned")
    return {kind: simulator.uhal_sim_live(kind.encode()) for kind in kinds}


def fail(call: str, nth: int, code: int) -> None:
    simulator.uhal_sim_fail(call.encode(), nth, code)


def on_a_thread(function: Callable[[], None]) -> None:
    """Call a function on another thread; raise its exception here."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(function).result()


def work() -> None:
    """Use every slot at least once, on two devices, and check the numbers."""
    device, other = Device(0, "cuda"), Device(1, "cuda")
    with Stream() as stream, Stream(StreamFlags.NON_BLOCKING) as second:
        pinned = HostBuffer(1000, "f32")
        pinned.array[:] = 1
        x = DeviceBuffer.from_numpy(np.ones(1000, "f4"), stream=stream)
        y = DeviceBuffer.uninitialized_async(1000, "f32", stream, native=True)
        y.view("u8").set_8(0, stream=stream)
        y.view("u16").set_16(0, stream=stream)
        y.set_32(0, stream=stream)
        y.copy_from_async(x, stream)
        with Module.from_file(IMAGE) as module:
            started = stream.record_event(Event())
            kernel = module.get_function("activationf32")
            kernel[4, 256, 0, stream](y, 10, 100, 0)
            cooperative = LaunchConfig(1, 64, cooperative=True)
            launch(kernel, config=cooperative, args=(y, 10, 100, 0), stream=stream)
            event = stream.record_event(Event())
            second.wait_event(event)
            y.copy_to_async(pinned, second)
            second.add_callback(called.append, 1)
            stream.query()
            event.query()
            # The main thread polls before it waits in the driver; other threads wait there at once.
            on_a_thread(event.synchronize)
            on_a_thread(second.synchronize)
            assert event.elapsed_since(started) >= 0
            with stream.capture() as plan:
                kernel[4, 256, 0, stream](y, plan.slot("rows", 10), 100, 0)
            with plan:
                plan.replay(rows=9)
                stream.synchronize()
        with other:
            far = DeviceBuffer.from_numpy(np.zeros(1000, "f4"))
        far.copy_from(x)
        assert (far.to_numpy() == 1).all()
        stream.synchronize()
        assert (pinned.array == 1).all()
        assert (y.to_numpy() == 1).all()
    assert device.ordinal == 0


def let_go() -> dict[str, int]:
    """Return the driver's objects after the pools have released their memory."""
    gc.collect()
    for ordinal in (0, 1):
        Device(ordinal, "cuda").synchronize()
        Device(ordinal, "cuda").empty_cache()
    return live()


def once(calls: Sequence[str], code: int, last: int) -> None:
    work()
    for call in calls:
        for nth in range(1, last + 1):
            before = let_go()
            fail(call, nth, code)
            try:
                work()
            except DeviceError as error:
                assert error.call != call or isinstance(error, CLASS_OF[code]), repr(error)
                print(call)
                del error
            gc.collect()
            fail(call, 0, 0)
            work()
            after = let_go()
            # The pool keeps idle events for later.
            left = {kind: after[kind] - before[kind] for kind in after if kind != "event"}
            may_stay = KINDS_LET_GO.get(call, [])
            assert all(count <= (kind in may_stay) for kind, count in left.items()), (call, left)
    assert live()["event"] < 50, live()


def sticky(calls: Sequence[str], code: int) -> None:
    for call in calls:
        child = os.fork()
        if child == 0:
            print(call if lost_by(call, code) else f"not called: {call}", flush=True)
            # Destructors meet the lost device, as when the interpreter ends.
            gc.collect()
            sys.exit()
        _, status = os.waitpid(child, 0)
        assert status == 0, f"after {call} the process died: {status}"


def lost_by(call: str, code: int) -> bool:
    """Do the work with a call that loses the device; return whether the call was made."""
    Api.quick_init(0, "cuda")
    work()
    fail(call, 1, code)
    try:
        work()
    except DeviceError as error:
        assert error.code == code, repr(error)
        assert "Start a new process" in str(error), error
        suspects = [one.kernel for one in error.candidates]
        assert suspects == ["activationf32"] * len(suspects), suspects
        assert len(suspects) == 2 or call != "cuEventSynchronize", error
        lost = [ordinal for ordinal in (0, 1) if is_lost(ordinal)]
        assert len(lost) == 1, lost
    else:
        return False
    device = Device(lost[0], "cuda")
    for use in (
        lambda: Stream(device=device),
        lambda: Event(device=device),
        lambda: DeviceBuffer.zeros(4, "f32", device=device),
        lambda: HostBuffer(4, "f32", device=device),
        lambda: Module.from_file(IMAGE, device=device),
        device.synchronize,
        device.memory_info,
    ):
        try:
            use()
        except DeviceError as error:
            assert f"cuda:{lost[0]} was lost earlier" in str(error), error
        else:
            raise AssertionError(f"{call}: a lost device was used")
    return True


def is_lost(ordinal: int) -> bool:
    try:
        Device(ordinal, "cuda").synchronize()
    except DeviceError:
        return True
    return False


def memory(calls: Sequence[str]) -> None:
    """For each allocation of the work in turn, fail the allocation and its retry."""
    work()
    for call in calls:
        for nth in range(1, 20):
            before = let_go()
            fail(call, nth, OUT_OF_MEMORY)
            fail(call, nth + 1, OUT_OF_MEMORY)
            try:
                work()
            except OutOfMemoryError as error:
                assert error.call == call, repr(error)
                print(call)
                del error
            else:
                break
            fail(call, 0, 0)
            gc.collect()
            work()
            after = let_go()
            assert {**after, "event": 0} == {**before, "event": 0}, (call, nth, before, after)
        else:
            raise AssertionError(f"{call} never stops failing")
        fail(call, 0, 0)


def at_exit(_: Sequence[str]) -> None:
    """Exit with pending work on two devices, one of which turns out to be lost."""
    for ordinal in (0, 1):
        with Device(ordinal, "cuda"):
            stream = Stream()
            stream.add_callback(lambda ordinal=ordinal: print(f"done on {ordinal}"))
            KEPT.append((stream, DeviceBuffer.zeros(10, "u4", stream=stream)))
    fail("cuStreamQuery", 1, 700)


if __name__ == "__main__":
    mode, *told = sys.argv[1:]
    numbers = [int(one) for one in told if one.isdigit()]
    calls = [one for one in told if not one.isdigit()]
    warnings.simplefilter("ignore", DeviceWarning)
    if mode != "sticky":
        Api.quick_init(0, "cuda")
    modes: dict[str, Callable[..., None]] = {
        "once": once,
        "sticky": sticky,
        "memory": memory,
        "at_exit": at_exit,
    }
    modes[mode](calls, *numbers)
