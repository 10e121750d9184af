"""Filling, setting through a layout, and copying of rows."""

from __future__ import annotations

import numpy as np
import pytest

from tests.sampling import rounds
from tests.ubridge.kernel_bench import (
    FLOATS,
    INTEGERS,
    LAYOUTS,
    Output,
    assert_same,
    random_geometry,
    random_values,
    run,
    strided,
    words,
)
from uhal import Device, DeviceBuffer

pytestmark = pytest.mark.entries

TYPES = (*FLOATS, *INTEGERS)


@pytest.mark.parametrize("dtype", TYPES)
def test_fill(device: Device, rng: np.random.Generator, dtype: str) -> None:
    for count in (0, 1, 1021):
        value = random_values(rng, dtype, 1, special=False)
        output = Output(dtype, count)
        run(device, "fill", f"fill_{dtype}", output.buffer, value[0], count, **random_geometry(rng))
        assert_same(output.to_numpy(), np.repeat(value, count))


@pytest.mark.parametrize("layout", [one for one in LAYOUTS if one != "broadcast"])
@pytest.mark.parametrize("dtype", TYPES)
def test_const_set(device: Device, rng: np.random.Generator, dtype: str, layout: str) -> None:
    for _ in range(rounds(2, 100)):
        target = strided(rng, dtype, layout)
        value = random_values(rng, dtype, 1, special=False)[0]
        output = Output.holding(dtype, target.storage)
        info = None if target.is_contiguous() else words(target.shape, target.strides)
        run(
            device,
            "fill",
            f"const_set_{dtype}",
            target.numel,
            len(target.shape),
            info,
            value,
            output.buffer[target.offset :],
            **random_geometry(rng),
        )
        target.values[...] = value
        assert_same(output.to_numpy(), target.storage)


@pytest.mark.parametrize("dtype", TYPES)
def test_copy2d(device: Device, rng: np.random.Generator, dtype: str) -> None:
    for _ in range(rounds(4, 200)):
        rows, columns = (int(size) for size in rng.integers(0, 40, 2))
        steps = [columns + int(extra) for extra in rng.integers(0, 5, 2)]
        source = random_values(rng, dtype, rows * steps[0] + columns)
        target = random_values(rng, dtype, rows * steps[1] + columns)
        output = Output.holding(dtype, target)
        run(
            device,
            "fill",
            f"copy2d_{dtype}",
            DeviceBuffer.from_numpy(source),
            output.buffer,
            rows,
            columns,
            *steps,
            **random_geometry(rng),
        )
        for row in range(rows):
            copied = source[row * steps[0] : row * steps[0] + columns]
            target[row * steps[1] : row * steps[1] + columns] = copied
        assert_same(output.to_numpy(), target)
