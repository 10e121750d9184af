"""The usual geometry for n elements, from a device's limits."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.counting_bench import Bench
from tests.counting_driver import CountingDriver
from uhal.contract import DeviceLimits
from uhal.errors import ArgumentTypeError, ArgumentValueError
from uhal.launch_config import LaunchConfig

LIMITS = DeviceLimits(
    max_grid=(2**31 - 1, 65535, 65535),
    max_block=(1024, 1024, 64),
    max_threads_per_block=1024,
    max_shared_bytes_per_block=49152,
    warp_size=32,
    processors=8,
)


def device(**limits: Any) -> Any:
    """The attributes of a device that the choice reads."""
    return SimpleNamespace(limits=replace(LIMITS, **limits))


@pytest.mark.parametrize(
    ("n", "block", "limits", "grid", "threads"),
    [
        (1, None, {"block_for_elements": 1024}, 1, 1024),
        (1024, None, {"block_for_elements": 1024}, 1, 1024),
        (1025, None, {"block_for_elements": 1024}, 2, 1024),
        (1000, 64, {}, 16, 64),
        (10**6, None, {"block_for_elements": 12, "max_blocks_for_elements": 2}, 2, 12),
        (2**40, None, {"block_for_elements": 256}, 2**31 - 1, 256),
        (np.int64(513), None, {}, 3, 256),
    ],
)
def test_covers_the_elements(
    n: int, block: int | None, limits: dict[str, Any], grid: int, threads: int
) -> None:
    config = LaunchConfig.for_num_elems(n, block, device=device(**limits))
    assert config == LaunchConfig((grid,), (threads,))
    assert not config.is_empty


def test_no_elements_launch_nothing() -> None:
    assert LaunchConfig.for_num_elems(0, device=device()).is_empty


@pytest.mark.parametrize(
    ("n", "block", "error", "message"),
    [
        (-1, None, ArgumentValueError, "n: expected an int of at least 0, got -1"),
        (1.5, None, ArgumentTypeError, "n: expected an int of at least 0, got float 1.5"),
        (True, None, ArgumentTypeError, "got bool True"),
        (5, 0, ArgumentValueError, "block: expected an int of at least 1, got 0"),
        (5, "64", ArgumentTypeError, "block: .* got str '64'"),
    ],
)
def test_refuses(n: Any, block: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        LaunchConfig.for_num_elems(n, block, device=device())
    assert "[test_launch_config.py:" in str(caught.value)


def test_is_a_value() -> None:
    config = LaunchConfig((4, 2), 64, shared=128)
    assert config == LaunchConfig((4, 2), 64, 128)
    assert LaunchConfig(1, 1).shared == 0
    with pytest.raises(FrozenInstanceError):
        config.shared = 0  # type: ignore[misc]


@pytest.mark.bench(driver=lambda: CountingDriver(limits=replace(LIMITS, max_grid_threads=1000)))
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_device_may_limit_the_threads_along_an_axis(bench: Bench, axis: int) -> None:
    function = bench.function("u32 n")

    def along(size: int) -> tuple[int, ...]:
        return tuple(size if index == axis else 1 for index in range(3))

    function[along(100), along(10)](7)
    # the limit is for each axis, not for the product of the axes
    function[(100, 10, 10), along(10)](7)
    bench.quiet()
    for grid, block in ((101, 10), (91, 11), (1001, 1)):
        words = f"grid {'xyz'[axis]}: expected at most 1000 threads along an axis of the grid"
        with pytest.raises(ArgumentValueError, match=f"{words}, got {grid} blocks of {block}"):
            function[along(grid), along(block)](7)
    assert bench.driver.slots() == []
