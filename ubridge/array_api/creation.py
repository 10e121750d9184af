"""New tensors with the standard's parameters and default dtypes."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

import numpy as np

from ubridge import creation, joins
from ubridge.tensor import DeviceTensor
from uhal.device import DeviceLike
from uhal.dtypes import DTypeLike, bool_, f32, i64
from uhal.errors import ArgumentValueError


def asarray(
    obj: Any,
    /,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    copy: builtins.bool | None = None,
) -> DeviceTensor:
    """Return numbers, an array or a tensor as a tensor.

    Python's floats become f32. `copy=False` raises `ArgumentValueError` for anything but a tensor
    of the dtype and device.
    """
    if isinstance(obj, DeviceTensor):
        found = obj if device is None else obj.to_device(device)
        found = found if dtype is None else found.astype(dtype, False)
        if copy is False and found is not obj:
            raise ArgumentValueError("asarray: expected no copy, which this dtype or device needs")
        return obj.copy() if copy and found is obj else found
    if copy is False:
        raise ArgumentValueError(f"asarray: expected a tensor for copy=False, got {type(obj)}")
    if dtype is None and not hasattr(obj, "dtype"):
        array = np.asarray(obj)
        dtype = f32 if array.dtype == np.float64 else array.dtype
    return creation.asarray(obj, dtype, device=device)


def _default(values: Sequence[Any], dtype: DTypeLike | None) -> DTypeLike:
    """The given dtype, or the standard's dtype for Python numbers."""
    if dtype is not None:
        return dtype
    kinds = {type(one) for one in values}
    return bool_ if kinds <= {builtins.bool} else i64 if kinds <= {int, builtins.bool} else f32


def arange(
    start: float,
    /,
    stop: float | None = None,
    step: float = 1,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
) -> DeviceTensor:
    """Return evenly spaced numbers; i64 if all arguments are ints."""
    given = [one for one in (start, stop, step) if one is not None]
    return creation.arange(start, stop, step, _default(given, dtype), device=device)


def full(
    shape: int | Sequence[int],
    fill_value: float,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
) -> DeviceTensor:
    """Return a tensor of one number, whose type gives the dtype."""
    return creation.full(shape, fill_value, _default([fill_value], dtype), device=device)


def full_like(
    x: DeviceTensor,
    /,
    fill_value: float,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
) -> DeviceTensor:
    """Return a tensor of one number in another's shape."""
    kind = x.dtype if dtype is None else dtype
    return creation.full(x.shape, fill_value, kind, device=x.device if device is None else device)


def empty(
    shape: int | Sequence[int],
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
) -> DeviceTensor:
    """Return an uninitialised tensor, f32 by default."""
    return creation.empty(shape, dtype or f32, device=device)


def zeros(
    shape: int | Sequence[int],
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
) -> DeviceTensor:
    """Return a tensor of zeros, f32 by default."""
    return creation.zeros(shape, dtype or f32, device=device)


def ones(
    shape: int | Sequence[int],
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
) -> DeviceTensor:
    """Return a tensor of ones, f32 by default."""
    return creation.ones(shape, dtype or f32, device=device)


def empty_like(
    x: DeviceTensor, /, *, dtype: DTypeLike | None = None, device: DeviceLike | None = None
) -> DeviceTensor:
    """Return an uninitialised tensor in another's shape."""
    return creation.empty(x.shape, dtype or x.dtype, device=x.device if device is None else device)


def zeros_like(
    x: DeviceTensor, /, *, dtype: DTypeLike | None = None, device: DeviceLike | None = None
) -> DeviceTensor:
    """Return zeros in another's shape."""
    return full_like(x, 0, dtype=dtype, device=device)


def ones_like(
    x: DeviceTensor, /, *, dtype: DTypeLike | None = None, device: DeviceLike | None = None
) -> DeviceTensor:
    """Return ones in another's shape."""
    return full_like(x, 1, dtype=dtype, device=device)


def eye(
    n_rows: int,
    n_cols: int | None = None,
    /,
    *,
    k: int = 0,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
) -> DeviceTensor:
    """Return a matrix with ones on a diagonal, f32 by default."""
    return creation.eye(n_rows, n_cols, k, dtype or f32, device=device)


def linspace(
    start: float,
    stop: float,
    /,
    num: int,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    endpoint: builtins.bool = True,
) -> DeviceTensor:
    """Return `num` evenly spaced numbers, f32 by default."""
    return creation.linspace(start, stop, num, dtype or f32, endpoint=endpoint, device=device)


def tril(x: DeviceTensor, /, *, k: int = 0) -> DeviceTensor:
    """Return the elements up to a diagonal, and zeros above it."""
    return creation.tril(x, k)


def triu(x: DeviceTensor, /, *, k: int = 0) -> DeviceTensor:
    """Return the elements from a diagonal on, and zeros below it."""
    return creation.triu(x, k)


def stack(arrays: Sequence[DeviceTensor], /, *, axis: int = 0) -> DeviceTensor:
    """Join tensors along a new axis."""
    return joins.stack(arrays, axis)


def from_dlpack(
    x: Any, /, *, device: DeviceLike | None = None, copy: builtins.bool | None = None
) -> DeviceTensor:
    """Return the memory of another library's array as a tensor, or a copy of it."""
    found = creation.from_dlpack(x, device=device)
    return found.copy() if copy else found
