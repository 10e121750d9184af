"""Sums, extremes and their indices along axes, and means."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache, partial
from math import prod
from typing import Any

from ubridge.buffers import launches
from ubridge.core.layout import Layout
from ubridge.core.op_table import OPS, Op
from ubridge.core.operand_checks import axes_of
from ubridge.device.executor import Answer
from ubridge.device.remembered import TensorData, launched, make, remembered
from ubridge.ops import answers
from ubridge.ops.elementwise import asked_with_number, converted, with_scalar
from ubridge.ops.results import delivered, require_tensors
from ubridge.ops.strided import Tensor
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
"""Operations that take several axes at once."""


def asked_to_reduce(
    op: Op, x: TensorData, axis: Any = None, keepdims: Any = False
) -> Answer | None:
    """Ask for a reduction over one axis or all, in the tensor's dtype."""
    if type(axis) is not int and (axis is not None or op not in _OVER_ALL):
        return None
    dtype, layout, executor = x._dtype, x._layout, x._executor
    key = (op, dtype.code, layout.words, axis, keepdims)
    return executor.answer(key, answers.reduction, op, dtype, layout, axis, keepdims)


def _asked_for_sum(
    x: TensorData, axis: Any = None, dtype: Any = None, keepdims: Any = False
) -> Answer | None:
    if dtype is not None or x._dtype is bool_:
        return None
    return asked_to_reduce(_SUM, x, axis, keepdims)


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
    found = asked_to_reduce(op, x, axis, keepdims) if out is None else None
    if found is not None:
        made: Tensor = launched(found, stream, x)
        return made
    if axis is None and op.family.name == "arg_reduce":
        return _over_all(op, x, keepdims, out, stream)
    axes = _axes(op, given, axis)
    result = _result(given, axes, keepdims)
    dtype = u32 if op.family.name == "arg_reduce" else x._dtype
    executor = x._executor

    def enqueue(output: DeviceBuffer | None) -> DeviceBuffer:
        if not axes:
            return launches.launch_unary(
                OPS["copy"], x._buffer, given, out=output, stream=stream, executor=executor
            )
        return launches.reduce_over(op, x._buffer, given, axes, output, stream, executor)

    if out is None:
        return x._made(enqueue(None), result, dtype)
    return delivered(op, result.shape, dtype, out, (x,), stream, enqueue)


@lru_cache(maxsize=4096)
def _result(layout: Layout, axes: tuple[int, ...], keepdims: bool) -> Layout:
    """The layout of a tensor reduced over some axes."""
    return Layout.contiguous(
        1 if axis in axes else length
        for axis, length in enumerate(layout.shape)
        if keepdims or axis not in axes
    )


def _over_all(
    op: Op,
    x: Tensor,
    keepdims: bool,
    out: Tensor | None,
    stream: StreamLike | None,
) -> Tensor:
    """The index in row-major order, as numpy counts without an axis."""
    shape = (1,) * x.ndim if keepdims else ()
    if out is None:
        return reduced(op, x.reshape(-1), 0, stream=stream).reshape(shape)
    return reduced(op, x.reshape(-1), 0, out=out.reshape(()), stream=stream).reshape(shape)


def _axes(op: Op, layout: Layout, axis: Axes) -> tuple[int, ...]:
    return launches.reduced_axes(op, layout, axes_of(op.name, layout, axis))


@remembered(_asked_for_sum)
def sum(  # numpy's name
    x: Tensor,
    axis: Axes = None,
    dtype: DTypeLike | None = None,
    keepdims: bool = False,
    *,
    out: Tensor | None = None,
    stream: StreamLike | None = None,
) -> Tensor:
    """Sum over axes, in the tensor's dtype unless `dtype` says another; booleans are counted.

    With a `dtype` of bool the result says whether an element is not 0.
    """
    if not hasattr(x, "_layout"):
        require_tensors("sum", x)
    if dtype is None and x._dtype is bool_:
        dtype = i64
    if dtype is not None:
        x = converted(x, dtype, stream=stream)
    # A sum of booleans that is a boolean says whether there is a True.
    return reduced(_MAX if x._dtype is bool_ and x.size else _SUM, x, axis, keepdims, out, stream)


def _asked_for_mean(x: TensorData, axis: Any = None, keepdims: Any = False) -> Answer | None:
    """Ask for an average of floats that are summed in their own dtype: a sum, then a division."""
    executor = x._executor
    total = asked_to_reduce(_SUM, x, axis, keepdims) if x._dtype in (f32, f64) else None
    if total is None:
        return None
    sums = make(TensorData, x._buffer, total.layout, total.dtype, executor)
    average = asked_with_number(_DIVIDE, sums, x._layout.size // total.layout.size)
    if average is None:
        return None
    divide, behind = average.launch, average.behind

    def launch(stream: StreamLike | None, out: DeviceBuffer | None, start: DeviceBuffer) -> Any:
        return divide(stream, out, total.launch(stream, None, start), *behind)

    return Answer(launch, average.layout, average.dtype)


@remembered(_asked_for_mean)
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
    if x.size == 0 and prod(x.shape[one] for one in _axes(_SUM, x._layout, axis)) == 0:
        raise ArgumentValueError("mean: of an empty slice")
    result = x._dtype if x._dtype.kind == "float" else f64
    wide = f32 if result.itemsize < 4 else result
    if x._dtype is not wide:
        x = converted(x, wide, stream=stream)
    total = reduced(_SUM, x, axis, keepdims, None, stream)
    count = x.size // total.size if total.size else 1
    average = with_scalar(_DIVIDE, total, count, False, None, stream)
    if average._dtype is result and out is None:
        return average
    return converted(average, result, out=out, stream=stream)


@remembered(partial(asked_to_reduce, _MIN))
def min(  # numpy's name
    x: Tensor,
    axis: Axes = None,
    keepdims: bool = False,
    *,
    out: Tensor | None = None,
    stream: StreamLike | None = None,
) -> Tensor:
    """Return the smallest over axes; NaN if there is a NaN."""
    return reduced(_MIN, x, axis, keepdims, out, stream)


@remembered(partial(asked_to_reduce, _MAX))
def max(  # numpy's name
    x: Tensor,
    axis: Axes = None,
    keepdims: bool = False,
    *,
    out: Tensor | None = None,
    stream: StreamLike | None = None,
) -> Tensor:
    """Return the largest over axes; NaN if there is a NaN."""
    return reduced(_MAX, x, axis, keepdims, out, stream)


@remembered(partial(asked_to_reduce, _ARGMIN))
def argmin(
    x: Tensor,
    axis: int | None = None,
    keepdims: bool = False,
    *,
    out: Tensor | None = None,
    stream: StreamLike | None = None,
) -> Tensor:
    """Return the index of the first smallest along an axis, as u32; without an axis, of all."""
    return reduced(_ARGMIN, x, axis, keepdims, out, stream)


@remembered(partial(asked_to_reduce, _ARGMAX))
def argmax(
    x: Tensor,
    axis: int | None = None,
    keepdims: bool = False,
    *,
    out: Tensor | None = None,
    stream: StreamLike | None = None,
) -> Tensor:
    """Return the index of the first largest along an axis, as u32; without an axis, of all."""
    return reduced(_ARGMAX, x, axis, keepdims, out, stream)
