"""Indices that are arrays of ids or masks: `x[ids]`, `x[mask]`, and assignment to them.

The rules are numpy's. Ids and masks are tensors, arrays or lists. A mask selects an unknown number
of elements, so the host waits and reads the mask. Assigning a number by a mask of the tensor's
leading axes reads nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from types import EllipsisType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ubridge.core.layout import Layout
from ubridge.definitions.elementwise import ADD, BITWISE_OR, GREATER_EQUAL, LESS, MULTIPLY
from ubridge.definitions.indexing import SCATTER
from ubridge.ops.choices import plan_where
from ubridge.ops.elementwise import converted, plan_binary
from ubridge.ops.engine import Value, bits_of, plan_copy, reshaped, run
from ubridge.ops.remembering import remembered
from ubridge.ops.results import apart
from ubridge.ops.selection import change_at_ids, plan_take, take, taken
from ubridge.ops.strided import StridedTensor, Tensor, indexed
from uhal.dtypes import bool_, i64
from uhal.errors import ArgumentValueError

_MOST = np.iinfo(np.int64).max
Ids = Any
"""Ids of one axis: an array of the host, or a tensor of i64."""


def is_basic(index: Any) -> bool:
    """Return whether an index selects a view: it has no arrays and no negative steps."""
    for part in index if type(index) is tuple else (index,):
        kind = type(part)
        if kind is slice:
            if part.step is not None and _steps_back(part):
                return False
        elif kind is not int and part is not None and part is not Ellipsis and _is_array(part):
            return False
    return True


def _steps_back(part: slice) -> bool:
    return hasattr(part.step, "__index__") and part.step.__index__() < 0


def backwards(layout: Layout, index: Any) -> tuple[Any, tuple[int, ...]] | None:
    """Return an index whose steps are positive, and the result's axes to reverse, if any.

    Raises `IndexError` for a negative step beside arrays.
    """
    given = index if type(index) is tuple else (index,)
    if not any(type(one) is slice and _steps_back(one) for one in given):
        return None
    if any(_is_array(one) for one in given):
        raise IndexError(
            "expected positive steps beside arrays of ids, got a negative one. Flip first."
        )
    behind = sum(one is not None and one is not Ellipsis for one in given)
    parts: list[Any] = []
    turned: list[int] = []
    axis = result = 0
    for part in given:
        if part is Ellipsis:
            free = layout.rank - behind
            axis, result = axis + free, result + free
        elif type(part) is slice and axis < layout.rank and _steps_back(part):
            steps = range(*part.indices(layout.shape[axis]))
            part = slice(steps[-1], steps[0] + 1, -steps.step) if steps else slice(0, 0)
            turned.append(result)
        parts.append(part)
        axis += part is not None and part is not Ellipsis
        result += part is None or type(part) is slice
    return tuple(parts), tuple(turned)


def _is_array(part: Any) -> bool:
    if isinstance(part, (StridedTensor, np.ndarray)):
        return bool(part.ndim) or part.dtype == bool_
    return isinstance(part, (list, bool, np.bool_))


class _Selection(NamedTuple):
    """A view, and ids of its first axes."""

    view: Any
    """The view with the axes of ids first."""
    ids: list[Ids]
    shape: tuple[int, ...]
    """The common shape of all ids, broadcast."""
    first_axis: int
    """The axis of the result where this shape begins."""


def selected(x: Tensor, index: Any) -> Tensor:
    """Return the elements at an index with arrays, as a new tensor."""
    if _is_mask_of(x, index):
        return _masked(x, index)
    given = _selection(x, index)
    lengths = given.view.shape[: len(given.ids)]
    rest = given.view.shape[len(given.ids) :]
    rows = _rows_of(given, lengths)
    flat: Any = run(reshaped(given.view, (prod(lengths), *rest)), None, None)
    found: Tensor = take(flat, rows, 0)
    result: Tensor = _moved(found, len(given.shape), 0, given.first_axis)
    return result


def _masked(x: Tensor, mask: Any) -> Tensor:
    """Return the elements where a mask of the leading axes is true; reads the mask."""
    true = np.flatnonzero(mask.to_numpy() if isinstance(mask, StridedTensor) else mask)
    flat: Any = run(reshaped(x, (mask.size, *x.shape[mask.ndim :])))
    found: Tensor = taken(flat, type(x).from_numpy(true, device=x.device), 0)
    return found


def _plan_getitem(x: Value, ids: Value) -> Value | None:
    """Plan the slices at ids, a tensor of i64 that may be negative; `None` without axes."""
    if not x._layout.shape:
        return None
    from_end = plan_binary(ADD, ids, x._layout.shape[0])
    return plan_take(x, plan_where(plan_binary(LESS, ids, 0), from_end, ids))


@remembered(_plan_getitem)
def getitem(x: Tensor, ids: Tensor) -> Tensor:
    """Return the slices of the first axis at ids, a tensor of i64."""
    return selected(x, ids)


def assign(x: Tensor, index: Any, value: Any) -> None:
    """Write a tensor or a number to the elements at an index with arrays.

    The last of several values for one element stays.
    """
    if _is_mask_of(x, index) and getattr(value, "ndim", 0) == 0:
        mask = _on_device(x, np.asarray(index) if isinstance(index, list) else index)
        layout = mask._layout
        for _ in range(x.ndim - mask.ndim):
            layout = layout.expanded(layout.rank)
        spread = mask._viewed(layout.broadcast_to(x.shape))
        if isinstance(value, (np.ndarray, np.generic)):
            value = value.item()
        elif isinstance(value, StridedTensor):
            value = converted(value, x.dtype)
        _write(x, run(plan_where(spread, value, x)))
        return
    given = _selection(x, index)
    lengths = given.view.shape[: len(given.ids)]
    rest = given.view.shape[len(given.ids) :]
    whole: Any = (
        given.view if given.view._layout.is_contiguous else run(plan_copy(bits_of(given.view)))
    )
    size = prod(rest)
    rows = _on_device(x, _rows_of(given, lengths))
    shape = (*given.shape, *rest)
    if not prod(shape):
        return
    # The position of each element in the view: its row's start, and its column.
    starts: Any = run(plan_binary(MULTIPLY, rows, size))
    columns = _on_device(x, np.arange(size))
    one = starts.reshape((*given.shape, *(1 for _ in rest)))
    positions: Any = run(plan_binary(ADD, one, columns.reshape((*(1 for _ in given.shape), *rest))))
    source = _moved(_value_of(x, value, shape, given), len(given.shape), given.first_axis, 0)
    flat: Any = bits_of(whole)
    flat = flat.reshape(-1)
    values = apart(flat, bits_of(source.contiguous().reshape(-1)), None)
    change_at_ids(SCATTER, flat, positions.reshape(-1), values, 0, None)
    if whole is not given.view:
        _write(bits_of(given.view), whole)


def _write(x: Any, value: Any) -> None:
    x.copy_from(value)


def _value_of(x: Tensor, value: Any, shape: tuple[int, ...], given: _Selection) -> Any:
    """The value as a tensor of the selection's shape and x's dtype."""
    if not isinstance(value, StridedTensor):
        value = type(x).from_numpy(np.asarray(value).astype(x.dtype.dtype), device=x.device)
    value = converted(value, x.dtype)
    count = len(given.shape)
    rest = shape[count:]
    wanted = (*rest[: given.first_axis], *given.shape, *rest[given.first_axis :])
    while value.ndim > len(wanted) and value.shape[0] == 1:
        value = value[0]
    try:
        return value.broadcast_to(wanted)
    except ArgumentValueError:
        raise ArgumentValueError(
            f"setitem: expected a value that broadcasts to shape {wanted}, got shape "
            f"{tuple(value.shape)}"
        ) from None


def _is_mask_of(x: Any, index: Any) -> bool:
    """Whether the index is one mask of x's leading axes."""
    if not isinstance(index, (StridedTensor, np.ndarray)) or index.dtype != bool_:
        return False
    return bool(index.ndim) and tuple(index.shape) == tuple(x.shape[: index.ndim])


def _selection(x: Any, index: Any) -> _Selection:
    """Split an index into a view and ids, by numpy's rules."""
    parts = _parts(x, index)
    basic: list[Any] = []
    chosen: list[tuple[int, Ids]] = []
    """Axes of the view, and their ids."""
    apart = 0
    """How many groups of neighbouring ids there are."""
    is_before = False
    axis = 0
    for part in parts:
        is_array = _is_array(part) or hasattr(part, "__index__")
        apart += is_array and not is_before
        is_before = is_array
        if not is_array:
            basic.append(part)
            axis += part is not Ellipsis
            continue
        for ids in _ids_of(part):
            basic.append(slice(None))
            chosen.append((axis, ids))
            axis += 1
    view = x._viewed(indexed(x._layout, tuple(basic)))
    axes = [one for one, _ in chosen]
    shapes = [tuple(ids.shape) for _, ids in chosen]
    try:
        shape = np.broadcast_shapes(*shapes)
    except ValueError:
        raise IndexError(
            f"shape mismatch: indexing arrays could not be broadcast together: {shapes}"
        ) from None
    kept = [one for one in range(view.ndim) if one not in axes]
    first_axis = axes[0] if apart == 1 else 0
    ids = [_wrapped(x, ids, view.shape[one], one) for one, ids in chosen]
    return _Selection(view._viewed(view._layout.permute((*axes, *kept))), ids, shape, first_axis)


def _parts(x: Any, index: Any) -> list[Any]:
    """The parts of an index: lists as arrays, masks checked, an ellipsis as slices."""
    given = list(index) if isinstance(index, tuple) else [index]
    parts = [np.asarray(one) if isinstance(one, list) else one for one in given]
    parts = [np.zeros(0, np.int64) if _is_empty(one) else one for one in parts]
    for one in parts:
        kind = one.dtype if isinstance(one, (StridedTensor, np.ndarray)) else None
        if kind is not None and np.dtype(kind).kind not in "biu":
            raise IndexError(
                f"arrays used as indices must be of integer (or boolean) type, got {one.dtype}"
            )
    taken = sum(_axes_of(one) for one in parts)
    if sum(one is Ellipsis for one in parts) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    if taken > x.ndim:
        raise IndexError(
            f"too many indices for array: array is {x.ndim}-dimensional, but {taken} were indexed"
        )
    free = [slice(None)] * (x.ndim - taken)
    at = next((first_axis for first_axis, one in enumerate(parts) if one is Ellipsis), len(parts))
    # An ellipsis separates the ids before and behind it, even where it stands for no axis.
    found = [*parts[:at], *(free or parts[at : at + 1]), *parts[at + 1 :]]
    axis = 0
    for one in found:
        if _is_array(one) and one is not True and one is not False and one.dtype == bool_:
            lengths = tuple(x.shape[axis : axis + one.ndim])
            if tuple(one.shape) != lengths:
                raise IndexError(
                    f"boolean index did not match: expected a mask of shape {lengths}, got shape "
                    f"{tuple(one.shape)}"
                )
        axis += _axes_of(one)
    return found


def _is_empty(part: Any) -> bool:
    return isinstance(part, np.ndarray) and part.size == 0 and part.dtype.kind == "f"


def _axes_of(part: Any) -> int:
    """Number of the tensor's axes that a part of an index takes."""
    if part is None or isinstance(part, EllipsisType):
        return 0
    is_mask = isinstance(part, (StridedTensor, np.ndarray)) and part.dtype == bool_
    return part.ndim if is_mask else 0 if isinstance(part, (bool, np.bool_)) else 1


def _ids_of(part: Any) -> Sequence[Ids]:
    """The ids of each axis that a part takes; a mask is read."""
    if isinstance(part, (bool, np.bool_)):
        raise IndexError("expected a mask of one axis or more, got one bool. Index with None.")
    if not isinstance(part, (StridedTensor, np.ndarray)):
        return (np.asarray(part.__index__()),)
    if part.dtype != bool_:
        return (part,)
    return np.nonzero(np.asarray(part.to_numpy() if isinstance(part, StridedTensor) else part))


def _wrapped(x: Any, ids: Ids, length: int, axis: int) -> Ids:
    """Ids as i64, negative ones counted from the end; ids of the host are checked."""
    if isinstance(ids, StridedTensor):
        return _wrapped_on_device(ids, length)
    wide = np.minimum(ids, _MOST).astype(np.int64) if ids.dtype.kind == "u" else ids
    wrong = (wide < -length) | (wide >= length)
    if wrong.any():
        raise IndexError(
            f"index {ids[wrong].flat[0]} is out of bounds for axis {axis} with size {length}"
        )
    return np.where(wide < 0, wide + length, wide).astype(np.int64)


def _wrapped_on_device(ids: Any, length: int) -> Any:
    """Return a tensor's ids as i64, negative ones counted from the end; kernels check them."""
    wide = converted(ids, i64)
    turned = plan_where(plan_binary(LESS, wide, 0), plan_binary(ADD, wide, length), wide)
    return wide if ids.dtype.kind == "uint" else run(turned)


def _rows_of(given: _Selection, lengths: Sequence[int]) -> Ids:
    """Ids of all axes as ids of one joined axis."""
    if all(isinstance(one, np.ndarray) for one in given.ids):
        rows = np.zeros((), np.int64)
        for one, length in zip(given.ids, lengths, strict=True):
            rows = rows * length + one
        return np.broadcast_to(rows, given.shape)
    if len(given.ids) == 1:
        return given.ids[0]
    like = given.view
    total: Any = None
    wrong: Any = None
    for one, length in zip(given.ids, lengths, strict=True):
        ids = _on_device(like, one)
        below = plan_binary(LESS, ids, 0)
        beyond = plan_binary(BITWISE_OR, below, plan_binary(GREATER_EQUAL, ids, length))
        if total is None:
            total, wrong = ids, beyond
            continue
        total = plan_binary(ADD, plan_binary(MULTIPLY, total, length), ids)
        wrong = plan_binary(BITWISE_OR, wrong, beyond)
    # An id outside of its axis may give a valid id of the joined axis. Kernels refuse `_MOST`,
    # which replaces this id.
    found: Any = run(plan_where(wrong, _MOST, total))
    return found.broadcast_to(given.shape)


def _on_device(like: Any, ids: Any) -> Any:
    """Return a tensor unchanged, and an array as a tensor on the device of `like`."""
    if isinstance(ids, StridedTensor):
        return ids
    array: npt.NDArray[Any] = np.ascontiguousarray(ids)
    return type(like).from_numpy(array, device=like.device)


def _moved(x: Any, count: int, source: int, target: int) -> Any:
    """The view with the `count` axes from `source` on moved to begin at `target`."""
    others = [axis for axis in range(x.ndim) if not source <= axis < source + count]
    order = [*others[:target], *range(source, source + count), *others[target:]]
    return x if source == target else x._viewed(x._layout.permute(order))
