"""Weights in ggml's block formats, and their products with vectors.

A row of a quantized weight is a line of blocks; a block holds some elements as small integers and
what scales them. `FORMATS` lists the formats: files of ggml's and Candle's weights hold the same
bytes. Kernels multiply by the blocks themselves (CUDA, ROCm and the host; GCUs have
`gcu_launches.launch_quantized_matmul` for weights of another layout).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Literal, TypeAlias, overload

from ubridge.buffers.block_launches import (
    launch_activations,
    launch_quantized_matvec,
    launch_quantized_product,
)
from ubridge.buffers.launches import gathered
from ubridge.core.block_formats import FORMATS, BlockFormat, activation_bytes, block_format
from ubridge.core.layout import Layout, Shape
from ubridge.core.operation import Op
from ubridge.definitions.calls import named
from ubridge.definitions.products import ACTIVATIONS, QUANTIZED_MATVEC
from ubridge.functions import add
from ubridge.ops.launching import launch_cast
from ubridge.ops.products import matmul
from ubridge.ops.results import delivered, require_tensors
from ubridge.ops.selection import embedding as _rows_of_table
from ubridge.quantized_weight import QuantizedWeight
from ubridge.quantizing import ENCODED, dequantize, quantize
from ubridge.tensor import DeviceTensor
from uhal import DeviceBuffer
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
"""What x is multiplied as."""


@overload
def quantized_matmul(
    x: DeviceTensor,
    weight: QuantizedWeight,
    *,
    activations: Activations = "f32",
    out: DeviceTensor | None = None,
    stream: StreamLike | None = None,
) -> DeviceTensor: ...
@overload
def quantized_matmul(
    x: DeviceTensor,
    weight: Sequence[QuantizedWeight],
    *,
    activations: Activations = "f32",
    stream: StreamLike | None = None,
) -> tuple[DeviceTensor, ...]: ...
@named
def quantized_matmul(
    x: DeviceTensor,
    weight: QuantizedWeight | Sequence[QuantizedWeight],
    *,
    activations: Activations = "f32",
    out: DeviceTensor | None = None,
    stream: StreamLike | None = None,
) -> DeviceTensor | tuple[DeviceTensor, ...]:
    """Return `x @ weight.T` in the dtype of x, f32, f16 or bf16: (…, columns) becomes (…, rows).

    With activations of `"f32"` elements of the weight are multiplied by those of x, widened. With
    `"q8"` x is rounded to 8 bits first, which is several times faster; the products are exact then.
    How it is rounded depends on the backend, and so do the result's bits: the host scales runs of
    32 elements, as ggml's Q8_0 does, or of 256 for weights of such blocks, as Q8_K; GPUs have Q8_1.
    A run adds an error of at most 1/220 of its largest `|x|` times the sum of the weights' `|w|`
    there. Where a run has an infinity or NaN the result is NaN.

    For a sequence of weights the products come as a tuple, and x is rounded once for all of one
    kind. An x of u8 is what `quantize_activations` made; its product is of f32. Sums are taken in
    f32 and rounded once. Safe from any thread.
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
    products = _Products(x, stream)
    multiply = products.in_f32 if activations == "f32" else products.in_q8
    if several:
        return tuple(multiply(one, None) for one in weights)
    return multiply(weights[0], out)


class _Products:
    """Products of one x, made contiguous and quantized once."""

    def __init__(self, x: DeviceTensor, stream: StreamLike | None) -> None:
        self._x = x
        self._stream = stream
        self._dtype = f32 if x.dtype is u8 else x.dtype
        self._vectors = prod(x.shape[:-1])
        self._rows: DeviceBuffer | None = None
        self._bytes: dict[int, DeviceBuffer] = {}

    def in_f32(self, weight: QuantizedWeight, out: DeviceTensor | None) -> DeviceTensor:
        x, at, stream = self._x, self._x._executor, self._stream
        op = QUANTIZED_MATVEC
        is_wide = x.dtype is f32

        def enqueue(output: DeviceBuffer | None) -> DeviceBuffer:
            vectors = self._contiguous(op)
            if not is_wide:
                given = Layout.contiguous(x.shape)
                vectors = launch_cast(vectors, given, f32, stream=stream, executor=at)
            made = launch_quantized_matvec(
                weight.format,
                weight.buffer,
                vectors,
                weight.rows,
                weight.columns,
                vectors=self._vectors,
                out=output if is_wide else None,
                stream=stream,
                executor=at,
            )
            if is_wide:
                return made
            results = Layout.contiguous(self._vectors * weight.rows)
            return launch_cast(made, results, x.dtype, out=output, stream=stream, executor=at)

        return self._delivered(weight, out, enqueue)

    def in_q8(self, weight: QuantizedWeight, out: DeviceTensor | None) -> DeviceTensor:
        def enqueue(output: DeviceBuffer | None) -> DeviceBuffer:
            return launch_quantized_product(
                weight.format,
                weight.buffer,
                self.quantized(weight.format, weight.columns),
                weight.rows,
                weight.columns,
                vectors=self._vectors,
                dtype=self._dtype,
                out=output,
                stream=self._stream,
                executor=self._x._executor,
            )

        return self._delivered(weight, out, enqueue)

    def _contiguous(self, op: Op) -> DeviceBuffer:
        if self._rows is None:
            x = self._x
            self._rows = gathered(x._executor, op, "x", x._buffer, x._layout, self._stream)
        return self._rows

    def quantized(self, format: BlockFormat, columns: int) -> DeviceBuffer:
        kind = format.activations
        op = ACTIVATIONS
        if self._x.dtype is u8:
            return self._contiguous(op)
        if kind not in self._bytes:
            self._bytes[kind] = launch_activations(
                format,
                self._contiguous(op),
                self._vectors,
                columns,
                stream=self._stream,
                executor=self._x._executor,
            )
        return self._bytes[kind]

    def _delivered(
        self,
        weight: QuantizedWeight,
        out: DeviceTensor | None,
        enqueue: Callable[[DeviceBuffer | None], DeviceBuffer],
    ) -> DeviceTensor:
        x = self._x
        shape = Shape((*x.shape[:-1], weight.rows))
        operands = (x, weight.blocks)
        return delivered(
            "quantized_matmul", shape, self._dtype, out, operands, self._stream, enqueue
        )


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

    The result is of u8 with a last axis of `activation_bytes`, in a layout of the device's own: for
    `quantized_matmul` on that device, by weights of the format and all with the same
    `BlockFormat.activations`. x is of f32, f16 or bf16.
    """
    require_tensors("quantize_activations", x)
    told = block_format(format)
    require_floats("quantize_activations", x)
    columns = x.shape[-1] if x.shape else 1
    told.row_bytes(columns)
    made = _Products(x, stream).quantized(told, columns)
    return x._made(made, Layout.contiguous((*x.shape[:-1], activation_bytes(columns))), u8)


@named
def linear(
    x: DeviceTensor,
    weight: DeviceTensor | QuantizedWeight,
    bias: DeviceTensor | None = None,
    *,
    activations: Activations = "q8",
    stream: StreamLike | None = None,
) -> DeviceTensor:
    """Return `x @ weight.T + bias`: (…, columns) becomes (…, rows), in the dtype of x.

    `weight` is (rows, columns), a tensor or quantized. For a quantized one x is rounded to 8 bits
    first, as ggml and Candle do, or not with activations of `"f32"`: see `quantized_matmul`, which
    also takes several weights that share x.
    """
    require_tensors("linear", x)
    if isinstance(weight, QuantizedWeight):
        product = quantized_matmul(x, weight, activations=activations, stream=stream)
    else:
        require_tensors("linear", weight)
        product = matmul(x, weight.mT, stream=stream)
    return product if bias is None else add(product, bias, stream=stream)


@named
def embedding(
    ids: Any,
    table: DeviceTensor | QuantizedWeight,
    *,
    out: DeviceTensor | None = None,
    stream: StreamLike | None = None,
) -> DeviceTensor:
    """Return the rows of a table at ids, in the shape `(*ids.shape, table.shape[1])`.

    Rows of a quantized table come as f32; `QuantizedWeight.take` gives other types.
    """
    if isinstance(table, QuantizedWeight):
        return table.take(ids, out=out, stream=stream)
    return _rows_of_table(ids, table, out=out, stream=stream)
