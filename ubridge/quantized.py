"""Weights in ggml's block formats, and their products with vectors.

A row of a quantized weight is a line of blocks; a block holds some elements as small integers, with
their scales. `FORMATS` lists the formats: files of ggml's and Candle's weights hold the same bytes.
Kernels multiply by the blocks themselves (CUDA, ROCm and the host; GCUs have
`ubridge.ops.gcus.launch_quantized_matmul` for weights of another layout).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Literal, TypeAlias, overload

from ubridge.core.block_formats import FORMATS, BlockFormat, activation_bytes, block_format
from ubridge.core.layout import Layout
from ubridge.definitions.calls import named
from ubridge.definitions.products import QUANTIZED_MATVEC, QUANTIZED_PRODUCT
from ubridge.functions import add
from ubridge.ops.blocks import blocks_of, plan_activations, plan_block_product, plan_matvec
from ubridge.ops.elementwise import converted, plan_conversion
from ubridge.ops.engine import run
from ubridge.ops.products import matmul
from ubridge.ops.results import require_tensors
from ubridge.ops.selection import take
from ubridge.quantized_weight import QuantizedWeight
from ubridge.quantizing import ENCODED, dequantize, quantize
from ubridge.tensor import DeviceTensor
from uhal import DType
from uhal.dtypes import bf16, f16, f32, u8
from uhal.errors import ArgumentTypeError, ArgumentValueError, InvalidHandleError
from uhal.interop import StreamLike

__all__ = [
    "ENCODED",
    "FORMATS",
    "BlockFormat",
    "QuantizedWeight",
    "block_format",
    "dequantize",
    "embedding",
    "linear",
    "quantize",
    "quantize_activations",
    "quantized_matmul",
]

Activations: TypeAlias = Literal["f32", "q8"]
"""Format of x in the product."""


@overload
def quantized_matmul(
    x: DeviceTensor,
    weight: QuantizedWeight,
    *,
    activations: Activations = "f32",
    batch_invariant: bool = False,
    out: DeviceTensor | None = None,
    stream: StreamLike | None = None,
) -> DeviceTensor: ...
@overload
def quantized_matmul(
    x: DeviceTensor,
    weight: Sequence[QuantizedWeight],
    *,
    activations: Activations = "f32",
    batch_invariant: bool = False,
    stream: StreamLike | None = None,
) -> tuple[DeviceTensor, ...]: ...
@named
def quantized_matmul(
    x: DeviceTensor,
    weight: QuantizedWeight | Sequence[QuantizedWeight],
    *,
    activations: Activations = "f32",
    batch_invariant: bool = False,
    out: DeviceTensor | None = None,
    stream: StreamLike | None = None,
) -> DeviceTensor | tuple[DeviceTensor, ...]:
    """Return `x @ weight.T` for a quantized weight.

    x of (…, columns) gives (…, rows), in the dtype of x: f32, f16 or bf16.

    With activations of `"f32"` x is widened to f32 and multiplied by the weight's elements. With
    `"q8"` x is rounded to 8 bits first, which is several times faster; products of the rounded
    elements are exact. The rounding depends on the backend, and so do the result's bits. The host
    uses ggml's Q8_0, which scales runs of 32 elements. For weights with blocks of 256, the host
    uses Q8_K, which scales runs of 256. GPUs use Q8_1. A run adds an error of at most 1/220 of its
    largest `|x|` times the sum of its weights' `|w|`. If a run has an infinity or NaN, the result
    is NaN.

    A sequence of weights gives a tuple of products; x is rounded once for all weights of one kind.
    An x of u8 comes from `quantize_activations`; its product is of f32. Sums are taken in f32 and
    rounded once. With `batch_invariant` the order of a sum does not depend on the number of
    vectors, so a vector gives the same bits in every batch. Safe from any thread.
    """
    require_tensors("quantized_matmul", x)
    if activations not in ("f32", "q8"):
        raise ArgumentValueError(
            f"quantized_matmul, activations: expected 'f32' or 'q8', got {activations!r}"
        )
    several = isinstance(weight, Sequence)
    weights: Sequence[QuantizedWeight] = weight if isinstance(weight, Sequence) else (weight,)
    for one in weights:
        _require_fitting(x, one, activations)
    if several and out is not None:
        raise ArgumentValueError("quantized_matmul, out: expected none for several weights")
    x, dtype = x.contiguous(stream=stream), f32 if x.dtype is u8 else x.dtype
    wide = converted(x, f32, stream=stream) if activations == "f32" else x
    rounded: dict[int, DeviceTensor] = {}
    made = tuple(
        _product(wide, one, dtype, activations, batch_invariant, rounded, out, stream)
        for one in weights
    )
    return made if several else made[0]


def _product(
    x: DeviceTensor,
    weight: QuantizedWeight,
    dtype: DType,
    activations: Activations,
    batch_invariant: bool,
    rounded: dict[int, DeviceTensor],
    out: DeviceTensor | None,
    stream: StreamLike | None,
) -> DeviceTensor:
    """The product of a contiguous x; `rounded` keeps x in 8 bits for other weights."""
    format, rows, columns = weight.format, weight.rows, weight.columns
    op = QUANTIZED_MATVEC if activations == "f32" else QUANTIZED_PRODUCT
    blocks = blocks_of(op, format, weight.buffer, rows, columns, x._executor)
    if op is QUANTIZED_MATVEC:
        plan = plan_matvec(format, blocks, _vectors(x), rows)
    else:
        kind = format.activations
        if x.dtype is not u8 and kind not in rounded:
            rounded[kind] = run(plan_activations(format, _vectors(x)), None, stream)
        made = _vectors(rounded.get(kind, x))
        flags = {"batch_invariant": True} if batch_invariant else {}
        plan = plan_block_product(format, blocks, made, rows, columns, dtype, **flags)
    shaped = plan._viewed(Layout.contiguous((*x.shape[:-1], rows)))
    return run(plan_conversion(shaped, dtype), out, stream)


def _vectors(x: DeviceTensor) -> DeviceTensor:
    """The vectors of a contiguous x, along two axes."""
    return x.reshape(prod(x.shape[:-1]), x.shape[-1])


def _require_fitting(x: DeviceTensor, weight: QuantizedWeight, activations: str) -> None:
    if not isinstance(weight, QuantizedWeight):
        raise ArgumentTypeError(
            f"quantized_matmul: expected a QuantizedWeight, got {type(weight).__name__}"
        )
    if weight.buffer.device != x.device:
        raise InvalidHandleError(
            f"quantized_matmul: expected operands on one device, got {x.device!r} and "
            f"{weight.buffer.device!r}"
        )
    if len(weight.shape) != 2:
        raise ArgumentValueError(
            f"quantized_matmul: expected a weight of two axes, got {weight!r}; index it first"
        )
    is_rounded = x.dtype is u8 and activations == "q8"
    wanted = activation_bytes(weight.columns) if is_rounded else weight.columns
    if not x.shape or x.shape[-1] != wanted:
        raise ArgumentValueError(
            f"quantized_matmul: expected a last axis of {wanted}, got shape {x.shape}"
        )
    if not is_rounded:
        require_floats("quantized_matmul", x)


def require_floats(name: str, x: DeviceTensor) -> None:
    if x.dtype not in (f32, f16, bf16):
        raise ArgumentTypeError(
            f"{name}: expected x of f32, f16 or bf16, got {x.dtype}: use astype"
        )


@named
def quantize_activations(
    x: DeviceTensor, format: BlockFormat | str, *, stream: StreamLike | None = None
) -> DeviceTensor:
    """Round the last axis of x to 8 bits, for products with `activations="q8"` that share it.

    The result is of u8 with a last axis of `activation_bytes`, in a layout of this device. It is
    for `quantized_matmul` on this device with weights of the format, or of any format with the same
    `BlockFormat.activations`. x is of f32, f16 or bf16.
    """
    require_tensors("quantize_activations", x)
    told = block_format(format)
    require_floats("quantize_activations", x)
    columns = x.shape[-1] if x.shape else 1
    vectors = x.contiguous(stream=stream).reshape(prod(x.shape[:-1]), columns)
    shape = (*x.shape[:-1], activation_bytes(columns))
    return run(plan_activations(told, vectors)._viewed(Layout.contiguous(shape)), None, stream)


@named
def linear(
    x: DeviceTensor,
    weight: DeviceTensor | QuantizedWeight,
    bias: DeviceTensor | None = None,
    *,
    activations: Activations = "q8",
    batch_invariant: bool = False,
    stream: StreamLike | None = None,
) -> DeviceTensor:
    """Return `x @ weight.T + bias`.

    x of (…, columns) gives (…, rows), in the dtype of x.

    `weight` is (rows, columns), a tensor or quantized. For a quantized weight x is first rounded to
    8 bits, as in ggml and Candle, unless activations are `"f32"`: see `quantized_matmul`, which
    also takes several weights that share x. With `batch_invariant` a row of x gives the same bits
    in every batch.
    """
    require_tensors("linear", x)
    if isinstance(weight, QuantizedWeight):
        product = quantized_matmul(
            x, weight, activations=activations, batch_invariant=batch_invariant, stream=stream
        )
    else:
        require_tensors("linear", weight)
        product = matmul(x, weight.mT, batch_invariant=batch_invariant, stream=stream)
    return product if bias is None else add(product, bias, stream=stream)


@named
def embedding(
    ids: Any,
    table: DeviceTensor | QuantizedWeight,
    *,
    out: DeviceTensor | None = None,
    stream: StreamLike | None = None,
) -> DeviceTensor:
    """Return the rows of a table at ids.

    The shape is `(*ids.shape, table.shape[1])`.

    Rows of a quantized table come as f32; `QuantizedWeight.take` gives other types.
    """
    if isinstance(table, QuantizedWeight):
        return table.take(ids, out=out, stream=stream)
    require_tensors("embedding", table)
    if table.ndim != 2:
        raise ArgumentValueError(f"embedding: expected a table of two axes, got {table.shape}")
    return take(table, ids, 0, out=out, stream=stream)
