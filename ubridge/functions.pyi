"""Written by `python -m build_support.operations_table`."""

from typing import Any, Protocol

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
    ) -> DeviceTensor: ...

class BinaryFunction(Protocol):
    """An operation on two tensors, or a tensor and a number."""

    def __call__(
        self,
        x: Any,
        y: Any,
        *,
        out: DeviceTensor | None = None,
        stream: StreamLike | None = None,
    ) -> DeviceTensor: ...

__all__ = [
    "abs",
    "add",
    "atan2",
    "ceil",
    "copy",
    "cos",
    "divide",
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

abs: UnaryFunction
add: BinaryFunction
atan2: BinaryFunction
ceil: UnaryFunction
copy: UnaryFunction
cos: UnaryFunction
divide: BinaryFunction
equal: BinaryFunction
erf: UnaryFunction
erfinv: UnaryFunction
exp: UnaryFunction
expm1: UnaryFunction
floor: UnaryFunction
gelu: UnaryFunction
gelu_erf: UnaryFunction
greater: BinaryFunction
greater_equal: BinaryFunction
less: BinaryFunction
less_equal: BinaryFunction
log: UnaryFunction
log1p: UnaryFunction
maximum: BinaryFunction
minimum: BinaryFunction
mod: BinaryFunction
multiply: BinaryFunction
negative: UnaryFunction
normcdf: UnaryFunction
not_equal: BinaryFunction
reciprocal: UnaryFunction
relu: UnaryFunction
round: UnaryFunction
rsqrt: UnaryFunction
sigmoid: UnaryFunction
sign: UnaryFunction
silu: UnaryFunction
sin: UnaryFunction
sqrt: UnaryFunction
square: UnaryFunction
subtract: BinaryFunction
tanh: UnaryFunction
