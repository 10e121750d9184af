"""The operations of the table as functions on tensors, under the table's names.

All of them are `ubridge`'s: it takes its names of them from `__all__` here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from ubridge.core.op_table import OPS
from ubridge.core.operand_checks import require_number
from ubridge.ops import elementwise
from ubridge.ops.engine import Value, remembered, run
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


def _unary(name: str) -> UnaryFunction:
    op = OPS[name]

    def function(
        x: DeviceTensor,
        *,
        out: DeviceTensor | None = None,
        stream: StreamLike | None = None,
    ) -> DeviceTensor:
        return elementwise.unary(op, x, None, out, stream)

    _present(function, name, op.summary)
    return remembered(partial(elementwise.plan_unary, op), writes_over=True)(function)


def _binary(name: str) -> BinaryFunction:
    op = OPS[name]

    def function(
        x: Any,
        y: Any,
        *,
        out: DeviceTensor | None = None,
        stream: StreamLike | None = None,
    ) -> DeviceTensor:
        return elementwise.binary(op, x, y, out, stream)

    _present(function, name, op.summary)
    plan, answer = partial(elementwise.plan_binary, op), elementwise.answering_pair(op)
    return remembered(plan, writes_over=True, asks=answer)(function)


def _present(function: Callable[..., Any], name: str, summary: str) -> None:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Return {summary}, element by element, in `out` if given."


abs = _unary("abs")  # numpy's name
ceil = _unary("ceil")
copy = _unary("copy")
cos = _unary("cos")
erf = _unary("erf")
erfinv = _unary("erfinv")
exp = _unary("exp")
expm1 = _unary("expm1")
floor = _unary("floor")
gelu = _unary("gelu")
gelu_erf = _unary("gelu_erf")
log = _unary("log")
log1p = _unary("log1p")
negative = _unary("negative")
normcdf = _unary("normcdf")
reciprocal = _unary("reciprocal")
relu = _unary("relu")
round = _unary("round")  # numpy's name
rsqrt = _unary("rsqrt")
sigmoid = _unary("sigmoid")
sign = _unary("sign")
silu = _unary("silu")
sin = _unary("sin")
sqrt = _unary("sqrt")
square = _unary("square")
tanh = _unary("tanh")

add = _binary("add")
atan2 = _binary("atan2")
divide = _binary("divide")
maximum = _binary("maximum")
minimum = _binary("minimum")
mod = _binary("mod")
multiply = _binary("multiply")
subtract = _binary("subtract")
equal = _binary("equal")
greater = _binary("greater")
greater_equal = _binary("greater_equal")
less = _binary("less")
less_equal = _binary("less_equal")
not_equal = _binary("not_equal")


def _plan_elu(x: Value, alpha: float = 1.0) -> Value:
    require_number("elu, alpha", alpha)
    return elementwise.plan_unary(OPS["elu"], x, alpha)


@remembered(_plan_elu)
def elu(
    x: DeviceTensor,
    alpha: float = 1.0,
    *,
    out: DeviceTensor | None = None,
    stream: StreamLike | None = None,
) -> DeviceTensor:
    """Return x above 0 and `alpha * (e to the x - 1)` below, element by element."""
    made: DeviceTensor = run(_plan_elu(x, alpha), out, stream)
    return made


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
