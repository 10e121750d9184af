"""Tensors in another shape, or with their axes or elements in another order.

The array API standard defines the functions. Views share the memory of their tensor; the others
make a new tensor by one copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import prod
from typing import Any, Literal

import numpy as np

from ubridge.core.fits import require
from ubridge.core.layout import Layout, Shape, checked_int
from ubridge.core.operand_checks import axes_of, axis_of, one_shape, whole_number
from ubridge.creation import empty, full
from ubridge.definitions.calls import named
from ubridge.definitions.elementwise import NOT_EQUAL, SUBTRACT
from ubridge.joins import cat
from ubridge.ops.elementwise import plan_binary
from ubridge.ops.engine import Value, plan_copy, reshaped, run
from ubridge.ops.joining import plan_joined
from ubridge.ops.remembering import remembered, remembered_view
from ubridge.ops.results import require_tensors
from ubridge.ops.selection import take
from ubridge.tensor import DeviceTensor
from uhal.dtypes import bool_
from uhal.errors import ArgumentValueError
from uhal.interop import StreamLike

# -- views ----------------------------------------------------------------------------------------


@remembered_view
@named
def broadcast_to(x: DeviceTensor, shape: int | Iterable[int]) -> DeviceTensor:
    """Return the view of another shape by numpy's rules."""
    require_tensors("broadcast_to", x)
    return x.broadcast_to(shape)


@named
def broadcast_arrays(*tensors: DeviceTensor) -> list[DeviceTensor]:
    """Return views of all tensors in one shape.

    Raises `ArgumentValueError` for shapes that do not broadcast.
    """
    require_tensors("broadcast_arrays", *tensors)
    shapes = [one._layout.shape for one in tensors]
    shape = one_shape("broadcast_arrays", *shapes) if shapes else Shape()
    return [one.broadcast_to(tuple(shape)) for one in tensors]


@remembered_view
@named
def expand_dims(x: DeviceTensor, axis: int = 0) -> DeviceTensor:
    """Return the view with one more axis, of length 1, before `axis`."""
    require_tensors("expand_dims", x)
    return x.expand_dims(axis)


@remembered_view
@named
def squeeze(x: DeviceTensor, axis: int | Iterable[int] | None = None) -> DeviceTensor:
    """Return the view without axes of one element.

    `axis` names one axis or several; by default all axes of length 1 go. Raises
    `ArgumentValueError` for an axis of another length.
    """
    require_tensors("squeeze", x)
    if axis is None:
        return x.squeeze()
    for one in sorted(axes_of("squeeze", x._layout, axis), reverse=True):
        x = x.squeeze(one)
    return x


@remembered_view
@named
def permute_dims(x: DeviceTensor, axes: Sequence[int]) -> DeviceTensor:
    """Return the view whose axis i is axis `axes[i]` of x."""
    require_tensors("permute_dims", x)
    order = axes_of("permute_dims", x._layout, axes)
    require(
        len(order) == x.ndim,
        f"permute_dims, axes: expected each of {x.ndim} axes once, got {axes!r:.80}",
    )
    return x._viewed(x._layout.permute(order))


@remembered_view
@named
def matrix_transpose(x: DeviceTensor) -> DeviceTensor:
    """Return the view with the last two axes exchanged."""
    require_tensors("matrix_transpose", x)
    return x.mT


@remembered_view
@named
def moveaxis(
    x: DeviceTensor, source: int | Iterable[int], destination: int | Iterable[int]
) -> DeviceTensor:
    """Return the view with some axes moved to other positions.

    The other axes keep their order.
    """
    require_tensors("moveaxis", x)
    moved = axes_of("moveaxis", x._layout, source)
    targets = axes_of("moveaxis", x._layout, destination)
    require(
        len(moved) == len(targets),
        f"moveaxis: expected as many positions as axes, got {len(targets)} for {len(moved)}",
    )
    order = [axis for axis in range(x.ndim) if axis not in moved]
    for target, axis in sorted(zip(targets, moved, strict=True)):
        order.insert(target, axis)
    return x._viewed(x._layout.permute(order))


@remembered_view
@named
def reshape(
    x: DeviceTensor, shape: int | Iterable[int], *, copy: bool | None = None
) -> DeviceTensor:
    """Return the elements in another shape, in the same order.

    The result is a view if possible; with `copy=True` it is always a copy. With `copy=False`
    elements that have no view of the shape raise `ArgumentValueError`. One length may be -1.
    """
    require_tensors("reshape", x)
    layout = x._layout.reshape(shape)
    require(
        layout is not None or copy is not False,
        f"reshape: expected a view of shape {shape}, which these strides do not have. "
        "Let copy be None.",
    )
    return x.copy().reshape(shape) if copy or layout is None else x._viewed(layout)


# -- copies ---------------------------------------------------------------------------------------


def _plan_repeat(x: Value, repeats: int, axis: int | None = None) -> Value | None:
    """Plan `repeat` with one number of repeats; `None` if each element has its own number."""
    if type(repeats) is not int:
        return None
    require_tensors("repeat", x)
    if axis is None:
        x, axis = reshaped(x, -1), 0
    layout = x._layout
    axis = axis_of("repeat", layout, axis)
    before, length, behind = layout.shape[:axis], layout.shape[axis], layout.shape[axis + 1 :]
    count = whole_number("repeat, repeats", repeats)
    spread = layout.expanded(axis + 1).broadcast_to((*before, length, count, *behind))
    return reshaped(plan_copy(x._viewed(spread)), (*before, length * count, *behind))


@remembered(_plan_repeat)
def repeat(
    x: DeviceTensor,
    repeats: int | Sequence[int] | DeviceTensor,
    axis: int | None = None,
    *,
    stream: StreamLike | None = None,
) -> DeviceTensor:
    """Return each element of an axis several times in a row.

    `repeats` is one number, or a number for each element of the axis. A tensor of numbers is copied
    to the host, which waits for the device. Without an axis, all elements form one row.
    """
    require_tensors("repeat", x)
    if axis is None:
        x, axis = x.ravel(), 0
    axis = axis_of("repeat", x._layout, axis)
    counts = [whole_number("repeat, repeats", one) for one in _several(repeats)]
    if len(counts) == 1:
        return run(_plan_repeat(x, counts[0], axis), None, stream)
    require(
        len(counts) == x.shape[axis],
        f"repeat, repeats: expected {x.shape[axis]} numbers, one for each element of axis {axis}, "
        f"got {len(counts)}",
    )
    return take(x, np.repeat(np.arange(len(counts)), counts), axis, stream=stream)


def _several(given: Any) -> Iterable[Any]:
    """The numbers of a sequence, or of one number."""
    if isinstance(given, DeviceTensor):
        given = given.tolist()
    is_one = not isinstance(given, Iterable) or getattr(given, "ndim", 1) == 0
    return (given,) if is_one else given


def _plan_tile(x: Value, repetitions: int | Sequence[int]) -> Value:
    """Plan copies of the whole tensor along each axis."""
    require_tensors("tile", x)
    times = [whole_number("tile, repetitions", one) for one in _several(repetitions)]
    shape = x._layout.shape
    rank = max(len(shape), len(times))
    times = [*[1] * (rank - len(times)), *times]
    lengths = [*[1] * (rank - len(shape)), *shape]
    pairs = list(zip(times, lengths, strict=True))
    apart = reshaped(x, [part for length in lengths for part in (1, length)])
    spread = apart._layout.broadcast_to([part for pair in pairs for part in pair])
    return reshaped(plan_copy(apart._viewed(spread)), [prod(pair) for pair in pairs])


@remembered(_plan_tile)
def tile(
    x: DeviceTensor, repetitions: int | Sequence[int], *, stream: StreamLike | None = None
) -> DeviceTensor:
    """Return the whole tensor several times along each axis.

    Missing leading axes or numbers count as 1.
    """
    return run(_plan_tile(x, repetitions), None, stream)


def _plan_roll(
    x: Value, shift: int | Sequence[int], axis: int | Sequence[int] | None = None
) -> Value | None:
    """Plan a copy with the elements of one axis shifted; `None` for several axes."""
    shifts = _shifts(x, shift, axis)
    if len(shifts) > 1:
        return None
    if axis is None:
        return _rolled(reshaped(x, -1), *shifts[0])._viewed(Layout.contiguous(x.shape))
    return _rolled(x, *shifts[0]) if shifts else plan_copy(x)


def _shifts(
    x: Value, shift: int | Sequence[int], axis: int | Sequence[int] | None
) -> list[tuple[int, int]]:
    """Return each axis with its shift; without an axis all elements are one axis."""
    require_tensors("roll", x)
    axes = (0,) if axis is None else axes_of("roll", x._layout, axis)
    moved = [checked_int("roll, shift", one) for one in _several(shift)]
    moved = moved * len(axes) if len(moved) == 1 else moved
    require(
        len(moved) == len(axes),
        f"roll: expected a shift for each axis, got {len(moved)} for {len(axes)}",
    )
    return list(zip(axes, moved, strict=True))


def _rolled(x: Value, axis: int, shift: int) -> Value:
    length = x._layout.shape[axis]
    behind = shift % length if length else 0
    if not behind:
        return plan_copy(x)
    parts = (length - behind, behind), (0, length - behind)
    return plan_joined([x._viewed(x._layout.narrow(axis, *part)) for part in parts], axis)


@remembered(_plan_roll)
def roll(
    x: DeviceTensor,
    shift: int | Sequence[int],
    axis: int | Sequence[int] | None = None,
    *,
    stream: StreamLike | None = None,
) -> DeviceTensor:
    """Return a copy with the elements of axes shifted.

    Elements beyond the end come to the front. `shift` is one number, or a number for each axis.
    Without an axis all elements form one row, which then gets its shape back.
    """
    plan = _plan_roll(x, shift, axis)
    if plan is not None:
        return run(plan, None, stream)
    for one, number in _shifts(x, shift, axis):
        x = run(_rolled(x, one, number), None, stream)
    return x


_REPEATING = ("edge", "reflect", "symmetric", "wrap")
"""Modes of `pad` that repeat elements of the tensor."""


@named
def pad(
    x: DeviceTensor,
    pad_width: int | Sequence[int] | Sequence[Sequence[int]],
    mode: Literal["constant", "edge", "reflect", "symmetric", "wrap"] = "constant",
    *,
    constant_values: float = 0,
    stream: StreamLike | None = None,
) -> DeviceTensor:
    """Return a copy with more elements before and behind axes.

    `pad_width` is a pair (before, behind) for each axis, one pair for all axes, or one number for
    all ends. The mode `constant` adds `constant_values`, a number. The other modes repeat elements
    as `numpy.pad` does: `edge` the outermost, `reflect` the axis backwards without its end,
    `symmetric` backwards with its end, `wrap` the axis from its other end.
    """
    require_tensors("pad", x)
    modes = ("constant", *_REPEATING)
    require(mode in modes, f"pad, mode: expected one of {', '.join(modes)}, got {mode!r}")
    widths = _pairs(pad_width, x.ndim)
    lengths = x.shape
    shape = [sum(pair) + length for pair, length in zip(widths, lengths, strict=True)]
    if mode == "constant":
        found = full(shape, constant_values, x.dtype, device=x.device, stream=stream)
    else:
        found = empty(shape, x.dtype, device=x.device, stream=stream)
    # Ends of later axes are copied from whole rows of the axes before.
    inner = [found]
    for axis, ((before, _), length) in reversed([*enumerate(zip(widths, lengths, strict=True))]):
        inner.append(inner[-1].narrow(axis, before, length))
    inner.pop().copy_from(x, stream=stream)
    if mode != "constant":
        for axis, pair in enumerate(widths):
            whole, length = inner.pop(), lengths[axis]
            if any(pair):
                require(length > 0, f"pad: expected elements to repeat along axis {axis}, got none")
                _repeat(whole, axis, pair, length, mode, stream)
    return found


def _repeat(
    x: DeviceTensor,
    axis: int,
    pair: tuple[int, int],
    length: int,
    mode: str,
    stream: StreamLike | None,
) -> None:
    """Fill both ends of an axis from the `length` elements between them."""
    for start, ids in _ends(pair, length, mode):
        end = x.narrow(axis, start, len(ids))
        if len(ids) == 1:
            repeated = x.narrow(axis, pair[0] + ids[0], 1).copy(stream=stream)
        else:
            middle = x.narrow(axis, pair[0], length)
            repeated = take(middle, np.array(ids), axis, stream=stream)
        end.copy_from(repeated, stream=stream)


@lru_cache(maxsize=256)
def _ends(pair: tuple[int, int], length: int, mode: str) -> tuple[tuple[int, list[int]], ...]:
    """Where each end begins, and the ids of its elements; ends without elements are left out."""
    before, _ = pair
    kind: Any = mode
    ids = np.pad(np.arange(length), pair, kind).tolist()
    found = (0, ids[:before]), (before + length, ids[before + length :])
    return tuple(one for one in found if one[1])


def _pairs(given: Any, count: int) -> list[tuple[int, int]]:
    """The numbers of `pad_width` before and behind each axis."""
    try:
        rows = np.broadcast_to(np.array(given, object), (count, 2))
    except ValueError:
        raise ArgumentValueError(
            f"pad, pad_width: expected one number, one pair or {count} pairs, got {given!r:.60}"
        ) from None
    before, behind = ([whole_number("pad, pad_width", one) for one in part] for part in rows.T)
    return list(zip(before, behind, strict=True))


def _plan_diff(
    x: Value,
    axis: int = -1,
    n: int = 1,
    prepend: Value | None = None,
    append: Value | None = None,
) -> Value | None:
    """Plan the differences of neighbours along an axis; `None` for tensors to join."""
    if prepend is not None or append is not None:
        return None
    require_tensors("diff", x)
    axis = axis_of("diff", x._layout, axis)
    found = x
    differ = NOT_EQUAL if x._dtype is bool_ else SUBTRACT
    # An axis without elements has no further differences.
    for _ in range(min(whole_number("diff, n", n), x._layout.shape[axis])):
        layout = found._layout
        length = layout.shape[axis]
        count = max(length - 1, 0)
        right, left = (
            found._viewed(layout.narrow(axis, start, count)) for start in (length - count, 0)
        )
        found = plan_binary(differ, right, left)
    return plan_copy(found) if found is x else found


@remembered(_plan_diff)
def diff(
    x: DeviceTensor,
    axis: int = -1,
    n: int = 1,
    prepend: DeviceTensor | None = None,
    append: DeviceTensor | None = None,
    *,
    stream: StreamLike | None = None,
) -> DeviceTensor:
    """Return the differences of neighbours along an axis.

    The difference is taken `n` times in a row. `prepend` and `append` are joined to x first. The
    result for booleans is true where neighbours differ.
    """
    joined = [one for one in (prepend, x, append) if one is not None]
    require_tensors("diff", *joined)
    axis = axis_of("diff", x._layout, axis)
    found = cat(joined, axis, stream=stream) if len(joined) > 1 else x
    return run(_plan_diff(found, axis, n), None, stream)
