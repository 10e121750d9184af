"""Elements chosen by ids: take, gather, scatter, and their sums.

Ids are tensors of integers, or anything that numpy converts to an integer array. Ids from the host
are checked before anything is launched, and may be negative, as in numpy; the kernels check ids on
the device. `has_none` is for `launch_*`: as in Candle, the highest id of its type then selects
nothing.
"""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

import numpy as np

from ubridge.core.layout import Layout, Shape
from ubridge.core.operand_checks import (
    axes_of,
    axis_of,
    require_indices_of_u32,
    require_one_device,
    whole_number,
)
from ubridge.core.operation import Op
from ubridge.definitions.calls import named
from ubridge.definitions.indexing import (
    GATHER,
    INDEX_ADD,
    INDEX_SELECT,
    SCATTER,
    SCATTER_ADD,
    elements_of,
    require_elements,
    require_slices,
    slices_of,
)
from ubridge.definitions.rows import SORT
from ubridge.device.tensor_data import TensorData, make
from ubridge.ops.elementwise import converted, plan_conversion
from ubridge.ops.engine import (
    Plan,
    Value,
    ask,
    change,
    contiguous,
    kind_of,
    plan_change,
    plan_copy,
    reshaped,
    run,
)
from ubridge.ops.remembering import remembered
from ubridge.ops.results import apart, require_tensors
from ubridge.ops.rows import argsort, plan_argsort, plan_elements_in_order
from ubridge.ops.strided import StridedTensor, Tensor
from uhal.dtypes import bool_, i64, u32
from uhal.errors import ArgumentTypeError, ArgumentValueError
from uhal.interop import StreamLike

_TAKEN_AS = {"u8": u32, "u16": u32, "u32": u32}
"""Types of ids to types that kernels take; other types become i64."""


def plan_take(x: Value, ids: Value, axis: int = 0) -> Value | None:
    """Plan the slices at ids, a tensor; ids of the host must be uploaded first."""
    if not isinstance(ids, TensorData):
        return None
    require_tensors("take", x)
    return plan_slices(x, _kernel_ids("take", x, ids), axis)


def plan_slices(x: Value, ids: Value, axis: int = 0, **flags: Any) -> Value:
    """Plan the slices at ids of a type that kernels take."""
    axis = axis_of(INDEX_SELECT.name, x._layout, axis)
    shape = x._layout.shape
    sizes = _around(shape, axis)
    whole = Layout.contiguous(slices_of(shape, ids._layout.shape, axis))
    _require_elements(INDEX_SELECT, axis, sizes[1], whole)
    operands = (reshaped(contiguous(x), sizes), reshaped(contiguous(ids), -1))
    asked = Layout.contiguous((sizes[0], ids._layout.size, sizes[2]))
    return ask(INDEX_SELECT, operands, x._dtype, whole, asked=asked, **flags)


@remembered(plan_take)
def take(
    x: Tensor,
    ids: Any,
    axis: int = 0,
    *,
    out: Tensor | None = None,
    stream: StreamLike | None = None,
) -> Tensor:
    """Return the slices of `x` at `ids` along an axis.

    The ids' shape replaces the axis.
    """
    require_tensors("take", x)
    axis = axis_of("take", x._layout, axis)
    where = checked_ids("take", x, ids, x.shape[axis], stream)
    return run(plan_take(x, where, axis), out, stream)


def plan_flip(x: Value, axis: int | tuple[int, ...] | None = None) -> Value:
    """Plan a copy with the elements in reverse."""
    require_tensors("flip", x)
    axes = axes_of("flip", x._layout, axis)
    for one in axes if x._layout.size else ():
        x = plan_slices(x, _descending(x, x._layout.shape[one]), one)
    return x if type(x) is Plan else plan_copy(x)


def _descending(like: Value, length: int) -> TensorData:
    """The ids length - 1, ..., 1, 0, kept on the device."""
    buffer, layout = like._executor.constants.descending(length), Layout.contiguous(length)
    return make(kind_of(like), buffer, layout, i64, like._executor)


@remembered(plan_flip)
def flip(
    x: Tensor,
    axis: int | tuple[int, ...] | None = None,
    *,
    stream: StreamLike | None = None,
) -> Tensor:
    """Return a copy with the elements in reverse.

    It reverses one axis, several axes, or all.
    """
    return run(plan_flip(x, axis), None, stream)


def plan_gather(x: Value, ids: Value, axis: int) -> Value | None:
    """Plan an element for each id of a tensor; ids of the host must be uploaded first."""
    if not isinstance(ids, TensorData):
        return None
    require_tensors(GATHER.name, x)
    return plan_elements(x, _kernel_ids(GATHER.name, x, ids), axis)


def plan_elements(x: Value, ids: Value, axis: int, **flags: Any) -> Value:
    """Plan the choice of an element for each id. Kernels must take the ids' type."""
    axis = axis_of(GATHER.name, x._layout, axis)
    sizes, chosen = _around(x._layout.shape, axis), ids._layout.shape
    whole = Layout.contiguous(elements_of(GATHER.name, x._layout.shape, chosen, axis))
    _require_elements(GATHER, axis, sizes[1], whole)
    of_ids = (sizes[0], chosen[axis], sizes[2])
    operands = (reshaped(contiguous(x), sizes), reshaped(contiguous(ids), of_ids))
    asked = Layout.contiguous(of_ids)
    return ask(GATHER, operands, x._dtype, whole, asked=asked, **flags)


def _require_elements(op: Op, axis: int, length: int, taken: Layout) -> None:
    """Refuse to choose from an axis of length 0."""
    if length == 0 and taken.size:
        raise IndexError(f"{op.name}: cannot take from axis {axis}, which has size 0")


@remembered(plan_gather)
def gather(
    x: Tensor,
    ids: Any,
    axis: int,
    *,
    out: Tensor | None = None,
    stream: StreamLike | None = None,
) -> Tensor:
    """Return an element of `x` for each id.

    The result has the ids' shape, like numpy's `take_along_axis`.
    """
    require_tensors(GATHER.name, x)
    axis = axis_of(GATHER.name, x._layout, axis)
    where = checked_ids(GATHER.name, x, ids, x.shape[axis], stream)
    return run(plan_gather(x, where, axis), out, stream)


@remembered(plan_slices)
def taken(x: Tensor, ids: Tensor, axis: int = 0, *, stream: StreamLike | None = None) -> Tensor:
    """Return slices as `take` does, at trusted indices."""
    return run(plan_slices(x, ids, axis), None, stream)


@remembered(plan_elements)
def gathered(x: Tensor, ids: Tensor, axis: int, *, stream: StreamLike | None = None) -> Tensor:
    """Return elements as `gather` does, at trusted indices."""
    return run(plan_elements(x, ids, axis), None, stream)


def plan_sort(x: Value, axis: int = -1, descending: bool = False) -> Value:
    """Plan the elements of an axis in order."""
    require_tensors("sort", x)
    axis = axis_of("sort", x._layout, axis)
    require_indices_of_u32("sort", x._layout.shape[axis])
    if x._dtype.name in SORT.dtypes:
        return plan_elements_in_order(x, axis, descending)
    return plan_elements(x, plan_argsort(x, axis, descending), axis)


@remembered(plan_sort)
def sort(
    x: Tensor,
    axis: int = -1,
    descending: bool = False,
    *,
    stream: StreamLike | None = None,
) -> Tensor:
    """Return the elements of an axis in order.

    NaN is the largest, except on GCUs.
    """
    return run(plan_sort(x, axis, descending), None, stream)


@named
def topk(
    x: Tensor,
    k: int,
    axis: int = -1,
    largest: bool = True,
    *,
    stream: StreamLike | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the `k` largest or smallest elements, and their indices.

    The elements are taken along an axis; the indices are u32.

    The largest, or smallest, comes first; equal elements keep their order; NaN is the largest. GCUs
    guarantee neither the order of equal elements nor the place of NaN. The whole axis is sorted.
    Raises `ArgumentValueError` unless 0 <= `k` <= the axis' length.
    """
    require_tensors("topk", x)
    axis = axis_of("topk", x._layout, axis)
    count = whole_number("topk, k", k)
    if count > x.shape[axis]:
        raise ArgumentValueError(
            f"topk, k: expected 0 to {x.shape[axis]}, the length of axis {axis}, got {count}"
        )
    order = argsort(x, axis, largest, stream=stream)
    ids = order.narrow(axis, 0, count).contiguous(stream=stream)
    return gathered(x, ids, axis, stream=stream), ids


def _plan_changed(op: Op, x: Value, ids: Value, source: Value, axis: int) -> Plan | None:
    """Plan an operation in place at ids of a tensor; ids of the host must be uploaded first."""
    if not isinstance(ids, TensorData) or (x._dtype is bool_ and op is not SCATTER):
        return None
    require_tensors(op.name, x, source)
    axis = axis_of(op.name, x._layout, axis)
    where = _kernel_ids(op.name, x, ids)
    _require_target(op.name, x, source)
    operands, asked = _at_ids(op, x, where, source, axis)
    return plan_change(op, x, operands, asked=asked)


@remembered(partial(_plan_changed, SCATTER), changes=True)
def scatter(
    x: Tensor, ids: Any, source: Tensor, axis: int, *, stream: StreamLike | None = None
) -> Tensor:
    """Write an element of `source` at each id of an axis.

    It works in place, in `x`.

    If elements have the same id, the last one is written.
    """
    return _changed(SCATTER, x, ids, source, axis, stream)


@remembered(partial(_plan_changed, SCATTER_ADD), changes=True)
def scatter_add(
    x: Tensor, ids: Any, source: Tensor, axis: int, *, stream: StreamLike | None = None
) -> Tensor:
    """Add an element of `source` at each id of an axis.

    It works in place, in `x`.
    """
    return _changed(SCATTER_ADD, x, ids, source, axis, stream)


@remembered(partial(_plan_changed, INDEX_ADD), changes=True)
def index_add(
    x: Tensor, ids: Any, source: Tensor, axis: int, *, stream: StreamLike | None = None
) -> Tensor:
    """Add the slices of `source` at ids of an axis of `x`.

    It works in place.
    """
    return _changed(INDEX_ADD, x, ids, source, axis, stream)


def _changed(
    op: Op, x: Tensor, ids: Any, source: Any, axis: int, stream: StreamLike | None
) -> Tensor:
    """Write or add a source at ids, in place. A sum of booleans is True if any term is."""
    name = op.name
    require_tensors(name, x, source)
    axis = axis_of(name, x.layout, axis)
    where = checked_ids(name, x, ids, x.shape[axis], stream)
    _require_target(name, x, source)
    if x.dtype is bool_ and op is not SCATTER:
        counts = converted(x, u32, stream=stream)
        _changed(op, counts, where, converted(source, u32, stream=stream), axis, stream)
        return converted(counts, bool_, out=x, stream=stream)
    return change_at_ids(op, x, apart(x, where, stream), apart(x, source, stream), axis, stream)


def change_at_ids(
    op: Op,
    x: Tensor,
    ids: Value,
    source: Value,
    axis: int,
    stream: StreamLike | None,
    **flags: Any,
) -> Tensor:
    """Write or add a source at ids of a type that kernels take, in place."""
    operands, asked = _at_ids(op, x, ids, source, axis)
    return change(op, x, operands, stream, asked=asked, **flags)


def _at_ids(
    op: Op, x: Value, ids: Value, source: Value, axis: int
) -> tuple[tuple[Value, Value], Layout]:
    """Return the operands of an operation in place, and the layout that its question has for x."""
    axis = axis_of(op.name, x._layout, axis)
    shape, given = x._layout.shape, source._layout.shape
    require_fitting = require_slices if op is INDEX_ADD else require_elements
    require_fitting(op.name, shape, ids._layout.shape, given, axis)
    sizes = _around(shape, axis)
    _require_elements(op, axis, sizes[1], source._layout)
    of_source = (sizes[0], given[axis], sizes[2])
    operands = (
        reshaped(contiguous(ids), -1 if op is INDEX_ADD else of_source),
        reshaped(contiguous(source), of_source),
    )
    return operands, Layout.contiguous(sizes)


def _around(shape: Shape, axis: int) -> tuple[int, int, int]:
    """The elements before an axis, along it and after it."""
    return prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])


def _kernel_ids(name: str, x: Value, ids: Value) -> Value:
    """Plan ids of a tensor as a type that kernels take."""
    require_one_device(name, x, ids)
    if ids._dtype.kind not in ("int", "uint"):
        raise ArgumentTypeError(
            f"{name}, ids: arrays used as indices must be of integer (or boolean) type, got "
            f"{ids._dtype}"
        )
    return plan_conversion(ids, _TAKEN_AS.get(ids._dtype.name, i64))


def checked_ids(name: str, x: Tensor, ids: Any, length: int, stream: StreamLike | None) -> Tensor:
    """Return the ids as a tensor on the device, of a type that kernels take."""
    if isinstance(ids, StridedTensor):
        return run(_kernel_ids(name, x, ids), None, stream)
    array = np.asarray(ids)
    if array.size == 0:
        array = array.astype(np.int64)
    if array.dtype.kind not in "iu":
        raise ArgumentTypeError(
            f"{name}, ids: arrays used as indices must be of integer (or boolean) type, got "
            f"{array.dtype}"
        )
    # An id beyond i64 is out of bounds, as is i64's largest.
    is_larger = array.dtype == np.uint64
    bounded = np.minimum(array, np.uint64(np.iinfo(np.int64).max)) if is_larger else array
    wide = bounded.astype(np.int64)
    wrong = (wide < -length) | (wide >= length)
    if wrong.any():
        first = array[wrong].flat[0]
        raise IndexError(f"{name}: index {first} is out of bounds for axis with size {length}")
    positive = np.where(wide < 0, wide + length, wide)
    return type(x).from_numpy(positive, device=x.device, stream=stream)


def _require_target(name: str, x: Tensor, source: Tensor) -> None:
    require_one_device(name, x, source)
    if source.dtype is not x.dtype:
        raise ArgumentTypeError(
            f"{name}: expected a source of the tensor's dtype {x.dtype}, got {source.dtype}"
        )
    if x.layout.may_alias:
        raise ArgumentValueError(f"{name}: the tensor has several elements at one address")


__all__ = [
    "flip",
    "gather",
    "index_add",
    "scatter",
    "scatter_add",
    "sort",
    "take",
    "topk",
]
