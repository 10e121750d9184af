"""Tensors joined along an axis: each is copied by rows into one new tensor."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod

from ubridge.core.fits import require
from ubridge.core.layout import Layout, Shape
from ubridge.core.operand_checks import axis_of
from ubridge.core.promotion import promoted, storage_of
from ubridge.core.question import Question
from ubridge.definitions.attention import KV_CONCAT
from ubridge.definitions.memory import COPY2D
from ubridge.ops.elementwise import plan_conversion
from ubridge.ops.engine import MOVED_AS, Parts, Value, ask, contiguous
from ubridge.ops.results import require_tensors
from uhal import DType
from uhal.errors import ArgumentValueError, InvalidHandleError

_FEW = 1 << 16
"""Elements of a result from which two launches, which copy faster, take no longer than one."""
_LEAST = 8
"""Elements of a row below which one launch, which copies row by row, takes longer."""


def plan_joined(tensors: Sequence[Value], axis: int = 0) -> Value:
    """Plan tensors joined along an axis; dtypes are promoted.

    A short result of two tensors takes one launch, other results a launch for each tensor.
    """
    require(len(tensors), "cat: need at least one array to concatenate")
    require_tensors("cat", *tensors)
    first = tensors[0]
    axis = axis_of("cat", first._layout, axis)
    dtype = first._dtype
    for one in tensors:
        dtype = promoted("cat", dtype, one._dtype)
        if one._executor is not first._executor:
            raise InvalidHandleError(
                f"cat: expected tensors on {first.device!r}, got one on {one.device!r}"
            )
    converted = [plan_conversion(one, dtype) for one in tensors]
    layouts = tuple([one._layout for one in converted])
    shape, parts = _parts(storage_of(dtype), layouts, axis)
    least = _LEAST * prod(shape[:axis])
    if (
        len(layouts) == 2
        and dtype.name in KV_CONCAT.dtypes
        and prod(shape) <= _FEW
        and all([one.is_contiguous and one.size >= max(least, 1) for one in layouts])
    ):
        return ask(KV_CONCAT, converted, dtype, axis=axis)
    found: list[tuple[Question, int, Value]] = []
    for one, part in zip(converted, parts, strict=True):
        if part is not None:
            question, start, has_lines = part
            found.append((question, start, one if has_lines else contiguous(one)))
    return Parts(tuple(found), Layout.contiguous(shape), dtype, first)


Part = tuple[Question, int, bool] | None
"""The question of a tensor's copy, the first element that it writes, and whether it reads the
tensor itself: the tensor's rows may have gaps. `None` for an empty tensor."""


@lru_cache(maxsize=1024)
def _parts(dtype: DType, layouts: tuple[Layout, ...], axis: int) -> tuple[Shape, tuple[Part, ...]]:
    """The shape of the result, and how each tensor is copied into it."""
    first = layouts[0].shape
    for other in layouts[1:]:
        _require_joinable(first, other.shape, axis)
    total = sum(layout.shape[axis] for layout in layouts)
    outer, inner = prod(first[:axis]), prod(first[axis + 1 :])
    bits = MOVED_AS.get(dtype.name, dtype)
    parts: list[Part] = []
    start = 0
    for layout in layouts:
        columns = layout.shape[axis] * inner
        if not outer * columns:
            parts.append(None)
            continue
        lengths = (outer, columns)
        target = Layout(lengths, (total * inner, 1))
        lines = layout.reshape(lengths)
        if lines is None or lines.strides[1] != 1:
            lines = None
        source = Layout.contiguous(lengths) if lines is None else Layout(lengths, lines.strides)
        question = Question(COPY2D, ((bits, source),), (bits, target))
        parts.append((question, start, lines is not None))
        start += columns
    return Shape((*first[:axis], total, *first[axis + 1 :])), tuple(parts)


def _require_joinable(first: Shape, other: Shape, axis: int) -> None:
    if len(other) != len(first):
        raise ArgumentValueError(
            "cat: all the input array dimensions must match exactly, but along dimension count "
            f"there are {len(first)} and {len(other)}"
        )
    for dimension, (one, two) in enumerate(zip(first, other, strict=True)):
        if dimension != axis and one != two:
            raise ArgumentValueError(
                "cat: all the input array dimensions except for the concatenation axis must match "
                f"exactly, but along dimension {dimension}, the sizes are {one} and {two}"
            )
