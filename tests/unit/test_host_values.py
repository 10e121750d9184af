"""Numbers as elements: every dtype accepts representable values, and refuses all others."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from uhal._host_values import elements
from uhal.dtypes import ALL, DType
from uhal.errors import ArgumentRangeError, ArgumentTypeError

WHOLE = [dtype for dtype in ALL if dtype.kind in ("int", "uint")]
FLOATS = [dtype for dtype in ALL if dtype.kind == "float"]
NUMPY_KINDS = ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", ">i4", ">f4", "?")


@pytest.mark.parametrize("dtype", WHOLE, ids=str)
def test_integers_are_kept_or_refused(dtype: DType, rng: np.random.Generator) -> None:
    assert dtype.min is not None
    assert dtype.max is not None
    edges = [dtype.min, dtype.max, 0, 1, *(int(n) for n in rng.integers(0, 100, 5))]
    for given in (edges, tuple(edges), np.array(edges, object), [[n] for n in edges]):
        assert elements(given, dtype).ravel().tolist() == edges
    assert elements([1.0, np.float32(2), True, Decimal(3), Fraction(4)], dtype).tolist() == [
        1,
        2,
        1,
        3,
        4,
    ]
    for wrong in (dtype.min - 1, dtype.max + 1, 10**30, 0.5, 2.0**70, math.nan, math.inf):
        for given in ([wrong], [1, wrong], np.array([1, wrong], object)):
            with pytest.raises(ArgumentRangeError, match=f"values that {dtype} holds, got"):
                elements(given, dtype)


@pytest.mark.parametrize("dtype", ALL, ids=str)
@pytest.mark.parametrize("kind", NUMPY_KINDS)
def test_arrays_are_kept_rounded_or_refused(
    dtype: DType, kind: str, rng: np.random.Generator
) -> None:
    numbers = rng.integers(0, 2, 20).astype(kind)
    assert np.array_equal(elements(numbers, dtype).astype("f8"), numbers.astype("f8"))
    assert elements(numbers[:0], dtype).shape == (0,)
    if kind == "?":
        return
    largest = np.array([np.finfo(kind).max if "f" in kind else np.iinfo(kind).max], kind)
    with np.errstate(all="ignore"):
        held = largest.astype(dtype.dtype).astype("f8")
    exact = largest[0].item()
    if dtype.kind == "float" and np.isfinite(held[0]):
        assert elements(largest, dtype).astype("f8") == held
    elif dtype.kind in ("int", "uint") and dtype.max is not None and exact <= dtype.max:
        assert elements(largest, dtype).tolist() == [exact]
    else:
        with pytest.raises(ArgumentRangeError):
            elements(largest, dtype)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_floats_round_and_do_not_overflow(dtype: DType, rng: np.random.Generator) -> None:
    values = rng.standard_normal(50)
    assert np.array_equal(elements(values.tolist(), dtype), values.astype(dtype.dtype))
    assert np.array_equal(elements(values, dtype), values.astype(dtype.dtype))
    assert np.isnan(elements([math.nan], dtype).astype("f8")[0])
    assert elements([1e-320], dtype).astype("f8")[0] in (0, 1e-320)
    most = float(ml_dtypes.finfo(dtype.dtype).max)
    assert elements([most, -most], dtype).astype("f8").tolist() == [most, -most]
    too_much = [1e300, 10**300] if dtype.name != "f64" else []
    for wrong in [*too_much, 10**400, -(10**400)]:
        with pytest.raises(ArgumentRangeError, match=f"values that {dtype} holds, got"):
            elements([0.0, wrong], dtype)
    if dtype.name == "f8e4m3":  # f8e4m3 has no infinity
        with pytest.raises(ArgumentRangeError):
            elements([math.inf], dtype)
    else:
        assert elements([math.inf], dtype).astype("f8")[0] == math.inf


def test_bools_are_0_and_1(rng: np.random.Generator) -> None:
    bool_ = ALL[0]
    assert elements([True, False, 1, 0, 1.0, np.int8(1)], bool_).tolist() == [
        True,
        False,
        True,
        False,
        True,
        True,
    ]
    for wrong in (2, -1, 0.5, math.nan, 255, np.uint8(3)):
        with pytest.raises(ArgumentRangeError, match="values that bool holds"):
            elements([wrong], bool_)


@pytest.mark.parametrize("dtype", ALL, ids=str)
@pytest.mark.parametrize(
    "values",
    [
        *([None], ["1"], [b"1"], "12", b"12", [1j], [1, None], [[1], [1, 2]], {1}, [Ellipsis]),
        *(np.array(["2020"], "M8[Y]"), np.zeros(1, [("a", "i4")]), [np.zeros(2), 1]),
    ],
    ids=repr,
)
def test_what_is_no_number_is_refused(dtype: DType, values: Any) -> None:
    with pytest.raises(ArgumentTypeError, match="from_slice: expected"):
        elements(values, dtype)


def test_large_integers_beside_others_keep_every_bit() -> None:
    u64 = next(dtype for dtype in ALL if dtype.name == "u64")
    assert elements([2**63 + 1, 1], u64).tolist() == [2**63 + 1, 1]
    with pytest.raises(ArgumentRangeError):
        elements([2**63 + 1, -1], u64)
