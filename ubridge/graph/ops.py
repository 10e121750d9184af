"""The nodes of a graph, with the names of the Rust original: `TensorOp` and `OpParams`.

Every operation of the table is a `TensorOp`. `compute` calls the function for tensors; the
operation's definition names it and its arguments. The graph relies on the function's own checks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from inspect import Parameter, signature
from types import MappingProxyType
from typing import Any

from ubridge import functions, indexed_products, quantized
from ubridge.core.layout import Shape
from ubridge.core.operation import Op
from ubridge.definitions.attention import ATTENTION
from ubridge.definitions.elementwise import MULTIPLY, SILU_MUL
from ubridge.definitions.products import MATMUL, QUANTIZED_MATVEC, QUANTIZED_PRODUCT
from ubridge.definitions.rows import SOFTMAX
from ubridge.definitions.table import OPS
from ubridge.ops import (
    caches,
    choices,
    elementwise,
    fused,
    logic,
    products,
    reductions,
    rows,
    selection,
    windows,
)
from ubridge.quantized import QuantizedWeight
from ubridge.tensor import DeviceTensor
from uhal.errors import ArgumentTypeError, ArgumentValueError


class TensorOp(Enum):
    """The kind of a node: an operation of the table.

    `TensorOp("exp")` is `TensorOp.Exp`.

    `SoftMax` of one input is a softmax of rows; of query, key, value and perhaps a mask it is the
    whole attention. `Mul` with `OpParams(gate_up=True)` is silu of the first input times the
    second.
    """

    _ignore_ = "one"

    MulMat = MATMUL.name
    SoftMax = SOFTMAX.name
    Mul = MULTIPLY.name
    for one in OPS:
        if one not in (MulMat, SoftMax, Mul):
            vars()["".join(map(str.capitalize, one.split("_")))] = one


@dataclass(frozen=True)
class OpParams:
    """A node's parameters other than inputs.

    Tensors here are constants of the graph.
    """

    weight: DeviceTensor | QuantizedWeight | None = None
    """The last operand: a product's matrix (dense or quantized), a second summand, or ids."""
    gamma: DeviceTensor | None = None
    """The weight of a norm."""
    beta: DeviceTensor | None = None
    """The bias of a layer norm."""
    scalar: float | None = None
    """The operation's number: a norm's epsilon, attention's scale, a factor or an exponent."""
    integer: int | None = None
    """The axis of an operation along an axis."""
    gate_up: bool = False
    """For `Mul`: `silu` is applied to the first input."""
    options: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """Other keywords of the operation's function: `causal`, `activations`, `stride`, `dtype`, …"""


@dataclass(frozen=True, slots=True)
class Node:
    """A leaf or an operation of a graph."""

    index: int
    """The number by which other nodes refer to this node."""
    op: Op | None
    """The operation; `None` for a leaf."""
    shape: Shape
    inputs: tuple[int, ...]
    params: OpParams
    name: str | None

    def __str__(self) -> str:
        return f"node {self.index} ({self.kind}{f' {self.name!r}' if self.name else ''})"

    @property
    def kind(self) -> str:
        """The operation's name in texts, such as `MatMul` or `AllReduce`, or `leaf`."""
        if self.op is None:
            return "leaf"
        if self.op.family.is_recorded:
            return self.op.name.title().replace("_", "")
        return TensorOp(self.op.name).name


def table_op(kind: TensorOp | Op | str, inputs: int, params: OpParams) -> Op:
    """Return the table's operation of a node; `ArgumentValueError` when there is none."""
    if isinstance(kind, Op):
        return kind
    name = kind.value if isinstance(kind, TensorOp) else kind
    found = OPS.get(name)
    if found is None:
        raise ArgumentValueError(f"no operation {name!r}; there are {', '.join(OPS)}")
    if found is SOFTMAX and inputs >= 3:
        return ATTENTION
    if found is MULTIPLY and params.gate_up:
        return SILU_MUL
    if found is MATMUL and isinstance(params.weight, QuantizedWeight):
        rounded = QUANTIZED_PRODUCT.settings.items() <= params.options.items()
        return QUANTIZED_PRODUCT if rounded else QUANTIZED_MATVEC
    return found


_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    name: getattr(module, name)
    for module in (
        functions,
        elementwise,
        choices,
        fused,
        logic,
        reductions,
        rows,
        selection,
        windows,
        products,
        caches,
        quantized,
        indexed_products,
    )
    for name in module.__all__
}
"""The functions on tensors, by name."""


def compute(op: Op, given: Sequence[Any], params: OpParams) -> DeviceTensor:
    """Call the operation's function on operands and a node's parameters; return its result."""
    function = _FUNCTIONS.get(op.called) or getattr(DeviceTensor, op.called, None)
    if function is None or op.family.rule is None:
        raise ArgumentTypeError(
            f"{op.name}: tensors have no such operation; it is one of kernels for GCUs only"
        )
    result: DeviceTensor | None = function(**_arguments(op, function, given, params))
    return given[0] if result is None else result


def _arguments(
    op: Op, function: Callable[..., Any], given: Sequence[Any], params: OpParams
) -> dict[str, Any]:
    """The function's arguments by name: operands, numbers and settings, as the definition says."""
    operands, numbers = op.family.operands.split(), op.family.numbers.split()
    accepted = signature(function).parameters
    listed = [name.strip("[]") for name in (*operands, *numbers)]
    names = [name if name in accepted else own for name, own in zip(listed, accepted, strict=False)]
    number = names[len(operands)] if numbers else None
    if params.scalar is not None and number is None:
        given = [*given, params.scalar]
    counts = [one + op.family.is_in_place for one in op.family.tensors]
    if len(given) not in counts:
        expected = " or ".join(map(str, counts))
        raise ArgumentValueError(
            f"{op.name}: expected {expected} operands ({', '.join(operands)}), got {len(given)}"
        )
    arguments = {**op.settings, **params.options, **dict(zip(names, given, strict=False))}
    if params.scalar is not None and number is not None:
        arguments[number] = params.scalar
    if params.integer is not None:
        arguments["axis"] = params.integer
    for name, parameter in accepted.items():
        if parameter.default is Parameter.empty and name not in arguments:
            how = {number: "scalar", "axis": "integer"}.get(name, "options")
            raise ArgumentValueError(
                f"{op.name}: expected OpParams({how}=…) for {name!r}, got none"
            )
    return arguments
