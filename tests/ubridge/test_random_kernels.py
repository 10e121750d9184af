"""Uniform numbers of every type equal Philox in numpy bit for bit; tests of normal numbers."""

from __future__ import annotations

import numpy as np
import pytest

from tests.sampling import rounds
from tests.ubridge.kernel_bench import FLOATS, Output, assert_same, random_geometry, run
from tests.ubridge.random_numbers import MANTISSA, Wide, even, normal, words
from uhal import Device

pytestmark = pytest.mark.entries


def sizes(rng: np.random.Generator) -> list[int]:
    return [1, 2, 3, 4, 5, *(int(size) for size in rng.integers(6, 3000, rounds(2, 20)))]


@pytest.mark.parametrize("dtype", FLOATS)
def test_even_numbers(device: Device, rng: np.random.Generator, dtype: str) -> None:
    for size in sizes(rng):
        seed, position = (int(one) for one in rng.integers(0, 2**64, 2, np.uint64))
        output = Output(dtype, size)
        run(
            device,
            "random",
            f"rand_{dtype}",
            size,
            seed,
            position,
            output.buffer,
            **random_geometry(rng),
        )
        expected = even(words(seed, position, size), dtype)[:size]
        assert output.to_numpy().tobytes() == expected.tobytes()


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_counters_wrap_around(device: Device, rng: np.random.Generator, dtype: str) -> None:
    """Positions cross 2^32 (half of the counter) and 2^64 (the whole counter)."""
    for end in (2**32, 2**64):
        seed = int(rng.integers(0, 2**63))
        position = end - 3
        output = Output(dtype, 40)
        run(device, "random", f"rand_{dtype}", 40, seed, position, output.buffer)
        assert_same(output.to_numpy(), even(words(seed, position, 40), dtype)[:40])


@pytest.mark.parametrize("dtype", FLOATS)
def test_normal_numbers(device: Device, rng: np.random.Generator, dtype: str) -> None:
    for size in sizes(rng):
        seed, position = (int(one) for one in rng.integers(0, 2**64, 2, np.uint64))
        output = Output(dtype, size)
        run(
            device,
            "random",
            f"randn_{dtype}",
            size,
            seed,
            position,
            output.buffer,
            **random_geometry(rng),
        )
        exact = normal(words(seed, position, size))[:size]
        off = abs(output.to_numpy().astype(Wide) - exact)
        # Allow 8 roundings in f64 and one rounding to the type; subnormal halves have fewer bits.
        least = {"f8e4m3": 2.0**-9, "f16": 2.0**-24}.get(dtype, 0) / 2
        bound = (2.0 ** -MANTISSA[dtype] + 8 * 2.0**-53) * abs(exact) + least
        worst = int(np.argmax(off - bound))
        assert (off <= bound).all(), (seed, position, worst, exact[worst], off[worst])
