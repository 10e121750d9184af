"""Whether a device keeps NaN, infinities, signs of zeros, and rests of sums and products in f32.

Drivers may compile shaders with fast mathematics, which drops these features. The doctor asks.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]
_GIVEN = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -3.0], np.float32)
_LARGE = 8
_RUN = 1024
_ROUNDING = 2.0**-24
_ROUNDINGS_WITHOUT_RESTS = 100


def lost_floats(ubridge: Any, device: Any) -> tuple[str, ...]:
    """Return the names of the features that a device loses; `ubridge` is the package.

    Raises `NotSupportedError` for a device without the operations.
    """
    given = ubridge.asarray(_GIVEN, device=device)
    quotients: Array = (1 / given).to_numpy()
    marks = ubridge.isnan(given).to_numpy().tolist()
    with np.errstate(divide="ignore"):
        expected = np.float32(1) / _GIVEN
    terms = _terms()
    points = _points()
    shares = ubridge.normcdf(ubridge.asarray(points, device=device)).to_numpy()
    exact = np.array([math.erfc(-x * math.sqrt(0.5)) / 2 for x in points.tolist()])
    errors = abs(shares.astype(np.float64) / exact - 1)
    total = float(ubridge.sum(ubridge.asarray(terms, device=device)).item())
    kept = {
        "NaN": marks == np.isnan(_GIVEN).tolist() and bool(np.isnan(quotients[0])),
        "infinities": quotients[3:5].tolist() == expected[3:5].tolist(),
        "signs of zeros": bool((np.signbit(quotients) == np.signbit(expected))[1:].all()),
        "rests of sums": total == float(terms.sum(dtype=np.float64)),
        "rests of products": bool((errors < _ROUNDINGS_WITHOUT_RESTS / 2 * _ROUNDING).all()),
    }
    return tuple(name for name, is_kept in kept.items() if not is_kept)


def _terms() -> Array:
    """Numbers with a small sum, which is lost unless rounding errors are summed, too.

    Sums of large f32 numbers are multiples of 64. The small numbers are odd, and so is their count,
    so their sum is odd. A sum that lost the small numbers is therefore never right by chance.
    """
    rng = np.random.default_rng()
    large = rng.integers(1 << 29, 1 << 30, _LARGE)
    small = 2 * rng.integers(0, 16, _LARGE + 1) + 1
    row = np.concatenate([large, small, -large])
    # The host adds the numbers of a run without keeping rounding errors, so a run has one number.
    apart = np.zeros((row.size, _RUN), np.float32)
    apart[:, 0] = row
    return apart.ravel()


def _points() -> Array:
    """Points at which the normal distribution needs the rest of a product.

    The distribution's kernel multiplies a point by the root of 1/2 and adds the product's rounding
    error. Without the error, the distribution at these points is wrong by 100 roundings at least;
    its kernel has at most 33.
    """
    points = np.linspace(-12, -10, 257, dtype=np.float32)
    products = points.astype(np.float64) * np.float64(np.float32(math.sqrt(0.5)))
    lost = products.astype(np.float32) - products
    found: Array = points[2 * abs(products * lost) >= _ROUNDINGS_WITHOUT_RESTS * _ROUNDING]
    return found
