"""UHAL_POOL=direct and guard: one driver allocation per buffer, red zones and poison."""

from __future__ import annotations

import ctypes
import os
import random
import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import pytest

from tests.children import ROOT
from tests.counting_bench import Bench, use
from tests.counting_driver import BLOCKING_SLOTS, OUT_OF_MEMORY, CountingDriver
from tests.sampling import rounds
from uhal import DeviceBuffer, Signature, Stream
from uhal._lane import ModuleHandle
from uhal.errors import DeviceWarning
from uhal.python_slots import PythonSlots

ZONE = 256


@pytest.mark.bench(UHAL_POOL="direct")
def test_direct_memory_comes_from_the_driver_and_goes_back(bench: Bench) -> None:
    bench.quiet()
    buffers = [bench.buffer(size) for size in (1, 1000, 1000)]
    assert [a[1] for slot, a in bench.driver.calls if slot == "alloc"] == [4, 4000, 4000]
    assert bench.context.pool_statistics()["bytes_in_use"] == 8004
    for buffer in buffers:
        buffer.close()
    assert bench.driver.count("free") == 3
    assert bench.context.pool_statistics()["bytes_reserved"] == 0


@pytest.mark.bench(UHAL_POOL="direct")
def test_direct_memory_in_use_is_freed_later_and_never_waited_for(bench: Bench) -> None:
    streams = [bench.busy_stream() for _ in range(2)]
    buffer = bench.buffer(1000)
    for stream in streams:
        use(bench, stream, buffer)
    bench.quiet()
    buffer.close()
    assert bench.driver.count("free", *BLOCKING_SLOTS) == 0
    bench.driver.busy.discard(streams[0].handle)
    bench.buffer(10).close()
    assert bench.driver.count("free") == 1
    bench.driver.busy.clear()
    bench.buffer(10).close()
    assert bench.driver.count("free") == 3


def test_what_is_closed_while_a_slot_in_python_launches_goes_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The slot itself closes objects, as another thread may at that moment."""
    monkeypatch.setenv("UHAL_POOL", "direct")
    used: list[DeviceBuffer | Stream | ModuleHandle] = []

    def live() -> list[int]:
        return [len(driver.live[kind]) for kind in ("allocation", "stream", "module")]

    def close_meanwhile(*launch: Any) -> None:
        before = live()
        while used:
            used.pop().close()
        assert live() == before

    slots = PythonSlots({"launch": close_meanwhile}, out_of_memory=OUT_OF_MEMORY)
    driver = CountingDriver(instead=slots.addresses)
    with Bench.accounted(driver) as bench:
        before = live()
        buffer, stream, module = bench.buffer(1000), Stream(), driver.module(bench.context)
        function = driver.function(bench.context, Signature.parse("ptr", entry="k"), module=module)
        used += [buffer, stream, module]
        function[1, 1, 0, stream](buffer)
        del buffer, stream, module, function
        assert not used and live() == before


@pytest.mark.parametrize("slot", ["launch", "copy_h2d", "stream_query", "get_function"])
def test_python_functions_of_modules_do_not_slow_launches(slot: str) -> None:
    """A launch holds its objects only if Python code may run meanwhile."""
    slots = PythonSlots({slot: lambda *values: 0}, out_of_memory=OUT_OF_MEMORY)
    table = CountingDriver(instead=slots.addresses).hot_table
    assert table.runs_python == (slot != "get_function")


@pytest.mark.bench(UHAL_POOL="direct")
def test_a_free_that_fails_loses_no_other_buffer(bench: Bench) -> None:
    busy = bench.busy_stream()
    for _ in range(3):
        buffer = bench.buffer(1000)
        use(bench, busy, buffer)
        buffer.close()
    bench.driver.busy.clear()
    bench.driver.failures["free"] = [400]
    with pytest.raises(ValueError, match="free: INVALID_HANDLE"):
        bench.buffer(10)
    (failed,) = [address for slot, (address, *_) in bench.driver.calls if slot == "free"]
    bench.driver.forgive("allocation", failed)
    bench.buffer(10).close()
    assert "allocation" not in bench.driver.left()


@pytest.mark.bench(UHAL_POOL="guard")
def test_guarded_memory_is_poisoned_fresh_and_freed(bench: Bench) -> None:
    buffer = bench.buffer(1000, "u8")
    assert (buffer.to_numpy() == 0xCB).all()
    bench.quiet()
    buffer.close()
    fills = [a for slot, a in bench.driver.calls if slot == "memset_8"]
    assert [(value, count) for _, value, count, _ in fills] == [(0xDB, 1000)]
    assert bench.driver.slots()[-1] == "free"


@pytest.mark.bench(UHAL_POOL="guard")
@pytest.mark.parametrize(
    ("offset", "before", "after"), [(-1, 1, 0), (-ZONE, ZONE, 0), (1000, 0, 1), (1010, 0, 11)]
)
def test_a_write_outside_a_guarded_buffer_is_told(
    bench: Bench, offset: int, before: int, after: int
) -> None:
    buffer = bench.buffer(1000, "u8")
    (address,) = use(bench, None, buffer)
    ctypes.memset(address + offset, 0, 1)
    with pytest.warns(DeviceWarning, match="a buffer of 1000 bytes") as told:
        buffer.close()
    assert f"lies {before} before its start, {after} past its end" in str(told[0].message)


@pytest.mark.bench(UHAL_POOL="guard")
def test_writes_inside_a_guarded_buffer_are_fine(bench: Bench) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for size in (1, 255, 4096):
            with DeviceBuffer.from_numpy(np.zeros(size, "u1")) as buffer:
                buffer.set_8(0xFF)
    assert bench.context.pool_statistics()["bytes_reserved"] == 0


# These modes do not reuse memory, count its reuse, or free without a wait (the driver's own free
# waits for the device).
LEFT_OUT = "not contents_under_load and not behind_a_gate and not goes_back and not not_so_much"
# New memory is filled first. The fill waits while a gate holds a CPU's thread, if the driver runs
# the kernels of all queues on these threads.
LEFT_OUT_OF_GUARD = " and not (opencl and (held_until_it_is_read or others_wait_for_them))"


@pytest.mark.drawn(1)
@pytest.mark.parametrize("setting", ["UHAL_POOL=direct", "UHAL_POOL=guard"])
def test_devices_work_the_same_under_each_setting(setting: str, seed: int) -> None:
    name, _, value = setting.partition("=")
    files = ["test_memory.py", "test_threads.py", "test_pool.py", "test_dlpack.py"]
    files = rounds(random.Random(seed).sample(files, 2), files)
    result = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-x",
            f"--seed={seed}",
            *(f"tests/conformance/{file}" for file in files),
            "-k",
            rounds("host and ", "") + LEFT_OUT + (LEFT_OUT_OF_GUARD if value == "guard" else ""),
        ],
        cwd=ROOT,
        env={**os.environ, name: value},
        capture_output=True,
        text=True,
        timeout=rounds(300, 3000),
    )
    assert result.returncode == 0, result.stdout[-3000:]
