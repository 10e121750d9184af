"""A profile lists each operation given to a device once, in order and with its name."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, Literal

import numpy as np
import pytest

import uhal
from uhal import Device, DeviceBuffer, Module, Stream, launch
from uhal.profiler.records import KINDS

BLOCK = 128
GRID = 3
COUNT = 1000


def step(basic: Module, stream: Stream, buffer: DeviceBuffer, multiply: int, add: Any) -> None:
    launch(basic.get_function("step"), GRID, BLOCK, (COUNT, multiply, add, buffer), stream=stream)


def counted(found: uhal.Profile) -> Counter[str]:
    return Counter(KINDS[kind] for kind in found.records.rows["kind"])


def test_every_launch_and_copy_is_there_once(
    device: Device, basic: Module, rng: np.random.Generator
) -> None:
    values = rng.integers(0, 2**32, COUNT, "u4")
    launches, copies, fills = (int(number) for number in rng.integers(3, 9, 3))
    with Stream() as stream, DeviceBuffer.uninitialized(COUNT, "u4") as buffer:
        with DeviceBuffer.uninitialized(COUNT, "u4") as other:
            with uhal.profile() as found:
                for _ in range(copies):
                    buffer.copy_from(values, stream=stream)
                for _ in range(launches):
                    step(basic, stream, buffer, 3, 1)
                for _ in range(fills):
                    other.set_32(7, stream=stream)
                other.copy_from(buffer, stream=stream)
                result = other.to_numpy(stream=stream)
            # the profile has ended and notes nothing more
            step(basic, stream, buffer, 3, 1)
            stream.synchronize()
    expected = values
    for _ in range(launches):
        expected = expected * np.uint32(3) + np.uint32(1)
    assert np.array_equal(result, expected)
    kinds = counted(found)
    assert (kinds["launch"], kinds["h2d"], kinds["fill"]) == (launches, copies, fills)
    assert (kinds["d2d"], kinds["d2h"]) == (1, 1)
    (kernel,) = found.kernels
    assert (kernel.name, kernel.calls, kernel.nbytes) == ("step", launches, 4 * COUNT * launches)
    assert kernel.on_device is not None and kernel.on_device.calls == launches
    assert {row.kind: row.nbytes for row in found.copies} == {
        "h2d": 4 * COUNT * copies,
        "fill": 4 * COUNT * fills,
        "d2d": 4 * COUNT,
        "d2h": 4 * COUNT,
    }


def test_times_are_in_the_order_of_the_stream(device: Device, basic: Module) -> None:
    with Stream() as stream, DeviceBuffer.zeros(COUNT, "u4", stream=stream) as buffer:
        with uhal.profile() as found:
            for _ in range(20):
                step(basic, stream, buffer, 5, 2)
            stream.synchronize()
    rows = found.records.of("launch")
    assert len(rows) == 20
    assert (rows["host_begin"][1:] >= rows["host_end"][:-1]).all()
    assert (rows["host_end"] >= rows["host_begin"]).all()
    assert (rows["device_end"] >= rows["device_begin"]).all()
    # Allow for the resolution of events: a stream's begin is only known to within a round trip.
    assert (rows["device_begin"][1:] >= rows["device_end"][:-1] - 2_000).all()
    assert (rows["device_end"] > 0).all()
    assert (rows["device_end"] <= found.records.duration + 50_000_000).all()


@pytest.mark.parametrize("graphs", ["nodes", "whole"])
def test_the_kernels_of_a_plan_are_named(
    device: Device, basic: Module, graphs: Literal["nodes", "whole"], rng: np.random.Generator
) -> None:
    expected = rng.integers(0, 2**32, COUNT, "u4")
    added = [int(number) for number in rng.integers(0, 2**31, 6)]
    with Stream() as stream, DeviceBuffer.from_numpy(expected) as buffer:
        device.synchronize()
        with stream.capture("three") as plan:
            # for a plan with a slot, every library lists its launches
            add = plan.slot("add", added[0])
            for _ in range(3):
                step(basic, stream, buffer, 3, add)
        with plan:
            with uhal.profile(graphs=graphs) as found:
                for number in added[:5]:
                    plan.replay(add=number)
                stream.synchronize()
            # the slot has the value of the last profiled replay
            plan.replay()
            plan.replay(add=added[5])
            for number in (*added[:5], added[4], added[5]):
                for _ in range(3):
                    expected = expected * np.uint32(3) + np.uint32(number)
            assert np.array_equal(buffer.to_numpy(stream=stream), expected)
    kinds = counted(found)
    assert kinds["replay"] == 5
    assert kinds["launch"] == (15 if graphs == "nodes" else 0)
    if graphs == "nodes":
        (kernel,) = found.kernels
        assert (kernel.name, kernel.calls, kernel.nbytes) == ("step", 15, 15 * 4 * COUNT)
        rows = found.records.of("launch")
        wholes = found.records.of("replay")["number"].tolist()
        assert rows["parent"].tolist() == sorted(wholes * 3)


def test_ranges_have_what_was_given_within(device: Device, basic: Module) -> None:
    with DeviceBuffer.zeros(COUNT, "u4") as buffer, Stream() as stream:

        @uhal.annotate("inner")
        def inner() -> None:
            step(basic, stream, buffer, 3, 1)

        with uhal.profile() as found:
            with uhal.annotate("outer"):
                inner()
                inner()
                step(basic, stream, buffer, 3, 1)
            step(basic, stream, buffer, 3, 1)
            with uhal.annotate("of a library", stream=stream, nbytes=12):
                pass
    rows = {row.path: (row.calls, row.launches) for row in found.ranges}
    assert rows == {"outer": (1, 3), "outer / inner": (2, 2), "of a library": (1, 0)}
    (library,) = (row for row in found.kernels if row.kind == "work")
    assert (library.name, library.calls, library.nbytes) == ("of a library", 1, 12)


def test_ranges_of_asyncio_tasks_do_not_mix(device: Device, basic: Module) -> None:
    """Each task launches while other tasks are inside their own ranges or a shared range."""
    shared = uhal.annotate("shared")

    async def task(number: int, stream: Stream, buffer: DeviceBuffer) -> None:
        @uhal.annotate(f"coroutine {number}")
        async def whole() -> None:
            await asyncio.sleep(0)
            step(basic, stream, buffer, 3, 1)

        with uhal.annotate(f"task {number}"):
            for _ in range(number):
                await asyncio.sleep(0)
                step(basic, stream, buffer, 3, 1)
            with shared:
                await asyncio.sleep(0)
                step(basic, stream, buffer, 3, 1)
            await whole()
        await asyncio.sleep(0)
        step(basic, stream, buffer, 3, 1)

    async def all_tasks(stream: Stream, buffer: DeviceBuffer) -> None:
        await asyncio.gather(*(task(number, stream, buffer) for number in range(1, 5)))

    with DeviceBuffer.zeros(COUNT, "u4") as buffer, Stream() as stream:
        with uhal.profile() as found:
            asyncio.run(all_tasks(stream, buffer))
    rows = {row.path: row.launches for row in found.ranges}
    expected = {}
    for number in range(1, 5):
        outer = f"task {number}"
        expected |= {outer: number + 2, f"{outer} / shared": 1}
        expected |= {f"{outer} / coroutine {number}": 1}
    assert rows == expected


def test_a_replay_is_profiled_operation_by_operation(device: Device, basic: Module) -> None:
    with Stream() as stream, DeviceBuffer.zeros(COUNT, "u4") as buffer:
        with stream.capture() as plan:
            buffer.set_8(1, stream=stream)
            buffer.set_16(2, stream=stream)
            buffer[:3].set_32(3, stream=stream)
            step(basic, stream, buffer, 3, 1)
        with plan, uhal.profile() as found:
            plan.replay()
            result = buffer.to_numpy(stream=stream)
    assert result.tolist() == [10] * 3 + [3 * 0x20002 + 1] * (COUNT - 3)
    kinds = counted(found)
    assert kinds["replay"] == 1
    if device.backend == "tops":  # TopsRuntime does not list the kernels of a graph
        return
    assert (kinds["fill"], kinds["launch"]) == (3, 1)
    fills = found.records.rows[found.records.rows["kind"] == KINDS.index("fill")]
    assert fills["bytes"].tolist() == [4 * COUNT, 4 * COUNT, 12]


def test_a_profile_is_alone_and_begins_outside_a_capture(device: Device, basic: Module) -> None:
    with uhal.profile() as found, pytest.raises(RuntimeError, match="another profile is"):
        with uhal.profile():
            pass
    assert found.kernels == []
    with Stream() as stream, DeviceBuffer.zeros(COUNT, "u4") as buffer:
        with stream.capture() as plan:
            step(basic, stream, buffer, 3, 1)
            with pytest.raises(uhal.CaptureError, match="a profile cannot begin during a capture"):
                with uhal.profile():
                    pass
            assert not uhal.is_profiling()
        plan.close()


def test_a_profile_that_nobody_holds_has_ended(device: Device, basic: Module) -> None:
    """Memory may fail as `with` is left; the next profile begins nevertheless."""
    profile = uhal.profile(measure_copy=False)
    profile.start()
    assert uhal.is_profiling()
    del profile
    assert not uhal.is_profiling()
    with uhal.profile(measure_copy=False):
        pass
