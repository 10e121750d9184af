"""Tensors joined along an axis, cut into parts, or spread over a grid."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from ubridge.core.fits import require
from ubridge.core.layout import checked_int
from ubridge.core.operand_checks import axis_of, whole_number
from ubridge.definitions.calls import named
from ubridge.ops.engine import Value, reshaped, run
from ubridge.ops.joining import plan_joined
from ubridge.ops.remembering import remembered
from ubridge.ops.results import require_tensors
from ubridge.tensor import DeviceTensor
from uhal.interop import StreamLike


@remembered(plan_joined)
def cat(
    tensors: Sequence[DeviceTensor],
    axis: int = 0,
    *,
    out: DeviceTensor | None = None,
    stream: StreamLike | None = None,
) -> DeviceTensor:
    """Join tensors along an axis; dtypes are promoted."""
    return run(plan_joined(tensors, axis), out, stream)


def plan_concatenate(tensors: Sequence[Value], axis: int | None = 0) -> Value:
    """Plan tensors joined along an axis; without an axis all elements form one row."""
    if axis is not None:
        return plan_joined(tensors, axis)
    require_tensors("concatenate", *tensors)
    return plan_joined([reshaped(tensor, -1) for tensor in tensors])


@remembered(plan_concatenate)
def concatenate(
    tensors: Sequence[DeviceTensor],
    axis: int | None = 0,
    *,
    out: DeviceTensor | None = None,
    stream: StreamLike | None = None,
) -> DeviceTensor:
    """Join tensors along an axis, like `cat`.

    With `axis=None` all elements form one row.
    """
    return run(plan_concatenate(tensors, axis), out, stream)


@remembered(plan_concatenate)
def concat(
    tensors: Sequence[DeviceTensor], axis: int | None = 0, *, stream: StreamLike | None = None
) -> DeviceTensor:
    """Join tensors along an axis, as `concatenate`."""
    return run(plan_concatenate(tensors, axis), None, stream)


@named
def split(x: DeviceTensor, parts: int | Sequence[int], axis: int = 0) -> list[DeviceTensor]:
    """Return views of the parts of an axis.

    `parts` is a number of equal parts, or the indices to cut before. As in numpy, indices behind
    the end give empty views, and negative indices count from the end. Raises `ArgumentValueError`
    when the axis cannot be cut into equal parts.
    """
    require_tensors("split", x)
    axis = axis_of("split", x.layout, axis)
    length = x.shape[axis]
    if type(parts) is int or (not isinstance(parts, Sequence) and not np.ndim(parts)):
        parts = whole_number("split, parts", parts)
        require(
            parts >= 1 and length % parts == 0,
            f"split: array split does not result in an equal division: axis {axis} is "
            f"{length} long, got {parts} parts; give the indices to cut before",
        )
        cuts = list(range(0, length + 1, length // parts)) if length else [0] * (parts + 1)
    else:
        # Indices are interpreted as in slices.
        given: Any = parts
        offsets = (checked_int("split, parts", cut) for cut in given)
        cuts = [0, *(slice(offset, None).indices(length)[0] for offset in offsets), length]
    return [x.narrow(axis, start, max(stop - start, 0)) for start, stop in pairwise(cuts)]


@named
def unstack(x: DeviceTensor, axis: int = 0) -> tuple[DeviceTensor, ...]:
    """Return the views at each index of an axis, without that axis."""
    require_tensors("unstack", x)
    axis = axis_of("unstack", x._layout, axis)
    return tuple(map(x._viewed, x._layout._each(axis)))


def _plan_stack(tensors: Sequence[Value], axis: int = 0) -> Value:
    """Plan tensors of one shape joined along a new axis."""
    require_tensors("stack", *tensors)
    require(
        len({tensor.shape for tensor in tensors}) <= 1,
        "stack: all input arrays must have the same shape, got "
        + " and ".join(dict.fromkeys(str(tensor.shape) for tensor in tensors)),
    )
    return plan_joined([one._viewed(one._layout.expanded(axis)) for one in tensors], axis)


@remembered(_plan_stack)
def stack(
    tensors: Sequence[DeviceTensor],
    axis: int = 0,
    *,
    out: DeviceTensor | None = None,
    stream: StreamLike | None = None,
) -> DeviceTensor:
    """Join tensors of one shape along a new axis."""
    return run(_plan_stack(tensors, axis), out, stream)


@named
def meshgrid(*tensors: DeviceTensor, indexing: Literal["xy", "ij"] = "xy") -> list[DeviceTensor]:
    """Return copies of rows, each broadcast to the grid of all rows.

    With `ij` axis i of the grid belongs to row i; with `xy` the first two axes are exchanged.
    """
    require_tensors("meshgrid", *tensors)
    require(indexing in ("xy", "ij"), f"meshgrid: expected 'xy' or 'ij', got {indexing!r}")
    require(
        all(one.ndim <= 1 for one in tensors),
        f"meshgrid: expected rows, got shapes {[tuple(one.shape) for one in tensors]}",
    )
    order = list(range(len(tensors)))
    if indexing == "xy" and len(order) > 1:
        order[:2] = 1, 0
    shape = [tensors[one].size for one in order]
    spread = []
    for one, axis in zip(tensors, order, strict=True):
        lengths = [1] * len(shape)
        lengths[axis] = one.size
        spread.append(one.reshape(tuple(lengths)).broadcast_to(tuple(shape)).copy())
    return spread
