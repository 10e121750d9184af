"""The one table of element types against numpy, and how small floats are rounded."""

from __future__ import annotations

import itertools
import math
import pickle
import warnings

import ml_dtypes
import numpy as np
import pytest

from uhal import dtypes
from uhal._small_floats import pack_small_float
from uhal.dtypes import DType, as_dtype, from_c_spelling

ALL = pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)


@ALL
def test_row_agrees_with_numpy(dtype: DType) -> None:
    assert dtype.itemsize == dtype.dtype.itemsize
    if dtype.kind in ("int", "uint"):
        info = np.iinfo(dtype.dtype)
        assert (dtype.min, dtype.max) == (info.min, info.max)
    else:
        assert dtype.min is None
        assert dtype.max is None


@ALL
def test_equals_and_hashes_like_its_numpy_dtype(dtype: DType) -> None:
    assert dtype == dtype.dtype
    assert dtype.dtype == dtype
    assert hash(dtype) == hash(dtype.dtype)
    assert {dtype.dtype: 1}[dtype] == 1
    assert dtype == dtype.dtype.type
    assert all((other == dtype) is (other is dtype) for other in dtypes.ALL)


@ALL
def test_numpy_takes_it_for_a_dtype(dtype: DType) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.empty(3, dtype).dtype == dtype.dtype


@ALL
def test_is_one_object(dtype: DType) -> None:
    assert pickle.loads(pickle.dumps(dtype)) is dtype
    assert as_dtype(dtype) is dtype
    assert as_dtype(dtype.name) is dtype
    assert as_dtype(dtype.dtype) is dtype
    assert as_dtype(dtype.dtype.type) is dtype
    for spelling in dtype.c_spellings:
        assert from_c_spelling(spelling) is dtype


def test_codes_and_spellings_are_unique() -> None:
    codes = [dtype.code for dtype in dtypes.ALL]
    spellings = [spelling for dtype in dtypes.ALL for spelling in dtype.c_spellings]
    assert len(set(codes)) == len(codes)
    assert len(set(spellings)) == len(spellings)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("size_t", "u64"),
        ("unsigned  long long", "u64"),
        ("float32", "f32"),
        ("<f4", "f32"),
        ("double", "f64"),
        (float, "f64"),
        (bool, "bool"),
        (np.float16, "f16"),
        ("bfloat16", "bf16"),
        (ml_dtypes.float8_e4m3fn, "f8e4m3"),
        ("i8", "i8"),
        (np.longlong, "i64"),
    ],
)
def test_as_dtype_takes(given: object, expected: str) -> None:
    assert as_dtype(given).name == expected


@pytest.mark.parametrize(
    "given",
    [
        None,
        "float",
        "uint",
        "nonsense",
        complex,
        object,
        3,
        ">f4",
        "u4,f4",
        "(2,)f4",
        "M8[s]",
        "S4",
    ],
    ids=repr,
)
def test_as_dtype_refuses(given: object) -> None:
    with pytest.raises(TypeError):
        as_dtype(given)
    assert (dtypes.f32 == given) is False


def test_a_spelling_with_two_meanings_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match="'float' is f32 in C and f64 in numpy"):
        as_dtype("float")


NUMPY_SMALL = {
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f8e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
}


@pytest.mark.parametrize("name", NUMPY_SMALL)
def test_every_small_float_packs_to_its_own_bits(name: str) -> None:
    dtype = NUMPY_SMALL[name]
    patterns = np.arange(1 << (8 * dtype.itemsize), dtype=f"u{dtype.itemsize}")
    with np.errstate(invalid="ignore"):
        values = patterns.view(dtype).astype(np.float64)
    for pattern, value in zip(patterns.tolist(), values.tolist(), strict=True):
        if not math.isnan(value):
            assert int.from_bytes(pack_small_float(name, value), "little") == pattern
    packed_nan = np.frombuffer(pack_small_float(name, math.nan), dtype)
    assert np.isnan(packed_nan.astype(np.float64)[0])


@pytest.mark.drawn(1)
@pytest.mark.parametrize("name", NUMPY_SMALL)
def test_small_floats_round_to_nearest_even_in_one_step(name: str) -> None:
    dtype = NUMPY_SMALL[name]
    patterns = np.arange(1 << (8 * dtype.itemsize - 1), dtype=f"u{dtype.itemsize}")
    with np.errstate(invalid="ignore"):
        values = patterns.view(dtype).astype(np.float64)
    finite = values[np.isfinite(values)].tolist()
    for below, (low, high) in enumerate(itertools.pairwise(finite)):
        middle = (low + high) / 2
        rounded = [
            int.from_bytes(pack_small_float(name, value), "little")
            for value in (math.nextafter(middle, 0), middle, math.nextafter(middle, math.inf))
        ]
        assert rounded == [below, below + below % 2, below + 1]


@pytest.mark.parametrize(
    ("name", "value"),
    [("f16", 65520.0), ("bf16", -3.4e38), ("f8e4m3", 465.0), ("f8e4m3", math.inf)],
)
def test_small_floats_refuse_what_they_cannot_hold(name: str, value: float) -> None:
    with pytest.raises(OverflowError):
        pack_small_float(name, value)
