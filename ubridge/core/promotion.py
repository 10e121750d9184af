"""The dtype of an operation by numpy's rules; Python numbers adapt to the tensor."""

from __future__ import annotations

import math
import sys
from functools import cache
from typing import Any

import numpy as np

from uhal import DeviceBuffer, DType, as_dtype
from uhal.dtypes import bool_, f64, i64, u8
from uhal.errors import ArgumentRangeError, ArgumentTypeError


def storage_of(dtype: DType) -> DType:
    """Return the element type of the buffer behind a tensor: booleans are kept as u8, 0 or 1."""
    return u8 if dtype is bool_ else dtype


@cache
def promoted(name: str, first: DType, second: DType) -> DType:
    """Return the common dtype of two tensors for the operation `name`.

    Raises `ArgumentTypeError` when numpy has no common dtype, or ubridge lacks it.
    """
    if first is second:
        return first
    try:
        return as_dtype(np.result_type(first.dtype, second.dtype))
    except TypeError:
        raise ArgumentTypeError(
            f"{name}: no dtype holds the values of both {first} and {second}. "
            "Cast first, for example with astype."
        ) from None


def with_number(name: str, dtype: DType, number: Any) -> DType:
    """Return the common dtype of a tensor and a number; Python's numbers adapt."""
    if isinstance(number, (bool, np.bool_)):
        return dtype
    if isinstance(number, np.generic):
        return promoted(name, dtype, as_dtype(number.dtype))
    if isinstance(number, int):
        return i64 if dtype is bool_ else dtype
    if isinstance(number, float):
        return dtype if dtype.kind == "float" else f64
    advice = ""
    if isinstance(number, (np.ndarray, list, tuple)):
        advice = "; ubridge.asarray(array) makes one"
    elif isinstance(number, DeviceBuffer):
        advice = "; ubridge.DeviceTensor(buffer) makes one over its memory"
    raise ArgumentTypeError(
        f"{name}: unsupported operand type {type(number).__name__!r}; expected a DeviceTensor or "
        f"a number{advice}"
    )


_LARGEST = {
    "f8e4m3": 448.0,
    "f16": 65504.0,
    "bf16": float.fromhex("0x1.fep127"),
    "f32": float.fromhex("0x1.fffffep127"),
    "f64": sys.float_info.max,
}


def checked_number(name: str, dtype: DType, number: Any) -> Any:
    """Return a Python number for elements of `dtype`, converted as in numpy.

    A float beyond the range of a float type is rounded, to infinity if the type has it. Raises
    `ArgumentRangeError` for ints beyond the range, and for NaN or infinity in an integer type.
    """
    try:
        if dtype.kind == "float":
            return _rounded(dtype, float(number))
        if dtype.kind == "bool":
            return int(bool(number))
        whole = int(number)
    except OverflowError:
        raise ArgumentRangeError(
            f"{name}: {number!r:.40} is out of bounds for {dtype.name}"
        ) from None
    except ValueError:
        raise ArgumentRangeError(f"{name}: {number!r:.40} has no value in {dtype.name}") from None
    except TypeError:
        raise ArgumentTypeError(f"{name}: expected a number, got {type(number).__name__}") from None
    assert dtype.min is not None and dtype.max is not None
    if not dtype.min <= whole <= dtype.max:
        raise ArgumentRangeError(f"{name}: Python integer {whole} out of bounds for {dtype.name}")
    return whole


def _rounded(dtype: DType, number: float) -> float:
    """The float itself within the type's range, else its rounding to the type."""
    if not math.isfinite(number) or abs(number) <= _LARGEST[dtype.name]:
        return number
    with np.errstate(over="ignore"):
        return float(np.array(number).astype(dtype.dtype))


def element_bytes(dtype: DType, number: Any) -> bytes:
    """Return the bytes of one element of `dtype`."""
    with np.errstate(over="ignore"):
        return np.array(number).astype(dtype.dtype).tobytes()


def is_exact_reciprocal(number: float) -> bool:
    """Return whether multiplying by `1 / number` equals division, in any float type."""
    if not math.isfinite(number) or number == 0:
        return False
    mantissa, exponent = math.frexp(number)
    return abs(mantissa) == 0.5 and abs(exponent) < 14
