"""The nodes of a graph, with the names of the Rust original: `TensorOp` and `OpParams`.

Every operation of the op table is one; `compute` says how an operation, its inputs and its
parameters become the call of the function that tensors have for it. That function's own checks are
the graph's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Any

from ubridge.core.layout import Shape
from ubridge.core.operation import WORK, Family, Op
from ubridge.definitions import attention as of_attention
from ubridge.definitions import elementwise as elements
from ubridge.definitions import indexing, memory
from ubridge.definitions import products as of_products
from ubridge.definitions import rows as of_rows
from ubridge.definitions import windows as of_windows
from ubridge.definitions.table import OPS
from ubridge.indexed_products import indexed_matmul
from ubridge.ops import choices, elementwise, fused, products, reductions, rows, selection, windows
from ubridge.ops.caches import cached_attention, kv_append, rope_at
from ubridge.quantized import QuantizedWeight, quantize_activations, quantized_matmul
from ubridge.tensor import DeviceTensor
from uhal.errors import ArgumentTypeError, ArgumentValueError


class TensorOp(Enum):
    """The kind of a node. `TensorOp("exp")` is `TensorOp.Exp`: every operation of the table is one.

    `SoftMax` of one input is a softmax of rows; of query, key, value and perhaps a mask it is the
    whole attention. `Mul` with `OpParams(gate_up=True)` is silu of the first input times the
    second.
    """

    _ignore_ = "one"

    MulMat = of_products.MATMUL.name
    SoftMax = of_rows.SOFTMAX.name
    Mul = elements.MULTIPLY.name
    for one in OPS:
        if one not in (MulMat, SoftMax, Mul):
            vars()["".join(map(str.capitalize, one.split("_")))] = one


@dataclass(frozen=True)
class OpParams:
    """A node's parameters besides its inputs. Tensors here are constants of the graph."""

    weight: DeviceTensor | QuantizedWeight | None = None
    """The last operand: the matrix of a product, dense or quantized, the second summand, ids."""
    gamma: DeviceTensor | None = None
    """The weight of a norm."""
    beta: DeviceTensor | None = None
    """The bias of a layer norm."""
    scalar: float | None = None
    """The number of the operation: epsilon of norms, scale of attention, a factor or exponent."""
    integer: int | None = None
    """The axis, of operations along one."""
    gate_up: bool = False
    """For `Mul`: `silu` is applied to the first input."""
    options: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """Other keywords of the operation's function: `causal`, `activations`, `stride`, `dtype`, …"""


@dataclass(frozen=True, slots=True)
class Node:
    """A leaf or an operation of a graph."""

    index: int
    """The number by which other nodes name it."""
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
        """The operation's name in texts: that of its `TensorOp`, `leaf`, or `Work`."""
        if self.op is None:
            return "leaf"
        return "Work" if self.op is WORK else TensorOp(self.op.name).name


def table_op(kind: TensorOp | Op | str, inputs: int, params: OpParams) -> Op:
    """Return the table's operation of a node; `ArgumentValueError` when there is none."""
    if isinstance(kind, Op):
        return kind
    name = kind.value if isinstance(kind, TensorOp) else kind
    found = OPS.get(name)
    if found is None:
        raise ArgumentValueError(f"no operation {name!r}; there are {', '.join(OPS)}")
    if found is of_rows.SOFTMAX and inputs >= 3:
        return of_attention.ATTENTION
    if found is elements.MULTIPLY and params.gate_up:
        return elements.SILU_MUL
    return found


def compute(op: Op, inputs: Sequence[DeviceTensor], params: OpParams) -> DeviceTensor:
    """Call the operation's function on its inputs and parameters, and return its result."""
    operands: _Operands = list(inputs)
    operands += [one for one in (params.weight, params.gamma, params.beta) if one is not None]
    how = _CALLS.get(op) or _CALLS.get(op.family)
    result: DeviceTensor
    if how is not None:
        result = how(op, operands, params)
    elif op.name in rows.__all__:
        result = _rows(op, operands, params)
    else:
        raise ArgumentTypeError(
            f"{op.name}: tensors have no such operation; it is one of kernels for GCUs only"
        )
    return result


_Operands = list[Any]


def _scalar(op: Op, params: OpParams) -> float:
    if params.scalar is None:
        raise ArgumentValueError(f"{op.name}: expected OpParams(scalar=…), got none")
    return params.scalar


def _one(op: Op, operands: _Operands, params: OpParams) -> Any:
    _require_count(op, operands, 1)
    return elementwise.unary(op, operands[0])


def _one_and_scalar(op: Op, operands: _Operands, params: OpParams) -> Any:
    _require_count(op, operands, 1)
    return elementwise.unary(op, operands[0], _scalar(op, params))


def _two(op: Op, operands: _Operands, params: OpParams) -> Any:
    if params.scalar is not None:
        operands = [*operands, params.scalar]
    _require_count(op, operands, 2)
    return elementwise.binary(op, *operands)


def _cast(op: Op, operands: _Operands, params: OpParams) -> Any:
    _require_count(op, operands, 1)
    return elementwise.converted(operands[0], params.options["dtype"])


def _reduce(op: Op, operands: _Operands, params: OpParams) -> Any:
    _require_count(op, operands, 1)
    axis = params.options.get("axis", params.integer)
    return reductions.reduced(op, operands[0], axis, bool(params.options.get("keepdims", False)))


def _rope(op: Op, operands: _Operands, params: OpParams) -> Any:
    _require_count(op, operands, 3)
    turned = {"interleaved": op is of_attention.ROPE_I, "heads_last": op is of_attention.ROPE_THD}
    return rows.rope(*operands, **{**turned, **params.options})


def _rows(op: Op, operands: _Operands, params: OpParams) -> Any:
    _require_count(op, operands, op.family.tensors[0])
    number = {} if params.scalar is None else {"epsilon": params.scalar}
    return getattr(rows, op.name)(*operands, **number, **params.options)


def _windows(op: Op, operands: _Operands, params: OpParams) -> Any:
    return getattr(windows, op.name)(*operands, **params.options)


def _fill(op: Op, operands: _Operands, params: OpParams) -> Any:
    _require_count(op, operands, 1)
    operands[0].fill(_scalar(op, params))
    return operands[0]


def _affine(op: Op, operands: _Operands, params: OpParams) -> Any:
    return elementwise.affine(*operands, **params.options)


def _where(op: Op, operands: _Operands, params: OpParams) -> Any:
    _require_count(op, operands, 3)
    return choices.where(*operands)


def _sort(op: Op, operands: _Operands, params: OpParams) -> Any:
    _require_count(op, operands, 1)
    return rows.argsort(operands[0], descending=op is of_rows.ARGSORT_DESCENDING)


def _matmul(op: Op, operands: _Operands, params: OpParams) -> Any:
    _require_count(op, operands, 2)
    if isinstance(operands[1], QuantizedWeight):
        return quantized_matmul(*operands, **params.options)
    return products.matmul(*operands)


def _product_of_blocks(op: Op, operands: _Operands, params: OpParams) -> Any:
    _require_count(op, operands, 2)
    x, weight = operands
    if not isinstance(weight, QuantizedWeight):
        raise ArgumentTypeError(f"{op.name}: expected a weight of blocks, got {weight!r}")
    activations: Any = "q8" if op is of_products.QUANTIZED_PRODUCT else "f32"
    return quantized_matmul(x, weight, activations=activations)


def _activations(op: Op, operands: _Operands, params: OpParams) -> Any:
    _require_count(op, operands, 1)
    return quantize_activations(operands[0], **params.options)


def _product_at_ids(op: Op, operands: _Operands, params: OpParams) -> Any:
    _require_count(op, operands, 3)
    x, weights, ids = operands
    if not isinstance(weights, QuantizedWeight):
        raise ArgumentTypeError(f"{op.name}: expected weights of blocks, got {weights!r}")
    return indexed_matmul(x, weights, ids)


def _gated(op: Op, operands: _Operands, params: OpParams) -> Any:
    _require_count(op, operands, 2)
    return fused.silu_mul(*operands)


def _masked_fill(op: Op, operands: _Operands, params: OpParams) -> Any:
    _require_count(op, operands, 2)
    x, mask = operands
    return fused.masked_fill(x, mask, _scalar(op, params))


def _append(op: Op, operands: _Operands, params: OpParams) -> Any:
    _require_count(op, operands, 3)
    return kv_append(*operands)


def _rope_at(op: Op, operands: _Operands, params: OpParams) -> Any:
    _require_count(op, operands, 4)
    return rope_at(*operands, **params.options)


def _cached(op: Op, operands: _Operands, params: OpParams) -> Any:
    query, keys, values, position, *biases = operands
    bias = biases[0] if biases else None
    return cached_attention(
        query, keys, values, position, bias=bias, scale=params.scalar, **params.options
    )


def _attention(op: Op, operands: _Operands, params: OpParams) -> Any:
    query, key, value, *masks = operands
    mask = masks[0] if masks else None
    return products.attention(query, key, value, mask=mask, scale=params.scalar, **params.options)


def _along(op: Op, operands: _Operands, params: OpParams) -> Any:
    if params.integer is None:
        raise ArgumentValueError(f"{op.name}: expected the axis as OpParams(integer=…), got none")
    return _ALONG[op](*operands, params.integer)


_ALONG: Mapping[Op, Callable[..., Any]] = {
    indexing.INDEX_SELECT: selection.take,
    indexing.GATHER: selection.gather,
    indexing.SCATTER: selection.scatter,
    indexing.SCATTER_ADD: selection.scatter_add,
    indexing.INDEX_ADD: selection.index_add,
    of_attention.KV_CONCAT: products.kv_concat,
}


def _require_count(op: Op, operands: _Operands, expected: int) -> None:
    if len(operands) != expected:
        raise ArgumentValueError(
            f"{op.name}: expected {expected} operands ({op.family.operands}), got {len(operands)}"
        )


_CALLS: Mapping[Family | Op, Callable[[Op, _Operands, OpParams], Any]] = {
    elements.UNARY: _one,
    elements.WITH_NUMBER: _one_and_scalar,
    elements.AFFINE: _affine,
    elements.BINARY: _two,
    elements.COMPARISON: _two,
    elements.ASTYPE: _cast,
    elements.WHERE: _where,
    memory.FILL: _fill,
    of_rows.REDUCTION: _reduce,
    of_rows.ARG_REDUCTION: _reduce,
    of_rows.SORTING: _sort,
    of_products.MATMUL: _matmul,
    of_products.QUANTIZED_MATVEC: _product_of_blocks,
    of_products.QUANTIZED_PRODUCT: _product_of_blocks,
    of_products.ACTIVATIONS: _activations,
    of_products.INDEXED_PRODUCT: _product_at_ids,
    of_attention.ATTENTION: _attention,
    of_attention.ROPE: _rope,
    of_attention.ROPE_I: _rope,
    of_attention.ROPE_THD: _rope,
    elements.SILU_MUL: _gated,
    elements.MASKED_FILL: _masked_fill,
    of_attention.KV_APPEND: _append,
    of_attention.ROPE_AT: _rope_at,
    of_attention.CACHED_ATTENTION: _cached,
    of_windows.CONV1D: _windows,
    of_windows.CONV2D: _windows,
    of_windows.CONV_TRANSPOSE1D: _windows,
    of_windows.CONV_TRANSPOSE2D: _windows,
    of_windows.POOLING: _windows,
    of_windows.UPSAMPLE_NEAREST2D: _windows,
    of_windows.UPSAMPLE_BILINEAR2D: _windows,
    indexing.INDEX_SELECT: _along,
    indexing.GATHER: _along,
    indexing.SCATTERING: _along,
    indexing.INDEX_ADD: _along,
    of_attention.KV_CONCAT: _along,
}
