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
    "acos",
    "acosh",
    "add",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "bitwise_and",
    "bitwise_left_shift",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "ceil",
    "copy",
    "copysign",
    "cos",
    "cosh",
    "divide",
    "equal",
    "erf",
    "erfinv",
    "exp",
    "expm1",
    "floor",
    "floor_divide",
    "gelu",
    "gelu_erf",
    "greater",
    "greater_equal",
    "hypot",
    "less",
    "less_equal",
    "log",
    "log10",
    "log1p",
    "log2",
    "logaddexp",
    "maximum",
    "minimum",
    "mod",
    "multiply",
    "negative",
    "normcdf",
    "not_equal",
    "pow",
    "reciprocal",
    "relu",
    "remainder",
    "round",
    "rsqrt",
    "sigmoid",
    "sign",
    "silu",
    "sin",
    "sinh",
    "sqrt",
    "square",
    "subtract",
    "tan",
    "tanh",
    "trunc",
]

abs: UnaryFunction
acos: UnaryFunction
acosh: UnaryFunction
add: BinaryFunction
asin: UnaryFunction
asinh: UnaryFunction
atan: UnaryFunction
atan2: BinaryFunction
atanh: UnaryFunction
bitwise_and: BinaryFunction
bitwise_left_shift: BinaryFunction
bitwise_or: BinaryFunction
bitwise_right_shift: BinaryFunction
bitwise_xor: BinaryFunction
ceil: UnaryFunction
copy: UnaryFunction
copysign: BinaryFunction
cos: UnaryFunction
cosh: UnaryFunction
divide: BinaryFunction
equal: BinaryFunction
erf: UnaryFunction
erfinv: UnaryFunction
exp: UnaryFunction
expm1: UnaryFunction
floor: UnaryFunction
floor_divide: BinaryFunction
gelu: UnaryFunction
gelu_erf: UnaryFunction
greater: BinaryFunction
greater_equal: BinaryFunction
hypot: BinaryFunction
less: BinaryFunction
less_equal: BinaryFunction
log: UnaryFunction
log10: UnaryFunction
log1p: UnaryFunction
log2: UnaryFunction
logaddexp: BinaryFunction
maximum: BinaryFunction
minimum: BinaryFunction
mod: BinaryFunction
multiply: BinaryFunction
negative: UnaryFunction
normcdf: UnaryFunction
not_equal: BinaryFunction
pow: BinaryFunction
reciprocal: UnaryFunction
relu: UnaryFunction
remainder: BinaryFunction
round: UnaryFunction
rsqrt: UnaryFunction
sigmoid: UnaryFunction
sign: UnaryFunction
silu: UnaryFunction
sin: UnaryFunction
sinh: UnaryFunction
sqrt: UnaryFunction
square: UnaryFunction
subtract: BinaryFunction
tan: UnaryFunction
tanh: UnaryFunction
trunc: UnaryFunction
