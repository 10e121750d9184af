"""Reference random numbers: Philox in numpy, and Box-Muller in extended precision."""

from __future__ import annotations

import numpy as np

from tests.ubridge.kernel_bench import Array, numpy_dtype
from ubridge.random import philox

MANTISSA = {"f8e4m3": 4, "bf16": 8, "f16": 11, "f32": 24, "f64": 53}
Wide = np.longdouble


def words(seed: int, position: int, counters: int) -> Array:
    """Return the four words of each counter, computed by numpy."""
    positions = np.array([(position + one) % 2**64 for one in range(counters)], np.uint64)
    zeros = np.zeros_like(positions)
    half = np.uint64(32)
    return philox((positions & np.uint64(2**32 - 1), positions >> half, zeros, zeros), seed)


def of_53_bits(made: Array) -> Array:
    """Return pairs of words as numbers from 0 (included) to 1 (excluded)."""
    wide = made.astype(np.uint64).reshape(-1, 2)
    whole = (wide[:, 0] << np.uint64(32) | wide[:, 1]) >> np.uint64(11)
    return np.asarray(whole * 2.0**-53)


def even(made: Array, dtype: str) -> Array:
    if dtype == "f64":
        return of_53_bits(made)
    bits = MANTISSA[dtype]
    whole = made.ravel() >> np.uint32(32 - bits)
    return np.asarray(whole * 2.0**-bits).astype(numpy_dtype(dtype))


def normal(made: Array) -> Array:
    """Box and Muller's numbers in extended precision: the angle is reduced before it is rounded."""
    u, turns = of_53_bits(made).reshape(-1, 2).T
    radius = np.sqrt(-2 * np.log1p(-u.astype(Wide)))
    quarters = 4 * turns
    nearest = np.floor(quarters + 0.5)
    angle = (quarters - nearest).astype(Wide) * (4 * np.arctan(Wide(1)) / 2)
    c, s = np.cos(angle), np.sin(angle)
    quarter = nearest.astype(int) % 4
    across = np.choose(quarter, (c, -s, -c, s))
    along = np.choose(quarter, (s, c, -s, -c))
    return np.stack((radius * across, radius * along), -1).ravel()
