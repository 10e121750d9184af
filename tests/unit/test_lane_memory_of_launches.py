"""The lane's memory of earlier launches never changes a launch's result."""

from __future__ import annotations

import random

import numpy as np
import pytest

import uhal
from tests.counting_bench import Bench
from uhal import DeviceBuffer, launch
from uhal.contract import FunctionAttributes


class Growing:
    """An index whose value changes at each conversion."""

    def __init__(self) -> None:
        self.value = 0

    def __index__(self) -> int:
        self.value += 1
        return self.value


def geometry(bench: Bench) -> tuple[int, ...]:
    """Return grid, block and shared bytes of the last launch that the driver saw."""
    name, arguments = bench.driver.calls[-1]
    assert name == "launch"
    return tuple(arguments[1:8])


def test_each_launch_has_its_own_geometry(bench: Bench, seed: int) -> None:
    chance = random.Random(seed)
    k = bench.function("u32 n")
    grids = [3, (4,), (5, 2), (1, 2, 3)]
    blocks = [32, (64,), (8, 8)]
    for _ in range(300):
        grid, block, shared = chance.choice(grids), chance.choice(blocks), chance.choice([0, 16])
        if chance.random() < 0.5:
            launch(k, grid, block, (1,), shared)
        else:
            k[grid, block, shared](1)
        wanted = [*np.atleast_1d(grid), 1, 1][:3] + [*np.atleast_1d(block), 1, 1][:3]
        assert geometry(bench) == (*map(int, wanted), shared)


def test_a_size_that_changes_is_asked_each_time(bench: Bench) -> None:
    k = bench.function("u32 n")
    grid = (Growing(),)
    for expected in (1, 2, 3):
        launch(k, grid, 32, (1,))
        assert geometry(bench)[0] == expected


def test_what_is_refused_once_is_refused_again(bench: Bench) -> None:
    k = bench.function("u32 n")
    good, bad = (1,), (2**40,)
    for grid in (good, bad, bad, good, bad):
        if grid is bad:
            with pytest.raises(uhal.ArgumentValueError, match="grid"):
                launch(k, grid, 32, (1,))
        else:
            launch(k, grid, 32, (1,))


def test_a_new_shared_memory_limit_counts_for_a_geometry_seen_before(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def set_limit(function: int, name: str, limit: int) -> FunctionAttributes:
        return FunctionAttributes(
            max_threads_per_block=1024, static_shared_bytes=0, max_dynamic_shared_bytes=limit
        )

    monkeypatch.setattr(bench.driver, "set_max_dynamic_shared_bytes", set_limit)
    k = bench.function("u32 n")
    grid, block, shared = (1,), (32,), 1024
    launch(k, grid, block, (1,), shared)
    k.set_max_dynamic_shared_bytes(512)
    with pytest.raises(uhal.ArgumentValueError, match="shared"):
        launch(k, grid, block, (1,), shared)


def test_keywords_may_come_in_any_order(bench: Bench) -> None:
    k = bench.function("u32 n")
    for _ in range(3):
        launch(k, grid=2, block=32, args=(1,))
        assert geometry(bench)[:4] == (2, 1, 1, 32)
        launch(k, args=(1,), block=64, grid=3)
        assert geometry(bench)[:4] == (3, 1, 1, 64)
        launch(block=16, function=k, args=(1,), shared=8, grid=4)
        assert geometry(bench) == (4, 1, 1, 16, 1, 1, 8)
        with pytest.raises(TypeError, match="unexpected keyword argument 'grib'"):
            launch(k, grib=2, block=32, args=(1,))  # type: ignore[call-overload]
        with pytest.raises(TypeError, match="'grid' twice"):
            launch(k, 2, grid=2, block=32, args=(1,))  # type: ignore[misc]


def test_a_stream_gets_its_own_memory_back_first(bench: Bench) -> None:
    mine, other = bench.busy_stream(), bench.busy_stream()
    first = DeviceBuffer.uninitialized_async(64, "f32", mine)
    second = DeviceBuffer.uninitialized_async(64, "f32", other)
    k = bench.function("ptr x")
    k[1, 1, 0, mine](first)
    k[1, 1, 0, other](second)
    addresses = {}
    for name, buffer in (("first", first), ("second", second)):
        bench.driver.parameter_sizes = (8,)
        k[1, 1, 0, mine if name == "first" else other](buffer)
        addresses[name] = bench.driver.parameters
        buffer.close()
    # the most recently freed block belongs to the other stream
    again = DeviceBuffer.uninitialized_async(64, "f32", mine)
    k[1, 1, 0, mine](again)
    assert bench.driver.parameters == addresses["first"]
    assert bench.driver.count("stream_wait_event") == 0


def test_names_of_dtypes_are_remembered_by_value(bench: Bench) -> None:
    for _ in range(2):
        assert DeviceBuffer.uninitialized(2, "f32").dtype.name == "f32"
        assert DeviceBuffer.uninitialized(2, np.dtype("f8")).dtype.name == "f64"
        assert DeviceBuffer.uninitialized(2, uhal.dtypes.u8).nbytes == 2
        with pytest.raises(uhal.ArgumentTypeError, match="dtype"):
            DeviceBuffer.uninitialized(2, np.dtype(">f4"))
