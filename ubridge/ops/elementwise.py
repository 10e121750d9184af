"""Operations element by element on tensors: dtypes are promoted and shapes broadcast.

Every function takes `out=` and `stream=`. `out` is a tensor of the result's shape and dtype; the
result is written into it instead of a new tensor, and it is returned. `stream` is by default the
device's default stream. All functions enqueue and return at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from math import copysign
from typing import Any

from ubridge.core.fits import same
from ubridge.core.operand_checks import element_of, one_shape, require_number
from ubridge.core.operation import Op
from ubridge.core.promotion import (
    checked_number,
    element_bytes,
    is_exact_reciprocal,
    promoted,
    storage_of,
    with_number,
)
from ubridge.definitions.elementwise import (
    ADD,
    AFFINE,
    ASTYPE,
    BITWISE_AND,
    BITWISE_LEFT_SHIFT,
    BITWISE_OR,
    BITWISE_RIGHT_SHIFT,
    BITWISE_XOR,
    COMPARISON,
    COPY,
    DIVIDE,
    ELU,
    FLOOR_DIVIDE,
    MAXIMUM,
    MINIMUM,
    MOD,
    MULTIPLY,
    NEGATIVE,
    NOT_EQUAL,
    POW,
    POWER,
    RECIPROCAL,
    REMAINDER,
    SIGN,
    SQUARE,
    SUBTRACT,
)
from ubridge.device.executor import Answer
from ubridge.device.tensor_data import TensorData
from ubridge.ops.engine import MOVED_AS, Value, constant, of_each, plan_copy, run
from ubridge.ops.remembering import answering, remembered
from ubridge.ops.results import require_tensors
from ubridge.ops.strided import Tensor
from uhal import DType, as_dtype
from uhal.dtypes import DTypeLike, bool_, f64, i8, i64, u64
from uhal.errors import ArgumentTypeError, ArgumentValueError, InvalidHandleError
from uhal.interop import StreamLike

_REMEMBERED = 4096
"""Capacity of a cache of results; programs repeat a few layouts."""
_ON_BOOLEANS = {
    ADD: MAXIMUM,
    MULTIPLY: MINIMUM,
    BITWISE_AND: MINIMUM,
    BITWISE_OR: MAXIMUM,
    BITWISE_XOR: NOT_EQUAL,
}
"""Operations for numpy's sums (or) and products (and) of booleans."""


_OF_WHOLE_NUMBERS = (
    MOD,
    REMAINDER,
    FLOOR_DIVIDE,
    POW,
    BITWISE_LEFT_SHIFT,
    BITWISE_RIGHT_SHIFT,
)
"""Operations that numpy computes in i8 for booleans."""
_OF_NUMBERS = (NEGATIVE, SIGN)
"""Operations on one tensor that numpy refuses for booleans."""


def plan_unary(op: Op, x: Value, parameter: float | None = None) -> Value:
    """Plan an operation on every element, in the tensor's dtype.

    Booleans and integers become f64 where the operation has no kernel for them.
    """
    if not hasattr(x, "_layout"):
        require_tensors(op.name, x)
    if _becomes_f64(op, x._dtype):
        if x._dtype is bool_ and op in _OF_NUMBERS:
            raise ArgumentTypeError(
                f"{op.name}: expected numbers, got booleans. Write ~x for their opposites, or "
                'x.astype("i32") for numbers.'
            )
        x = plan_conversion(x, f64)
    elif x._dtype is u64:
        return _plan_unary_of_u64(op, x)
    if parameter is None:
        return of_each(op, (x,), x._dtype)
    return of_each(op, (x,), x._dtype, (checked_number(op.name, x._dtype, parameter),))


def _plan_unary_of_u64(op: Op, x: Value) -> Value:
    """Plan an operation on u64; i64 kernels compute only where bits agree."""
    if op in (NEGATIVE, SQUARE):
        return of_each(op, (x,), u64)
    return plan_conversion(plan_not_equal_to_zero(x), u64) if op is SIGN else plan_copy(x)


def plan_in_order(x: Value) -> Value:
    """Plan u64 elements as i64 in the same order; other elements stay."""
    if x._dtype is not u64:
        return x
    return plan_conversion(plan_binary(BITWISE_XOR, x, 1 << 63), i64)


def unary(
    op: Op,
    x: Tensor,
    parameter: float | None = None,
    out: Tensor | None = None,
    stream: StreamLike | None = None,
) -> Tensor:
    """Apply an operation to every element, in the tensor's dtype."""
    return run(plan_unary(op, x, parameter), out, stream)


def _becomes_f64(op: Op, dtype: DType) -> bool:
    """Return whether an operation on one tensor has no kernel for the dtype and uses f64."""
    if dtype.kind == "float" or dtype.name in op.dtypes:
        return False
    return op is not COPY and (dtype is bool_ or not op.has_integers)


def plan_binary(op: Op, x: Any, y: Any) -> Value:
    """Plan an operation on pairs of elements of two tensors, or of a tensor and a number."""
    if not hasattr(y, "_layout"):
        return _plan_with_number(op, x, y, False)
    if not hasattr(x, "_layout"):
        return _plan_with_number(op, y, x, True)
    dtype = x._dtype
    if dtype is not y._dtype:
        dtype = promoted(op.name, dtype, y._dtype)
        x, y = plan_conversion(x, dtype), plan_conversion(y, dtype)
    if y._executor is not x._executor:
        raise InvalidHandleError(
            f"{op.name}: expected operands on one device, got {x.device!r} and {y.device!r}"
        )
    result = dtype
    if op.family is COMPARISON:
        result = bool_
    elif _is_f64(op, dtype):
        x, y, result = plan_conversion(x, f64), plan_conversion(y, f64), f64
    elif dtype is bool_:
        if op in _OF_WHOLE_NUMBERS:
            x, y, result = plan_conversion(x, i8), plan_conversion(y, i8), i8
        op = _boolean(op)
    return of_each(op, broadcast(op.name, x, y), result)


def broadcast(name: str, *operands: Value) -> Sequence[Value]:
    """Return the operands as views of one shape."""
    shapes = [one._layout.shape for one in operands]
    if same(*shapes):
        return operands
    shape = one_shape(name, *shapes)
    return [one._viewed(one._layout.broadcast_to(shape)) for one in operands]


def binary(
    op: Op,
    x: Any,
    y: Any,
    out: Tensor | None = None,
    stream: StreamLike | None = None,
) -> Tensor:
    """Apply an operation to pairs of elements of two tensors, or of a tensor and a number."""
    return run(plan_binary(op, x, y), out, stream)


def _is_f64(op: Op, dtype: DType) -> bool:
    """Return whether numpy computes in f64: for quotients and float functions of integers.

    The kernels' quotient of integers would be an integer.
    """
    return dtype.kind != "float" and (op is DIVIDE or op.is_of_floats)


def _boolean(op: Op) -> Op:
    """The operation on 0 and 1 that equals numpy's on booleans."""
    if op is SUBTRACT:
        raise ArgumentTypeError(
            "numpy boolean subtract, the `-` operator, is not supported, use the bitwise_xor, the "
            "`^` operator, instead"
        )
    return _ON_BOOLEANS.get(op, op)


def _plan_with_number(op: Op, x: Value, number: Any, number_first: bool) -> Value:
    """Plan a binary operation on a tensor and a number, or if `number_first` in reverse order."""
    if not hasattr(x, "_layout"):
        require_tensors(op.name, x)
    dtype, factors, element = _in_numbers(op, x._dtype, number, number_first)
    x = plan_conversion(x, dtype)
    if factors is not None:
        return of_each(AFFINE, (x,), dtype, factors)
    other = constant(x, dtype, element, x._layout.shape)
    return plan_binary(op, other, x) if number_first else plan_binary(op, x, other)


def answering_pair(op: Op, number_first: bool = False) -> Callable[[Any, Any], Answer | None]:
    """Return a function that gives the launch for two tensors, or a tensor and a number.

    Numbers change from call to call, so a plan serves all numbers and takes the number as an
    argument.
    """

    def plan(x: Value, y: Any) -> Value:
        return plan_binary(op, y, x) if number_first else plan_binary(op, x, y)

    def with_element(x: Value) -> Value:
        element = element_bytes(x._dtype, 0)
        return plan(x, constant(x, x._dtype, element, x._layout.shape))

    planned, of_elements = answering(plan), answering(with_element)

    def answer(x: Any, y: Any) -> Answer | None:
        if not isinstance(x, TensorData):
            return None
        dtype = x._dtype
        is_carried = dtype.name in MOVED_AS and dtype.name not in op.dtypes
        if type(y) not in (int, float) or dtype is bool_ or is_carried:
            return planned(x, y)
        common, factors, element = _in_numbers(op, dtype, y, number_first)
        if common is not dtype:
            return planned(x, y)
        if factors is not None:
            found = _of_factors(x)
            return None if found is None else found.passing(behind=factors)
        found = of_elements(x)
        if found is None:
            return None
        passed = (x._executor.constants.get((dtype.name, element)),)
        return found.passing(ahead=passed) if number_first else found.passing(behind=passed)

    return answer


_of_factors = answering(lambda x: of_each(AFFINE, (x,), x._dtype, (1, 0)))


def unary_function(op: Op) -> Callable[..., Any]:
    """Return an operation's function on a tensor, which the lane can launch again."""

    def function(x: Any, *, out: Any = None, stream: StreamLike | None = None) -> Any:
        return unary(op, x, None, out, stream)

    return remembered(partial(plan_unary, op), writes_over=True)(_presented(function, op))


def binary_function(op: Op, number_first: bool = False) -> Callable[..., Any]:
    """Return an operation's function on two tensors, or on a tensor and a number.

    With `number_first` the second argument is the operation's first.
    """

    def plan(x: Any, y: Any) -> Value:
        return plan_binary(op, y, x) if number_first else plan_binary(op, x, y)

    def function(x: Any, y: Any, *, out: Any = None, stream: StreamLike | None = None) -> Any:
        return run(plan(x, y), out, stream)

    answer = answering_pair(op, number_first)
    return remembered(plan, writes_over=True, asks=answer)(_presented(function, op))


def _presented(function: Callable[..., Any], op: Op) -> Callable[..., Any]:
    """The function with the operation's name and docstring."""
    function.__name__ = function.__qualname__ = op.name
    # The package exports it; `pickle` finds it by this module name.
    function.__module__ = __name__.partition(".")[0]
    function.__doc__ = f"Return {op.summary}.\n\nIt works element by element, in `out` if given."
    return function


def _in_numbers(
    op: Op, dtype: DType, number: Any, number_first: bool
) -> tuple[DType, tuple[float, float] | None, bytes]:
    # 0 == 0.0 == -0.0, but their results differ, so the cache's key includes type and sign.
    if type(number) is float:
        return _scalar(op, dtype.name, number, copysign(1, number), number_first)
    if type(number) is int:
        return _scalar(op, dtype.name, number, 0, number_first)
    return _scalar.__wrapped__(op, dtype.name, number, 0, number_first)


@lru_cache(maxsize=_REMEMBERED)
def _scalar(
    op: Op, name: str, number: Any, sign: float, number_first: bool
) -> tuple[DType, tuple[float, float] | None, bytes]:
    """Return the dtype to compute in, affine factors if any, and the number as an element.

    `sign` is only part of the cache's key. The sign separates 0.0 from -0.0, and floats from ints,
    whose `sign` is 0.
    """
    dtype = with_number(op.name, as_dtype(name), number)
    if _is_f64(op, dtype):
        dtype = f64
    value = checked_number(op.name, dtype, number)
    factors = None if dtype is bool_ else _as_affine(op, dtype, value, number_first)
    return dtype, factors, b"" if factors else element_bytes(dtype, value)


def _as_affine(op: Op, dtype: DType, value: Any, number_first: bool) -> tuple[float, float] | None:
    """Return (multiplier, addend) of an affine operation with the very same result, if any."""
    if dtype.name not in AFFINE.dtypes:
        return None
    # x * value + -0.0 keeps the sign of a product that is 0.
    nothing = -0.0 if dtype.kind == "float" else 0
    if op is MULTIPLY:
        return value, nothing
    if op is ADD:
        return 1, value
    if op is SUBTRACT:
        return (wrapped(dtype, -1), value) if number_first else (1, wrapped(dtype, -value))
    if op is DIVIDE and not number_first and is_exact_reciprocal(value):
        return 1 / value, nothing
    return None


def wrapped(dtype: DType, value: Any) -> Any:
    """Return the value of an integer type that has the same low bits."""
    if dtype.kind == "float":
        return value
    modulus = 1 << 8 * dtype.itemsize
    rest = value % modulus
    return rest - modulus if dtype.kind == "int" and rest >= modulus // 2 else rest


def plan_affine(x: Value, multiplier: float, addend: float) -> Value:
    """Plan `x * multiplier + addend`."""
    require_tensors(AFFINE.name, x)
    dtype = with_number(AFFINE.name, with_number(AFFINE.name, x._dtype, multiplier), addend)
    factors = (
        checked_number(AFFINE.name, dtype, multiplier),
        checked_number(AFFINE.name, dtype, addend),
    )
    if dtype is bool_:
        return plan_binary(ADD, plan_binary(MULTIPLY, x, bool(multiplier)), bool(addend))
    return of_each(AFFINE, (plan_conversion(x, dtype),), dtype, factors)


@remembered(plan_affine)
def affine(
    x: Tensor,
    multiplier: float,
    addend: float,
    *,
    out: Tensor | None = None,
    stream: StreamLike | None = None,
) -> Tensor:
    """Return `x * multiplier + addend`.

    The result is rounded once where the device has fused multiply-add.
    """
    return run(plan_affine(x, multiplier, addend), out, stream)


def plan_power(x: Value, exponent: Any) -> Value:
    """Plan the elements to a power; integers to an integer wrap."""
    if hasattr(exponent, "_layout"):
        return plan_binary(POW, x, exponent)
    require_tensors(POWER.name, x)
    dtype = with_number(POWER.name, x._dtype, exponent)
    if dtype is bool_:
        dtype = i64
    x = plan_conversion(x, dtype)
    if dtype.kind in ("int", "uint"):
        if exponent < 0:
            raise ArgumentValueError(
                "power: integers to negative integer powers are not allowed. Cast first, for "
                'example x.astype("f64").'
            )
        return _plan_whole_power(x, checked_number(POWER.name, dtype, exponent))
    if exponent == 1:
        return plan_copy(x)
    for number, op in ((2, SQUARE), (-1, RECIPROCAL)):
        if exponent == number and dtype.name in op.dtypes:
            return plan_unary(op, x)
    return plan_unary(POWER, x, exponent)


def _plan_whole_power(x: Value, exponent: int) -> Value:
    """Plan squares of squares: for each bit of the exponent a product or two."""
    if exponent < 2:
        return of_each(AFFINE, (x,), x._dtype, (exponent, 1 - exponent))
    found = x
    for bit in bin(exponent)[3:]:
        found = plan_unary(SQUARE, found)
        if bit == "1":
            found = plan_binary(MULTIPLY, found, x)
    return found


@remembered(plan_power)
def power(
    x: Any,
    exponent: Any,
    *,
    out: Any = None,
    stream: StreamLike | None = None,
) -> Any:
    """Return x to the power of the exponent.

    The exponent is a number or a tensor. The dtype is numpy's. Integers to an integer stay
    integers and wrap. A negative number as exponent of integers raises `ArgumentValueError`. A
    tensor with negative elements cuts their powers towards 0.
    """
    return run(plan_power(x, exponent), out, stream)


def _plan_elu(x: Value, alpha: float = 1.0) -> Value:
    require_number("elu, alpha", alpha)
    return plan_unary(ELU, x, alpha)


@remembered(_plan_elu)
def elu(
    x: Tensor,
    alpha: float = 1.0,
    *,
    out: Tensor | None = None,
    stream: StreamLike | None = None,
) -> Tensor:
    """Return x if above 0, else `alpha * (exp(x) - 1)`.

    It works element by element.
    """
    return run(_plan_elu(x, alpha), out, stream)


def plan_conversion(x: Value, dtype: DTypeLike) -> Value:
    """Plan the elements as another dtype; the tensor itself when it has that dtype."""
    if not hasattr(x, "_layout"):
        require_tensors(ASTYPE.name, x)
    target = dtype if type(dtype) is DType else element_of(ASTYPE.called, dtype)
    if target is x._dtype:
        return x
    if target is bool_:
        return plan_not_equal_to_zero(x)
    is_moved = storage_of(target) is storage_of(x._dtype) and target.name in COPY.dtypes
    return of_each(COPY if is_moved else ASTYPE, (x,), target)


def plan_not_equal_to_zero(x: Value) -> Value:
    """Plan a bool per element: True unless it equals 0, also for NaN."""
    return plan_binary(NOT_EQUAL, x, 0)


def converted(
    x: Tensor, dtype: DTypeLike, *, out: Tensor | None = None, stream: StreamLike | None = None
) -> Tensor:
    """Return the elements as another dtype, or the tensor itself when it has that dtype."""
    return run(plan_conversion(x, dtype), out, stream)


def _plan_astype(x: Value, dtype: DTypeLike, copy: bool = True) -> Value:
    planned = plan_conversion(x, dtype)
    return plan_copy(x) if planned is x and copy else planned


@remembered(_plan_astype)
def astype(
    x: Tensor,
    dtype: DTypeLike,
    copy: bool = True,
    *,
    out: Tensor | None = None,
    stream: StreamLike | None = None,
) -> Tensor:
    """Return a new tensor of the elements as another dtype.

    Without `copy`, a tensor that already has the dtype is returned, not copied. Floats are
    truncated to integers; a value out of range becomes the nearest value in range, NaN becomes 0.
    For bool, every value but 0 becomes True.
    """
    return run(_plan_astype(x, dtype, copy), out, stream)


__all__ = [
    "affine",
    "astype",
    "elu",
    "power",
]
