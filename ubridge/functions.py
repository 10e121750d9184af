"""The operations of the table as functions on tensors, under the table's names.

`ubridge` exports every name in `__all__` here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from ubridge.core.operand_checks import require_number
from ubridge.core.operation import Op
from ubridge.definitions import elementwise as defined
from ubridge.ops import elementwise
from ubridge.ops.engine import Value, run
from ubridge.ops.remembering import remembered
from ubridge.tensor import DeviceTensor
from uhal.interop import StreamLike


class UnaryFunction(Protocol):
    """An operation on one tensor."""

    def __call__(
        self,
        x: DeviceTensor,
        *,
        out: DeviceTensor | None = None,
        stream: StreamLike | None = None,
    ) -> DeviceTensor:
        """Compute it for every element."""


class BinaryFunction(Protocol):
    """An operation on two tensors, or a tensor and a number."""

    def __call__(
        self,
        x: Any,
        y: Any,
        *,
        out: DeviceTensor | None = None,
        stream: StreamLike | None = None,
    ) -> DeviceTensor:
        """Compute it for every pair of elements."""


_unary: Callable[[Op], UnaryFunction] = elementwise.unary_function
_binary: Callable[[Op], BinaryFunction] = elementwise.binary_function

abs = _unary(defined.ABS)  # numpy's name
ceil = _unary(defined.CEIL)
copy = _unary(defined.COPY)
cos = _unary(defined.COS)
erf = _unary(defined.ERF)
erfinv = _unary(defined.ERFINV)
exp = _unary(defined.EXP)
expm1 = _unary(defined.EXPM1)
floor = _unary(defined.FLOOR)
gelu = _unary(defined.GELU)
gelu_erf = _unary(defined.GELU_ERF)
log = _unary(defined.LOG)
log1p = _unary(defined.LOG1P)
negative = _unary(defined.NEGATIVE)
normcdf = _unary(defined.NORMCDF)
reciprocal = _unary(defined.RECIPROCAL)
relu = _unary(defined.RELU)
round = _unary(defined.ROUND)  # numpy's name
rsqrt = _unary(defined.RSQRT)
sigmoid = _unary(defined.SIGMOID)
sign = _unary(defined.SIGN)
silu = _unary(defined.SILU)
sin = _unary(defined.SIN)
sqrt = _unary(defined.SQRT)
square = _unary(defined.SQUARE)
tanh = _unary(defined.TANH)

add = _binary(defined.ADD)
atan2 = _binary(defined.ATAN2)
divide = _binary(defined.DIVIDE)
maximum = _binary(defined.MAXIMUM)
minimum = _binary(defined.MINIMUM)
mod = _binary(defined.MOD)
multiply = _binary(defined.MULTIPLY)
subtract = _binary(defined.SUBTRACT)
equal = _binary(defined.EQUAL)
greater = _binary(defined.GREATER)
greater_equal = _binary(defined.GREATER_EQUAL)
less = _binary(defined.LESS)
less_equal = _binary(defined.LESS_EQUAL)
not_equal = _binary(defined.NOT_EQUAL)


def _plan_elu(x: Value, alpha: float = 1.0) -> Value:
    require_number("elu, alpha", alpha)
    return elementwise.plan_unary(defined.ELU, x, alpha)


@remembered(_plan_elu)
def elu(
    x: DeviceTensor,
    alpha: float = 1.0,
    *,
    out: DeviceTensor | None = None,
    stream: StreamLike | None = None,
) -> DeviceTensor:
    """Return x if above 0, else `alpha * (exp(x) - 1)`.

    It works element by element.
    """
    return run(_plan_elu(x, alpha), out, stream)


__all__ = [
    "abs",
    "add",
    "atan2",
    "ceil",
    "copy",
    "cos",
    "divide",
    "elu",
    "equal",
    "erf",
    "erfinv",
    "exp",
    "expm1",
    "floor",
    "gelu",
    "gelu_erf",
    "greater",
    "greater_equal",
    "less",
    "less_equal",
    "log",
    "log1p",
    "maximum",
    "minimum",
    "mod",
    "multiply",
    "negative",
    "normcdf",
    "not_equal",
    "reciprocal",
    "relu",
    "round",
    "rsqrt",
    "sigmoid",
    "sign",
    "silu",
    "sin",
    "sqrt",
    "square",
    "subtract",
    "tanh",
]
