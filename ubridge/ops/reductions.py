"""Sums, extremes and their places along axes, and what is made of them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from math import prod

from ubridge.buffers import launches
from ubridge.core.layout import Layout
from ubridge.core.op_table import OPS, Op
from ubridge.ops import answers
from ubridge.ops.elementwise import astype, with_scalar
from ubridge.ops.results import delivered, require_tensors
from ubridge.ops.strided import Tensor, make, start_of
from uhal import DeviceBuffer
from uhal.dtypes import DTypeLike, bool_, f32, f64, i64, u32
from uhal.errors import ArgumentValueError
from uhal.interop import StreamLike

Axes = int | Iterable[int] | None
_ARGMAX = OPS["argmax"]
_ARGMIN = OPS["argmin"]
_DIVIDE = OPS["divide"]
_MAX = OPS["max"]
_MIN = OPS["min"]
_SUM = OPS["sum"]
_OVER_ALL = (_SUM, _MIN, _MAX)
"""What takes several axes at once."""


def reduced(
    op: Op,
    x: Tensor,
    axis: Axes = None,
    keepdims: bool = False,
    out: Tensor | None = None,
    stream: StreamLike | None = None,
) -> Tensor:
    """Reduce over axes, over all of them by default. The result has the tensor's dtype."""
    try:
        given = x._layout
    except AttributeError:
        require_tensors(op.name, x)
        raise
    if out is None and (type(axis) is int or (axis is None and op in _OVER_ALL)):
        executor, dtype = x._executor, x._dtype
        key = (op, dtype.code, given.words, axis, keepdims)
        found = executor.known.get(key) or executor.answer(
            key, answers.reduction, op, dtype, given, axis, keepdims
        )
        if found is not None:
            buffer = found.launch(stream, None, start_of(x) if given.start_offset else x._buffer)
            return make(type(x), buffer, found.layout, found.dtype, executor)
    if axis is None and op.family.name == "arg_reduce":
        return _over_all(op, x, keepdims, out, stream)
    places = _axes(op, given, axis)
    result = _result(given, places, keepdims)
    dtype = u32 if op.family.name == "arg_reduce" else x._dtype
    executor = x._executor

    def enqueue(place: DeviceBuffer | None) -> DeviceBuffer:
        if not places:
            return launches.launch_unary(
                OPS["copy"], x._buffer, given, out=place, stream=stream, executor=executor
            )
        return launches.reduce_over(op, x._buffer, given, places, place, stream, executor)

    if out is None:
        return x._made(enqueue(None), result, dtype)
    return delivered(op.name, result.shape, dtype, out, (x,), stream, enqueue)


@lru_cache(maxsize=4096)
def _result(layout: Layout, places: tuple[int, ...], keepdims: bool) -> Layout:
    """The layout of what is left of a tensor without some axes."""
    return Layout.contiguous(
        1 if place in places else length
        for place, length in enumerate(layout.shape)
        if keepdims or place not in places
    )


def _over_all(
    op: Op,
    x: Tensor,
    keepdims: bool,
    out: Tensor | None,
    stream: StreamLike | None,
) -> Tensor:
    """The place in row-major order, as numpy counts without an axis."""
    shape = (1,) * x.ndim if keepdims else ()
    if out is None:
        return reduced(op, x.reshape(-1), 0, stream=stream).reshape(shape)
    return reduced(op, x.reshape(-1), 0, out=out.reshape(()), stream=stream).reshape(shape)


def _axes(op: Op, layout: Layout, axis: Axes) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(len(layout.shape)))
    given = tuple(axis) if isinstance(axis, Iterable) else (axis,)
    return launches.reduced_axes(op, layout, given)


def sum(  # numpy's name
    x: Tensor,
    axis: Axes = None,
    dtype: DTypeLike | None = None,
    keepdims: bool = False,
    *,
    out: Tensor | None = None,
    stream: StreamLike | None = None,
) -> Tensor:
    """Sum over axes, in the tensor's dtype unless `dtype` says another; booleans are counted."""
    if not hasattr(x, "_layout"):
        require_tensors("sum", x)
    if dtype is None and x._dtype is bool_:
        dtype = i64
    if dtype is not None:
        x = astype(x, dtype, stream=stream)
    return reduced(_SUM, x, axis, keepdims, out, stream)


def mean(
    x: Tensor,
    axis: Axes = None,
    keepdims: bool = False,
    *,
    out: Tensor | None = None,
    stream: StreamLike | None = None,
) -> Tensor:
    """Average over axes; halves are summed in f32, integers in f64."""
    require_tensors("mean", x)
    if x.size == 0 and prod(x.shape[place] for place in _axes(_SUM, x._layout, axis)) == 0:
        raise ArgumentValueError("mean: of an empty slice")
    result = x._dtype if x._dtype.kind == "float" else f64
    wide = f32 if result.itemsize < 4 else result
    if x._dtype is not wide:
        x = astype(x, wide, stream=stream)
    total = reduced(_SUM, x, axis, keepdims, None, stream)
    count = x.size // total.size if total.size else 1
    average = with_scalar(_DIVIDE, total, count, False, None, stream)
    if average._dtype is result and out is None:
        return average
    return astype(average, result, out=out, stream=stream)


def min(  # numpy's name
    x: Tensor,
    axis: Axes = None,
    keepdims: bool = False,
    *,
    out: Tensor | None = None,
    stream: StreamLike | None = None,
) -> Tensor:
    """Return the smallest over axes; NaN where there is one."""
    return reduced(_MIN, x, axis, keepdims, out, stream)


def max(  # numpy's name
    x: Tensor,
    axis: Axes = None,
    keepdims: bool = False,
    *,
    out: Tensor | None = None,
    stream: StreamLike | None = None,
) -> Tensor:
    """Return the largest over axes; NaN where there is one."""
    return reduced(_MAX, x, axis, keepdims, out, stream)


def argmin(
    x: Tensor,
    axis: int | None = None,
    keepdims: bool = False,
    *,
    out: Tensor | None = None,
    stream: StreamLike | None = None,
) -> Tensor:
    """Return the place of the first smallest along an axis, as u32; without one, of all."""
    return reduced(_ARGMIN, x, axis, keepdims, out, stream)


def argmax(
    x: Tensor,
    axis: int | None = None,
    keepdims: bool = False,
    *,
    out: Tensor | None = None,
    stream: StreamLike | None = None,
) -> Tensor:
    """Return the place of the first largest along an axis, as u32; without one, of all."""
    return reduced(_ARGMAX, x, axis, keepdims, out, stream)
