"""Functions whose result's size depends on the elements: positions, unique values, counts.

The array API standard defines the functions. Except for `count_nonzero` they read the elements,
compute on the host and bring the results to the tensor's device; so they wait, and cannot be part
of a trace.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from ubridge.core.fits import require
from ubridge.core.operand_checks import require_one_device
from ubridge.definitions.calls import named
from ubridge.ops.elementwise import converted
from ubridge.ops.engine import run
from ubridge.ops.reductions import Axes, plan_sum
from ubridge.ops.results import require_tensors
from ubridge.tensor import DeviceTensor
from uhal.dtypes import bool_
from uhal.interop import StreamLike


class UniqueAll(NamedTuple):
    """Result of `unique_all`."""

    values: DeviceTensor
    indices: DeviceTensor
    """The index of the first element with each value, in row-major order."""
    inverse_indices: DeviceTensor
    """For each element of x the index of its value."""
    counts: DeviceTensor


class UniqueCounts(NamedTuple):
    """Result of `unique_counts`."""

    values: DeviceTensor
    counts: DeviceTensor


class UniqueInverse(NamedTuple):
    """Result of `unique_inverse`."""

    values: DeviceTensor
    inverse_indices: DeviceTensor


@named
def unique_all(x: DeviceTensor) -> UniqueAll:
    """Return the unique values in order, with their indices and counts.

    Indices and counts are i64. Each NaN is a value of its own. Waits.
    """
    values, indices, inverse, counts = _unique(
        "unique_all", x, return_index=True, return_inverse=True, return_counts=True
    )
    return UniqueAll(values, indices, inverse.reshape(x.shape), counts)


@named
def unique_counts(x: DeviceTensor) -> UniqueCounts:
    """Return the unique values in order, and their counts. Waits."""
    return UniqueCounts(*_unique("unique_counts", x, return_counts=True))


@named
def unique_inverse(x: DeviceTensor) -> UniqueInverse:
    """Return the different values in order, and each element's index there.

    Waits.
    """
    values, inverse = _unique("unique_inverse", x, return_inverse=True)
    return UniqueInverse(values, inverse.reshape(x.shape))


@named
def unique_values(x: DeviceTensor) -> DeviceTensor:
    """Return the different values in order.

    Each NaN is a value of its own. Waits.
    """
    return _unique("unique_values", x)[0]


def _unique(name: str, x: DeviceTensor, **asked: Any) -> list[DeviceTensor]:
    """The different values in order, then the requested arrays, which cost further sorts."""
    require_tensors(name, x)
    found: Any = np.unique(x.to_numpy(), equal_nan=False, **asked)
    return [_beside(x, one) for one in (found if asked else (found,))]


@named
def nonzero(x: DeviceTensor) -> tuple[DeviceTensor, ...]:
    """Return the indices of elements that are not 0.

    The result has a row of i64 for each axis, in row-major order. NaN is not 0. Raises
    `ArgumentValueError` for a tensor without axes. Waits.
    """
    require_tensors("nonzero", x)
    require(x.ndim, "nonzero: expected at least one axis, got shape (). Reshape it to (1,).")
    return tuple(_beside(x, one) for one in np.nonzero(x.to_numpy() != 0))


@named
def count_nonzero(
    x: DeviceTensor,
    axis: Axes = None,
    keepdims: bool = False,
    *,
    stream: StreamLike | None = None,
) -> DeviceTensor:
    """Return the number of elements that are not 0.

    The elements are counted over axes, as i64.
    """
    require_tensors("count_nonzero", x)
    judged = converted(x, bool_, stream=stream)
    return run(plan_sum(judged, axis, None, keepdims), None, stream)


@named
def searchsorted(
    x1: DeviceTensor,
    x2: DeviceTensor,
    *,
    side: Literal["left", "right"] = "left",
    sorter: DeviceTensor | None = None,
) -> DeviceTensor:
    """Return where elements of `x2` go into a sorted row.

    The row is `x1`, the indices are i64. An element goes to the `left` side of equal elements, or
    to their `right`. With a `sorter`, such as `argsort` returns, `x1` is in any order. Raises
    `ArgumentValueError` unless `x1` has one axis. Waits.
    """
    others = () if sorter is None else (sorter,)
    require_tensors("searchsorted", x1, x2, *others)
    require_one_device("searchsorted", x1, x2, *others)
    require(x1.ndim == 1, f"searchsorted, x1: expected one axis, got shape {x1.shape}")
    require(
        side in ("left", "right"), f"searchsorted, side: expected 'left' or 'right', got {side!r}"
    )
    order = None if sorter is None else sorter.to_numpy().astype(np.intp)
    return _beside(x1, np.searchsorted(x1.to_numpy(), x2.to_numpy(), side, order))


def _beside(x: DeviceTensor, array: npt.NDArray[Any]) -> DeviceTensor:
    """An array on the device of x: numbers of a platform's own size as i64."""
    wide = array if array.dtype == x.dtype.dtype else array.astype(np.int64)
    return type(x).from_numpy(wide, device=x.device)
