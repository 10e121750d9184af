"""Functions with the standard's parameters: elements, reductions, order and products."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from math import prod as product_of
from typing import Any

import numpy as np

from ubridge import creation
from ubridge.array_api.creation import full
from ubridge.array_api.dtypes import result_type
from ubridge.core.fits import require
from ubridge.core.operand_checks import axis_of
from ubridge.definitions.calls import named
from ubridge.device.tensor_data import make
from ubridge.functions import abs, add, copysign, equal, greater, less, multiply, subtract
from ubridge.joins import concat
from ubridge.manipulation import broadcast_arrays, permute_dims
from ubridge.ops import products, reductions, statistics
from ubridge.ops.choices import isnan, where
from ubridge.ops.reductions import Axes
from ubridge.ops.results import require_tensors
from ubridge.ops.rows import argsort as ordered
from ubridge.ops.selection import gather
from ubridge.tensor import DeviceTensor
from uhal.dtypes import DTypeLike, f32, f64, i32, i64, u64
from uhal.errors import ArgumentTypeError, ArgumentValueError


@named
def round(x: DeviceTensor, /) -> DeviceTensor:
    """Return the nearest integers; ties round to the even integer."""
    require_tensors("round", x)
    if x.dtype.kind != "float":
        return x.copy()
    wide = x if x.dtype in (f32, f64) else x.astype(f32)
    # Floats of at least this magnitude are integers. Adding this number to a smaller float rounds
    # off the fraction, ties to even.
    whole = 2.0**52 if wide.dtype is f64 else 2.0**23
    magnitude = abs(wide)
    near: DeviceTensor = subtract(add(magnitude, whole), whole)
    found = where(less(magnitude, whole), copysign(near, wide), wide)
    return found.astype(x.dtype, False)


@named
def nextafter(x1: Any, x2: Any, /) -> DeviceTensor:
    """Return the number next to x1 in the direction of x2, for f32 and f64."""
    dtype = result_type(x1, x2)
    if dtype not in (f32, f64):
        raise ArgumentTypeError(f"nextafter: expected f32 or f64, got {dtype}")
    like = x1 if isinstance(x1, DeviceTensor) else x2
    given = [
        one if isinstance(one, DeviceTensor) else full((), one, dtype=dtype, device=like.device)
        for one in (x1, x2)
    ]
    x, y = (one.astype(dtype, False).copy() for one in broadcast_arrays(*given))
    whole = i32 if dtype is f32 else i64
    bits = make(DeviceTensor, x.buffer.view(whole), x.layout, whole, x._executor)
    # Floats of one sign have the order of their bits, negative floats the reverse order.
    moved = where(equal(greater(y, x), greater(x, 0)), bits + 1, bits - 1)
    near = make(DeviceTensor, moved.buffer.view(dtype), moved.layout, dtype, x._executor)
    least = copysign(float(np.finfo(dtype.dtype).smallest_subnormal), y)
    found = where(equal(x, y), y, where(equal(x, 0), least, near))
    return where(isnan(x), x, where(isnan(y), y, found))


def _summed(x: DeviceTensor, dtype: DTypeLike | None) -> DTypeLike:
    """The dtype of sums and products: 64 bits for smaller integers."""
    if dtype is not None:
        return dtype
    return {"uint": u64, "int": i64, "bool": i64}.get(x.dtype.kind, x.dtype)


def sum(
    x: DeviceTensor,
    /,
    *,
    axis: Axes = None,
    dtype: DTypeLike | None = None,
    keepdims: builtins.bool = False,
) -> DeviceTensor:
    """Sum over axes; integers in 64 bits."""
    return reductions.sum(x, axis, _summed(x, dtype), keepdims)


def prod(
    x: DeviceTensor,
    /,
    *,
    axis: Axes = None,
    dtype: DTypeLike | None = None,
    keepdims: builtins.bool = False,
) -> DeviceTensor:
    """Multiply over axes; integers in 64 bits."""
    return statistics.prod(x, axis, _summed(x, dtype), keepdims)


def _scanned(name: str, x: DeviceTensor, axis: int | None) -> int:
    if axis is None and x.ndim != 1:
        raise ArgumentValueError(f"{name}: expected an axis for {x.ndim} axes")
    return axis_of(name, x.layout, 0 if axis is None else axis)


def _with_initial(x: DeviceTensor, axis: int, first: int) -> DeviceTensor:
    """Put one more element before the elements of an axis."""
    shape = [1 if one == axis else length for one, length in enumerate(x.shape)]
    return concat([creation.full(shape, first, x.dtype, device=x.device), x], axis)


@named
def cumulative_sum(
    x: DeviceTensor,
    /,
    *,
    axis: int | None = None,
    dtype: DTypeLike | None = None,
    include_initial: builtins.bool = False,
) -> DeviceTensor:
    """Return running sums along an axis; `include_initial` puts a 0 first."""
    axis = _scanned("cumulative_sum", x, axis)
    found = statistics.cumsum(x, axis, _summed(x, dtype))
    return _with_initial(found, axis, 0) if include_initial else found


@named
def cumulative_prod(
    x: DeviceTensor,
    /,
    *,
    axis: int | None = None,
    dtype: DTypeLike | None = None,
    include_initial: builtins.bool = False,
) -> DeviceTensor:
    """Return running products along an axis; `include_initial` puts a 1 first."""
    axis = _scanned("cumulative_prod", x, axis)
    found = x.astype(_summed(x, dtype), False)
    length, step = x.shape[axis], 1
    # Each round doubles the number of factors of an element.
    while step < length:
        ahead = found.narrow(axis, 0, step)
        both = found.narrow(axis, step, length - step) * found.narrow(axis, 0, length - step)
        found, step = concat([ahead, both], axis), 2 * step
    found = found.copy() if found is x else found
    return _with_initial(found, axis, 1) if include_initial else found


def var(
    x: DeviceTensor,
    /,
    *,
    axis: Axes = None,
    correction: float = 0.0,
    keepdims: builtins.bool = False,
) -> DeviceTensor:
    """Return the variance over axes, with a divisor smaller by `correction`."""
    return statistics.var(x, axis, correction, keepdims)


def std(
    x: DeviceTensor,
    /,
    *,
    axis: Axes = None,
    correction: float = 0.0,
    keepdims: builtins.bool = False,
) -> DeviceTensor:
    """Return the standard deviation over axes: the root of `var`."""
    return statistics.std(x, axis, correction, keepdims)


def argmax(
    x: DeviceTensor, /, *, axis: int | None = None, keepdims: builtins.bool = False
) -> DeviceTensor:
    """Return the index of the first largest element, as i64."""
    return reductions.argmax(x, axis, keepdims).astype(i64)


def argmin(
    x: DeviceTensor, /, *, axis: int | None = None, keepdims: builtins.bool = False
) -> DeviceTensor:
    """Return the index of the first smallest element, as i64."""
    return reductions.argmin(x, axis, keepdims).astype(i64)


def argsort(
    x: DeviceTensor,
    /,
    *,
    axis: int = -1,
    descending: builtins.bool = False,
    stable: builtins.bool = True,
) -> DeviceTensor:
    """Return the indices that sort an axis, as i64; equal elements keep their order."""
    return ordered(x, axis, descending).astype(i64)


@named
def sort(
    x: DeviceTensor,
    /,
    *,
    axis: int = -1,
    descending: builtins.bool = False,
    stable: builtins.bool = True,
) -> DeviceTensor:
    """Return the elements of an axis in sorted order."""
    return gather(x, ordered(x, axis, descending), axis)


@named
def take(x: DeviceTensor, indices: DeviceTensor, /, *, axis: int | None = None) -> DeviceTensor:
    """Return slices at indices of an axis, by default the only axis."""
    if axis is None and x.ndim != 1:
        raise ArgumentValueError(f"take: expected an axis for {x.ndim} axes")
    return x[(slice(None),) * axis_of("take", x.layout, axis or 0) + (indices,)]


@named
def take_along_axis(x: DeviceTensor, indices: DeviceTensor, /, *, axis: int = -1) -> DeviceTensor:
    """Return an element for each index along an axis; the other axes broadcast."""
    axis = axis_of("take_along_axis", x.layout, axis)
    lengths = np.broadcast_shapes(
        *(tuple(1 if at == axis else n for at, n in enumerate(one.shape)) for one in (x, indices))
    )
    given, ids = (
        one.broadcast_to([one.shape[axis] if at == axis else n for at, n in enumerate(lengths)])
        for one in (x, indices)
    )
    wide = ids.astype(i64, False)
    return gather(given, where(less(wide, 0), wide + x.shape[axis], wide), axis)


@named
def matmul(x1: DeviceTensor, x2: DeviceTensor, /) -> DeviceTensor:
    """Multiply matrices; integer matrices by elementwise products and sums."""
    require_tensors("matmul", x1, x2)
    if result_type(x1, x2).kind == "float":
        return products.matmul(x1, x2)
    left = x1[None] if x1.ndim == 1 else x1
    right = x2[:, None] if x2.ndim == 1 else x2
    require(
        left.shape[-1] == right.shape[-2],
        f"matmul: expected a second operand of {left.shape[-1]} rows, got {right.shape[-2]}",
    )
    found = reductions.sum(left[..., None] * right[..., None, :, :], -2)
    found = found[..., 0, :] if x1.ndim == 1 else found
    return found[..., 0] if x2.ndim == 1 else found


@named
def tensordot(
    x1: DeviceTensor,
    x2: DeviceTensor,
    /,
    *,
    axes: int | tuple[Sequence[int], Sequence[int]] = 2,
) -> DeviceTensor:
    """Sum products over pairs of axes, by default x1's last, x2's first."""
    require_tensors("tensordot", x1, x2)
    if isinstance(axes, int):
        axes = (range(x1.ndim - axes, x1.ndim), range(axes))
    first = [axis_of("tensordot", x1.layout, one) for one in axes[0]]
    second = [axis_of("tensordot", x2.layout, one) for one in axes[1]]
    require(
        [x1.shape[one] for one in first] == [x2.shape[one] for one in second],
        f"tensordot: expected equal lengths of axes {first} and {second}, got shapes "
        f"{x1.shape} and {x2.shape}",
    )
    rows = [one for one in range(x1.ndim) if one not in first]
    columns = [one for one in range(x2.ndim) if one not in second]
    lengths = [x1.shape[one] for one in rows], [x2.shape[one] for one in columns]
    count = product_of(x1.shape[one] for one in first)
    left = permute_dims(x1, [*rows, *first]).reshape(product_of(lengths[0]), count)
    right = permute_dims(x2, [*second, *columns]).reshape(count, product_of(lengths[1]))
    return matmul(left, right).reshape([*lengths[0], *lengths[1]])


@named
def vecdot(x1: DeviceTensor, x2: DeviceTensor, /, *, axis: int = -1) -> DeviceTensor:
    """Sum products along an axis of both tensors, counted from the end."""
    require_tensors("vecdot", x1, x2)
    return reductions.sum(multiply(x1, x2), axis)
