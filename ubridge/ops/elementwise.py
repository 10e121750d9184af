"""Operations element by element on tensors: dtypes are promoted and shapes broadcast.

Every function takes `out=` and `stream=`. `out` is a tensor of the result's shape and dtype; the
result is written into it instead of a new tensor, and it is returned. `stream` is by default the
device's default stream. All functions enqueue and return at once.
"""

from __future__ import annotations

from functools import lru_cache
from math import copysign
from typing import Any

from ubridge.buffers import launches
from ubridge.core.calls import named
from ubridge.core.layout import Layout, Shape
from ubridge.core.op_table import OPS, Op
from ubridge.core.operand_checks import one_shape
from ubridge.core.promotion import (
    checked_number,
    element_bytes,
    is_exact_reciprocal,
    promoted,
    with_number,
)
from ubridge.device.executor import Answer
from ubridge.device.remembered import TensorData, launched, remembered, start_of
from ubridge.ops import answers
from ubridge.ops.results import delivered, is_alike, require_tensors, result_layout
from ubridge.ops.strided import StridedTensor, Tensor, storage_of
from uhal import DeviceBuffer, DType, as_dtype
from uhal.dtypes import DTypeLike, bool_, f64, i64
from uhal.errors import ArgumentTypeError, ArgumentValueError, InvalidHandleError
from uhal.interop import StreamLike

_ADD = OPS["add"]
_AFFINE = OPS["affine"]
_ASTYPE = OPS["astype"]
_COPY = OPS["copy"]
_DIVIDE = OPS["divide"]
_MAXIMUM = OPS["maximum"]
_MINIMUM = OPS["minimum"]
_MULTIPLY = OPS["multiply"]
_NOT_EQUAL = OPS["not_equal"]
_POWER = OPS["power"]
_SQUARE = OPS["square"]
_SUBTRACT = OPS["subtract"]
_REMEMBERED = 4096
"""How many results a cache keeps; a program uses the same few layouts again and again."""
_ON_BOOLEANS = {_ADD: _MAXIMUM, _MULTIPLY: _MINIMUM}
"""What numpy's sums and products of booleans are: or and and."""


def asked_of_one(op: Op, x: TensorData) -> Answer | None:
    """Ask for an operation on every element of a tensor."""
    dtype, layout, executor = x._dtype, x._layout, x._executor
    if dtype is bool_:
        return None
    key = (op, dtype.code, layout.words)
    return executor.answer(key, answers.unary, op, dtype, layout)


def unary(
    op: Op,
    x: Tensor,
    parameter: float | None = None,
    out: Tensor | None = None,
    stream: StreamLike | None = None,
) -> Tensor:
    """Apply an operation to every element, in the tensor's dtype.

    Booleans and integers become f64 where the operation has no kernel for them.
    """
    if not hasattr(x, "_layout"):
        require_tensors(op.name, x)
    found = asked_of_one(op, x) if parameter is None else None
    if found is not None:
        if out is None:
            made: Tensor = launched(found, stream, x)
            return made
        if is_alike(op, out, found.dtype, x):
            found.launch(stream, out._buffer, start_of(x))
            return out
    if _becomes_f64(op, x._dtype):
        x = converted(x, f64, stream=stream)
    executor = x._executor
    if parameter is not None:
        parameter = checked_number(op.name, x._dtype, parameter)
    if out is None:
        buffer = launches.launch_unary(
            op, x._buffer, x._layout, parameter=parameter, stream=stream, executor=executor
        )
        return x._made(buffer, result_layout(x._layout), x._dtype)

    def enqueue(output: DeviceBuffer | None) -> DeviceBuffer:
        return launches.launch_unary(
            op, x._buffer, x._layout,
            parameter=parameter, out=output, stream=stream, executor=executor,
        )  # fmt: skip

    return delivered(op, x._layout.shape, x._dtype, out, (x,), stream, enqueue)


def _becomes_f64(op: Op, dtype: DType) -> bool:
    """Whether an operation on one tensor computes the dtype in f64, for want of a kernel."""
    if dtype.kind == "float" or dtype.name in op.dtypes:
        return False
    return op is not _COPY and (dtype is bool_ or not op.has_integers)


def asked_of_pair(op: Op, x: TensorData, y: Any = None) -> Answer | None:
    """Ask for an operation on pairs of elements of a tensor and another, or a number."""
    if not isinstance(y, StridedTensor):
        return asked_with_number(op, x, y)
    dtype, layout, executor, other = x._dtype, x._layout, x._executor, y._layout
    if y._dtype is not dtype or y._executor is not executor or dtype is bool_:
        return None
    key = (op, dtype.code, layout.words, other.words)
    return executor.answer(key, answers.pair, op, dtype, layout, other)


def binary(
    op: Op,
    x: Any,
    y: Any,
    out: Tensor | None = None,
    stream: StreamLike | None = None,
) -> Tensor:
    """Apply an operation to pairs of elements of two tensors, or of a tensor and a number."""
    made: Tensor
    if not isinstance(y, StridedTensor):
        made = with_scalar(op, x, y, False, out, stream)
        return made
    if not isinstance(x, StridedTensor):
        made = with_scalar(op, y, x, True, out, stream)  # type: ignore[assignment]
        return made
    left: Any = x
    right: Any = y
    found = asked_of_pair(op, left, right)
    if found is not None:
        if out is None:
            made = launched(found, stream, left, right)
            return made
        if right._layout is left._layout and is_alike(op, out, found.dtype, left, right):
            found.launch(stream, out._buffer, start_of(left), start_of(right))
            return out
    dtype = left._dtype
    if dtype is not right._dtype:
        dtype = promoted(op.name, dtype, right._dtype)
        left, right = converted(left, dtype, stream=stream), converted(right, dtype, stream=stream)
    return _paired(op, left, right, dtype, out, stream)


def _paired(
    op: Op,
    left: Any,
    right: Any,
    dtype: DType,
    out: Tensor | None,
    stream: StreamLike | None,
) -> Tensor:
    """Two tensors of one dtype."""
    executor = left._executor
    if right._executor is not executor:
        raise InvalidHandleError(
            f"{op.name}: expected operands on one device, got {left.device!r} and {right.device!r}"
        )
    result = dtype
    if op.family.name == "compare":
        result = bool_
    elif _is_f64(op, dtype):
        return binary(op, converted(left, f64, stream=stream), converted(right, f64, stream=stream),
                      out, stream)  # fmt: skip
    elif dtype is bool_:
        op = _boolean(op)
    left_layout, right_layout = left._layout, right._layout
    if left_layout.shape != right_layout.shape:
        left_layout, right_layout = _broadcast(op.name, left_layout, right_layout)
    if out is None:
        buffer = launches.launch_binary(
            op, left._buffer, left_layout, right._buffer, right_layout,
            stream=stream, executor=executor,
        )  # fmt: skip
        made: Tensor = left._made(buffer, result_layout(left_layout), result)
        return made

    def enqueue(output: DeviceBuffer | None) -> DeviceBuffer:
        return launches.launch_binary(
            op, left._buffer, left_layout, right._buffer, right_layout,
            out=output, stream=stream, executor=executor,
        )  # fmt: skip

    inputs = (left, right)
    return delivered(op, left_layout.shape, result, out, inputs, stream, enqueue)


def _is_f64(op: Op, dtype: DType) -> bool:
    """Whether numpy computes it in f64: a quotient of integers, or a function of floats of them.

    The kernels' quotient of integers would be an integer.
    """
    return dtype.kind != "float" and (op is _DIVIDE or op.is_of_floats)


@lru_cache(maxsize=_REMEMBERED)
def _broadcast(name: str, left: Layout, right: Layout) -> tuple[Layout, Layout]:
    """Two layouts of the shape both broadcast to."""
    shape = one_shape(name, left.shape, right.shape)
    return left.broadcast_to(shape), right.broadcast_to(shape)


def _boolean(op: Op) -> Op:
    """The operation on 0 and 1 that numpy's does on booleans."""
    if op is _SUBTRACT:
        raise ArgumentTypeError(
            "numpy boolean subtract, the `-` operator, is not supported, use the bitwise_xor, the "
            "`^` operator, instead"
        )
    return _ON_BOOLEANS.get(op, op)


def asked_with_number(
    op: Op, x: TensorData, number: Any = None, number_first: bool = False
) -> Answer | None:
    """Ask for a binary operation on a tensor and a number, in the order said."""
    dtype, factors, constant = _in_numbers(op, x._dtype, number, number_first)
    if dtype is not x._dtype or dtype is bool_:
        return None
    if factors is not None:
        found = _asked_for_affine(x)
        return None if found is None else found.passing(behind=factors)
    layout, executor = x._layout, x._executor
    layouts = layout, _spread(layout.shape)
    first, second = layouts[::-1] if number_first else layouts
    key = (op, dtype.code, first.words, second.words)
    found = executor.answer(key, answers.pair, op, dtype, first, second)
    if found is None:
        return None
    element = (executor.constants.get(constant),)
    return found.passing(ahead=element) if number_first else found.passing(behind=element)


def with_scalar(
    op: Op,
    x: Tensor,
    number: Any,
    number_first: bool,
    out: Tensor | None,
    stream: StreamLike | None,
) -> Tensor:
    """Apply a binary operation to a tensor and a number, in the order said."""
    if not hasattr(x, "_layout"):
        require_tensors(op.name, x)
    if out is None:
        found = asked_with_number(op, x, number, number_first)
        if found is not None:
            made: Tensor = launched(found, stream, x)
            return made
    dtype, factors, constant = _in_numbers(op, x._dtype, number, number_first)
    if dtype is not x._dtype:
        x = converted(x, dtype, stream=stream)
    if factors is not None:
        multiplier, addend = factors
        return _affine(op, x, multiplier, addend, out, stream)
    other = x._made(x._executor.constants.get(constant), _spread(x._layout.shape), dtype)
    pair = (other, x) if number_first else (x, other)
    return binary(op, *pair, out, stream)


def _in_numbers(
    op: Op, dtype: DType, number: Any, number_first: bool
) -> tuple[DType, tuple[float, float] | None, tuple[str, bytes]]:
    # 0 == 0.0 == -0.0, but their results differ: the cache's key holds the type and the sign, too.
    if type(number) is float:
        return _scalar(op, dtype.name, number, copysign(1, number), number_first)
    if type(number) is int:
        return _scalar(op, dtype.name, number, 0, number_first)
    return _scalar.__wrapped__(op, dtype.name, number, 0, number_first)


@lru_cache(maxsize=_REMEMBERED)
def _scalar(
    op: Op, name: str, number: Any, sign: float, number_first: bool
) -> tuple[DType, tuple[float, float] | None, tuple[str, bytes]]:
    """Return the dtype to compute in, affine factors if any, and the number's key as a constant.

    `sign` is only part of the cache's key: it tells 0.0 from -0.0, and floats, for which it is not
    0, from ints.
    """
    dtype = with_number(op.name, as_dtype(name), number)
    if _is_f64(op, dtype):
        dtype = f64
    value = checked_number(op.name, dtype, number)
    factors = None if dtype is bool_ else _as_affine(op, dtype, value, number_first)
    return dtype, factors, (storage_of(dtype).name, element_bytes(dtype, value))


@lru_cache(maxsize=_REMEMBERED)
def _spread(shape: Shape) -> Layout:
    """The layout of one element broadcast to a shape."""
    if max(shape, default=1) == 1:
        return Layout.contiguous(shape)
    return Layout(shape, (0,) * len(shape))


def _as_affine(op: Op, dtype: DType, value: Any, number_first: bool) -> tuple[float, float] | None:
    """Return (multiplier, addend) of an affine operation with the very same result, if any."""
    if dtype.name not in _AFFINE.dtypes:
        return None
    # x * value + -0.0 keeps the sign of a product that is 0.
    nothing = -0.0 if dtype.kind == "float" else 0
    if op is _MULTIPLY:
        return value, nothing
    if op is _ADD:
        return 1, value
    if op is _SUBTRACT:
        return (wrapped(dtype, -1), value) if number_first else (1, wrapped(dtype, -value))
    if op is _DIVIDE and not number_first and is_exact_reciprocal(value):
        return 1 / value, nothing
    return None


def wrapped(dtype: DType, value: Any) -> Any:
    """Return the value of an integer type that has the same low bits."""
    if dtype.kind == "float":
        return value
    modulus = 1 << 8 * dtype.itemsize
    rest = value % modulus
    return rest - modulus if dtype.kind == "int" and rest >= modulus // 2 else rest


@named
def affine(
    x: Tensor,
    multiplier: float,
    addend: float,
    *,
    out: Tensor | None = None,
    stream: StreamLike | None = None,
) -> Tensor:
    """Return `x * multiplier + addend`, rounded once where the device has fused multiply-add."""
    require_tensors(_AFFINE.name, x)
    dtype = with_number(_AFFINE.name, with_number(_AFFINE.name, x._dtype, multiplier), addend)
    factors = (
        checked_number(_AFFINE.name, dtype, multiplier),
        checked_number(_AFFINE.name, dtype, addend),
    )
    if dtype is bool_:
        product = with_scalar(_MULTIPLY, x, bool(multiplier), False, None, stream)
        return with_scalar(_ADD, product, bool(addend), False, out, stream)
    return _affine(_AFFINE, converted(x, dtype, stream=stream), *factors, out, stream)


def _asked_for_affine(x: TensorData) -> Answer | None:
    dtype, layout, executor = x._dtype, x._layout, x._executor
    key = (_AFFINE, dtype.code, layout.words)
    return executor.answer(key, answers.unary, _AFFINE, dtype, layout, 2)


def _affine(
    op: Op,
    x: Tensor,
    multiplier: float,
    addend: float,
    out: Tensor | None,
    stream: StreamLike | None,
) -> Tensor:
    executor = x._executor
    found = _asked_for_affine(x)
    if found is not None:
        if out is None:
            made: Tensor = launched(found.passing(behind=(multiplier, addend)), stream, x)
            return made
        if is_alike(_AFFINE, out, found.dtype, x):
            found.launch(stream, out._buffer, start_of(x), multiplier, addend)
            return out

    def enqueue(output: DeviceBuffer | None) -> DeviceBuffer:
        return launches.launch_affine(
            x._buffer, x._layout, multiplier, addend, out=output, stream=stream, executor=executor
        )

    return delivered(op, x._layout.shape, x._dtype, out, (x,), stream, enqueue)


def asked_for_power(x: TensorData, exponent: Any = None) -> Answer | None:
    """Ask for the elements of a tensor to a power, which is a number."""
    if type(exponent) not in (int, float) or x._dtype.kind != "float":
        return None
    if exponent == 2 and x._dtype.name in _SQUARE.dtypes:
        return asked_of_one(_SQUARE, x)
    dtype, layout, executor = x._dtype, x._layout, x._executor
    key = (_POWER, dtype.code, layout.words)
    found = executor.answer(key, answers.unary, _POWER, dtype, layout, 1)
    return None if found is None else found.passing(behind=(float(exponent),))


@remembered(asked_for_power)
def power(
    x: Tensor,
    exponent: Any,
    *,
    out: Tensor | None = None,
    stream: StreamLike | None = None,
) -> Tensor:
    """Return the elements to a power, which is a number, in the dtype numpy gives.

    Integers to an integer stay integers and wrap; `ArgumentValueError` for a negative exponent.
    """
    require_tensors("power", x)
    if isinstance(exponent, StridedTensor):
        raise ArgumentTypeError("power: expected a number as exponent, got a DeviceTensor")
    dtype = with_number("power", x._dtype, exponent)
    if dtype is bool_:
        dtype = i64
    x = converted(x, dtype, stream=stream)
    if dtype.kind in ("int", "uint"):
        if exponent < 0:
            raise ArgumentValueError(
                "power: integers to negative integer powers are not allowed. Cast first, for "
                'example x.astype("f64").'
            )
        return _whole_power(x, checked_number("power", dtype, exponent), out, stream)
    if exponent == 2 and dtype.name in _SQUARE.dtypes:
        return unary(_SQUARE, x, None, out, stream)
    return unary(_POWER, x, exponent, out, stream)


def _whole_power(x: Tensor, exponent: int, out: Tensor | None, stream: StreamLike | None) -> Tensor:
    """Multiply squares of squares: for each bit of the exponent a launch or two."""
    if exponent < 2:
        return _affine(_POWER, x, exponent, 1 - exponent, out, stream)
    if exponent == 2:
        return unary(_SQUARE, x, None, out, stream)
    found: Tensor = x
    for bit in bin(exponent)[3:-1]:
        found = unary(_SQUARE, found, None, None, stream)
        if bit == "1":
            found = binary(_MULTIPLY, found, x, None, stream)
    if exponent % 2 == 0:
        return unary(_SQUARE, found, None, out, stream)
    return binary(_MULTIPLY, unary(_SQUARE, found, None, None, stream), x, out, stream)


def asked_to_convert(x: TensorData, dtype: Any = None) -> Answer | None:
    """Ask for the elements of a tensor as another dtype."""
    try:
        target = as_dtype(dtype)
    except TypeError:
        return None
    source, layout, executor = x._dtype, x._layout, x._executor
    if target is source or target is bool_ or source is bool_:
        return None
    key = (_ASTYPE, source.code, target.code, layout.words)
    return executor.answer(key, answers.cast, _ASTYPE, source, target, layout)


def converted(
    x: Tensor, dtype: DTypeLike, *, out: Tensor | None = None, stream: StreamLike | None = None
) -> Tensor:
    """Return the elements as another dtype, or the tensor itself when it has that dtype."""
    if not hasattr(x, "_layout"):
        require_tensors("astype", x)
    try:
        target = as_dtype(dtype)
    except TypeError as error:
        raise ArgumentTypeError(f"astype: {error}") from None
    if target is x._dtype and out is None:
        return x
    if target is bool_ and x._dtype is not bool_:
        return not_equal_to_zero(x, out, stream)
    executor = x._executor
    found = asked_to_convert(x, target) if out is None else None
    if found is not None:
        made: Tensor = launched(found, stream, x)
        return made

    def enqueue(output: DeviceBuffer | None) -> DeviceBuffer:
        stored = storage_of(target)
        if stored is x._buffer.dtype and stored.name in _COPY.dtypes:
            return launches.launch_unary(
                _COPY, x._buffer, x._layout, out=output, stream=stream, executor=executor
            )
        return launches.launch_cast(
            x._buffer, x._layout, stored, out=output, stream=stream, executor=executor
        )

    return delivered(_ASTYPE, x._layout.shape, target, out, (x,), stream, enqueue)


def not_equal_to_zero(x: Tensor, out: Tensor | None, stream: StreamLike | None) -> Tensor:
    """Return, as bool, where the elements are not 0; NaN is not."""
    if x._dtype.name not in _NOT_EQUAL.dtypes:
        # A wider type of the same kind has no other zeros.
        x = converted(x, i64, stream=stream)
    return with_scalar(_NOT_EQUAL, x, 0, False, out, stream)


def _asked_for_astype(x: TensorData, dtype: Any = None, copy: Any = True) -> Answer | None:
    return asked_to_convert(x, dtype)


@remembered(_asked_for_astype)
def astype(
    x: Tensor,
    dtype: DTypeLike,
    copy: bool = True,
    *,
    out: Tensor | None = None,
    stream: StreamLike | None = None,
) -> Tensor:
    """Return a new tensor of the elements as another dtype.

    Without `copy` a tensor that has the dtype already is returned itself. Floats are truncated to
    integers; a value out of range becomes the nearest in it, NaN becomes 0. As bool, what is not 0
    is True.
    """
    made = converted(x, dtype, out=out, stream=stream)
    if made is not x or not copy or out is not None:
        return made
    if x._dtype.name in _COPY.dtypes or x._dtype is bool_:
        return x.copy(stream=stream)
    buffer = launches.launch_cast(
        x._buffer, x._layout, x._dtype, stream=stream, executor=x._executor
    )
    return x._made(buffer, Layout.contiguous(x._layout.shape), x._dtype)


__all__ = [
    "affine",
    "asked_of_one",
    "asked_of_pair",
    "asked_to_convert",
    "asked_with_number",
    "astype",
    "binary",
    "converted",
    "not_equal_to_zero",
    "power",
    "unary",
    "with_scalar",
    "wrapped",
]
