"""Values and memory of the host as numpy arrays, for copies to and from a device.

The lane handles ordinary arrays itself and calls this module for all other values. A value that
would change, or be left out, is an error.
"""

from __future__ import annotations

import operator
from typing import Any, NoReturn

import numpy as np

from uhal._refusal import describe
from uhal.dtypes import DType
from uhal.errors import ArgumentRangeError, ArgumentTypeError, ArgumentValueError


def elements(values: Any, dtype: DType) -> np.ndarray[Any, Any]:
    """Return numbers as an array of `dtype`; a float type rounds them.

    Raises `ArgumentTypeError` for a value that is no number, `ArgumentRangeError` for a number that
    the type cannot hold: a fraction or NaN as an integer, 2 as a bool, 1e300 as f32.
    """
    refuse_mask("from_slice", values)
    try:
        source = np.asarray(values)
    except ValueError as error:
        problem = f"expected a sequence of numbers, got {describe(values)}: {error}"
        raise ArgumentTypeError(f"from_slice: {problem}") from None
    if source.dtype.kind in "SU" or (source.dtype.kind == "f" and dtype.kind != "float"):
        # In a mix, numpy turns numbers into texts, and large integers into floats.
        source = np.asarray(values, object)
    if source.dtype.kind not in "biuf":
        listed = [_number(value, dtype) for value in source.ravel().tolist()]
        source = np.array([*listed, None], object)[:-1].reshape(source.shape)
    return _rounded(source, dtype) if dtype.kind == "float" else _whole(source, dtype)


def _number(value: Any, dtype: DType) -> int | float:
    """Return an int or a float of the same value."""
    if isinstance(value, (int, float)):
        return value
    try:
        if hasattr(value, "__index__"):
            return operator.index(value)
        if hasattr(value, "__float__") and not isinstance(value, (complex, np.complexfloating)):
            return float(value)
    except (TypeError, ValueError, OverflowError):
        pass
    problem = f"expected numbers for elements of {dtype}, got {describe(value)}"
    raise ArgumentTypeError(f"from_slice: {problem}")


def _rounded(source: Any, dtype: DType) -> np.ndarray[Any, Any]:
    """Round to a float type; only infinities become infinite."""
    try:
        numbers = source.astype(np.float64) if source.dtype.kind == "O" else source
    except OverflowError:
        _refuse_value(max(source.flat, key=abs), dtype)
    with np.errstate(all="ignore"):
        made: np.ndarray[Any, Any] = numbers.astype(dtype.dtype)
    lost = np.isfinite(numbers) & ~np.isfinite(made) | np.isnan(made) & ~np.isnan(numbers)
    if lost.any():
        _refuse_value(numbers[lost].flat[0], dtype)
    return made


def _whole(source: Any, dtype: DType) -> np.ndarray[Any, Any]:
    """Convert to an integer type or bool; every number stays the same."""
    low, high = dtype.min or 0, dtype.max or 1  # np.iinfo does not describe bool
    if source.dtype.kind == "O":
        for value in source.flat:
            if not (low <= value <= high and value == int(value)):
                _refuse_value(value, dtype)
    elif source.size:
        for value in (int(source.min()), int(source.max())):
            if not low <= value <= high:
                _refuse_value(value, dtype)
    made: np.ndarray[Any, Any] = source.astype(dtype.dtype)
    return made


def _refuse_value(value: Any, dtype: DType) -> NoReturn:
    raise ArgumentRangeError(
        f"from_slice: expected values that {dtype} holds, got {describe(value)}. Round or clip "
        "them first."
    )


def source_array(source: Any) -> np.ndarray[Any, Any]:
    """Return the values as an array; `ArgumentTypeError` for masked arrays."""
    refuse_mask("source", source)
    return np.asarray(source)


def destination_array(destination: Any) -> np.ndarray[Any, Any]:
    """Return memory of the host as an array over it.

    Takes arrays and every object with a writable buffer, such as `array.array` or `mmap`.
    """
    refuse_mask("destination", destination)
    if isinstance(destination, np.ndarray):
        return destination
    try:
        memory = memoryview(destination)
    except TypeError:
        raise ArgumentTypeError(
            "destination: expected a numpy array, other writable memory such as a bytearray, a "
            f"HostBuffer or a DeviceBuffer, got {describe(destination)}"
        ) from None
    return np.asarray(memory)


def byte_array(role: str, memory: Any) -> np.ndarray[Any, Any]:
    """Return the bytes of `bytes`, a `bytearray` or a `memoryview` as an array over them."""
    view = memoryview(memory)
    if not view.c_contiguous:
        raise ArgumentValueError(
            f"{role}: expected contiguous memory, got a memoryview with strides {view.strides}"
        )
    return np.frombuffer(view, np.uint8) if view.nbytes else np.empty(0, np.uint8)


def refuse_mask(role: str, values: Any) -> None:
    """Refuse an array with masked elements: device memory cannot store the mask."""
    mask = np.ma.getmaskarray(values) if isinstance(values, np.ma.MaskedArray) else None
    if mask is not None and mask.any():
        raise ArgumentTypeError(
            f"{role}: expected an array without masked elements, got {mask.sum()} "
            "of them. Fill them first: array.filled(value)."
        )
