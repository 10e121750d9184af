"""Weights in ggml's block formats, and their products with vectors.

A row of a quantized weight is a line of blocks; a block holds some elements as small integers and
what scales them. `FORMATS` lists the formats: files of ggml's and Candle's weights hold the same
bytes. Kernels multiply by the blocks themselves (CUDA, ROCm and the host; GCUs have
`gcu_launches.launch_quantized_matmul` for weights of another layout).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from ubridge.buffers.block_launches import (
    launch_dequantize,
    launch_quantized_matvec,
    require_blocks,
)
from ubridge.buffers.indexed_launches import gathered
from ubridge.core.block_formats import FORMATS, BlockFormat, block_format
from ubridge.core.layout import Layout, Shape
from ubridge.core.op_table import OPS
from ubridge.device.images import load_module
from ubridge.functions import add
from ubridge.ops.products import matmul
from ubridge.ops.results import delivered, require_tensors
from ubridge.ops.selection import take
from ubridge.tensor import DeviceTensor
from uhal import Device, DeviceBuffer, launch
from uhal.device import DeviceLike
from uhal.dtypes import DTypeLike, f32, u8
from uhal.errors import ArgumentTypeError, ArgumentValueError, InvalidHandleError
from uhal.interop import StreamLike

__all__ = [
    "ENCODED",
    "FORMATS",
    "BlockFormat",
    "QuantizedWeight",
    "block_format",
    "dequantize",
    "linear",
    "quantize",
    "quantized_matmul",
]

Array = npt.NDArray[Any]


class QuantizedWeight:
    """A matrix (rows, columns) of blocks on a device, or several of them, one after the other.

    It holds its buffer, which is of u8. Any thread may use it.
    """

    # With texts, as `help` and `inspect.getdoc` find them.
    __slots__ = {
        "buffer": "The blocks, row after row, as bytes.",
        "columns": "Elements of a row.",
        "format": "What a block is.",
        "rows": "The number of rows, of all matrices together.",
        "shape": "Its lengths, outermost first; the last is `columns`.",
    }

    def __init__(
        self,
        buffer: DeviceBuffer,
        format: BlockFormat | str,
        rows: int,
        columns: int,
        *,
        shape: Sequence[int] | None = None,
    ) -> None:
        """Take over a buffer that begins with the blocks, row after row.

        `shape` is (rows, columns) where it is not given; experts of a layer have three axes. Raises
        `ArgumentValueError` for rows of no whole blocks and for a buffer too small for them.
        """
        self.format = block_format(format)
        self.buffer = buffer
        self.rows = rows
        self.columns = columns
        self.shape = Shape((rows, columns) if shape is None else shape)
        if not self.shape or self.shape[-1] != columns or prod(self.shape[:-1]) != rows:
            raise ArgumentValueError(
                f"QuantizedWeight: expected a shape of {rows} rows of {columns}, got {self.shape}"
            )
        op = OPS[f"elements_{self.format.name}"]
        require_blocks(op, self.format, buffer, rows, columns)

    @classmethod
    def from_numpy(
        cls, values: Array, format: BlockFormat | str, *, device: DeviceLike | None = None
    ) -> QuantizedWeight:
        """Quantize a matrix and bring it to a device, the current one when none is given."""
        values = np.asarray(values)
        if values.ndim != 2:
            raise ArgumentValueError(f"quantize: expected a matrix, got shape {values.shape}")
        return cls.from_blocks(quantize(values, format), format, *values.shape, device=device)

    @classmethod
    def from_blocks(
        cls,
        blocks: Array | bytes,
        format: BlockFormat | str,
        rows: int,
        columns: int,
        *,
        device: DeviceLike | None = None,
    ) -> QuantizedWeight:
        """Bring blocks, as `quantize` or a file has them, to a device."""
        raw = np.frombuffer(blocks, np.uint8)
        return cls(DeviceBuffer.from_numpy(raw, device=device), format, rows, columns)

    @property
    def nbytes(self) -> int:
        """Bytes of its blocks."""
        return self.rows * self.format.row_bytes(self.columns)

    @property
    def blocks(self) -> DeviceBuffer:
        """The blocks alone, where the buffer has more."""
        return self.buffer[: self.nbytes]

    def __getitem__(self, index: int | slice) -> QuantizedWeight:
        """Return a row, an expert, or a run of either, in the same memory."""
        if len(self.shape) < 2:
            raise IndexError("a quantized row has no parts")
        length, inner = self.shape[0], self.shape[1:]
        each = self.format.row_bytes(self.columns) * prod(inner[:-1])
        if isinstance(index, slice):
            start, stop, step = index.indices(length)
            if step != 1:
                raise IndexError(f"a quantized weight is cut in steps of 1, got {step}")
            stop = max(start, stop)
            shape: tuple[int, ...] = (stop - start, *inner)
        else:
            start = index + length if index < 0 else index
            if not 0 <= start < length:
                raise IndexError(f"index {index} is out of bounds for an axis of {length}")
            stop, shape = start + 1, inner
        part = self.buffer[start * each : stop * each]
        return type(self)(part, self.format, prod(shape[:-1]), self.columns, shape=shape)

    def take(
        self, ids: Any, dtype: DTypeLike = f32, *, stream: StreamLike | None = None
    ) -> DeviceTensor:
        """Return the elements of the rows at ids: shape of the ids, then the columns.

        As `ubridge.take` does for a table: what a tied embedding is read by. Ids out of bounds are
        refused as there.
        """
        row_bytes = self.format.row_bytes(self.columns)
        table = DeviceTensor(self.blocks, Layout.contiguous((self.rows, row_bytes)))
        rows = take(table, ids, stream=stream)
        chosen = prod(rows.shape[:-1])
        elements = launch_dequantize(
            self.format, rows.buffer, chosen, self.columns, dtype=dtype, stream=stream
        )
        return DeviceTensor(elements, Layout.contiguous((*rows.shape[:-1], self.columns)))

    @property
    def device(self) -> Device:
        """Where the blocks lie."""
        return self.buffer.device

    def dequantize(
        self, dtype: DTypeLike = f32, *, stream: StreamLike | None = None
    ) -> DeviceTensor:
        """Return the elements as a tensor of the weight's shape, of f32, f16 or bf16."""
        elements = launch_dequantize(
            self.format, self.buffer, self.rows, self.columns, dtype=dtype, stream=stream
        )
        return DeviceTensor(elements, Layout.contiguous(self.shape))

    def to_numpy(self) -> Array:
        """Return the elements as f32. Waits for the device."""
        return self.dequantize().to_numpy()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.format.name} of {tuple(self.shape)}>"


def quantized_matmul(
    x: DeviceTensor,
    weight: QuantizedWeight,
    *,
    out: DeviceTensor | None = None,
    stream: StreamLike | None = None,
) -> DeviceTensor:
    """Return `x @ weight.T` of f32: (…, columns) becomes (…, rows).

    One launch reads the weight once for each row of x, which is what a decoder's step of one token
    asks for; for many rows dequantize the weight and use `matmul`.
    """
    require_tensors("quantized_matmul", x)
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
    if not x.shape or x.shape[-1] != weight.columns:
        raise ArgumentValueError(
            f"quantized_matmul: expected a last axis of {weight.columns}, got shape {x.shape}"
        )
    if x.dtype is not f32:
        raise ArgumentTypeError(f"quantized_matmul: expected x of f32, got {x.dtype}: use astype")
    op, at = OPS[f"matvec_{weight.format.name}"], x._executor
    vectors = prod(x.shape[:-1])

    def enqueue(place: DeviceBuffer | None) -> DeviceBuffer:
        rows = gathered(at, op, "x", x._buffer, x._layout, stream)
        return launch_quantized_matvec(
            weight.format, weight.buffer, rows, weight.rows, weight.columns, vectors=vectors,
            out=place, stream=stream, executor=at,
        )  # fmt: skip

    shape = Shape((*x.shape[:-1], weight.rows))
    if out is not None and out._buffer is x._buffer:
        raise ArgumentValueError("quantized_matmul, out: expected other memory than x's")
    return delivered("quantized_matmul", shape, f32, out, (x,), stream, enqueue)


def linear(
    x: DeviceTensor,
    weight: DeviceTensor | QuantizedWeight,
    bias: DeviceTensor | None = None,
    *,
    stream: StreamLike | None = None,
) -> DeviceTensor:
    """Return `x @ weight.T + bias`: (…, columns) becomes (…, rows), in the dtype of x.

    `weight` is (rows, columns), a tensor or quantized. A quantized one multiplies f32, so x of f16
    or bf16 is widened and the result rounded once before the bias.
    """
    require_tensors("linear", x)
    if isinstance(weight, QuantizedWeight):
        wide = x if x.dtype is f32 else x.astype(f32, stream=stream)
        product = quantized_matmul(wide, weight, stream=stream)
        product = product if x.dtype is f32 else product.astype(x.dtype, stream=stream)
    else:
        require_tensors("linear", weight)
        product = matmul(x, weight.mT, stream=stream)
    return product if bias is None else add(product, bias, stream=stream)


def quantize(values: Array, format: BlockFormat | str) -> npt.NDArray[np.uint8]:
    """Quantize the last axis of an array: the bytes of its blocks, row after row.

    Takes f32 and bf16 as they are, other numbers as f32. Formats of 32 elements and TQ1_0, TQ2_0
    get ggml's bytes; the others search for scales by least squares, and their root mean square
    error is at most that of ggml's search and 2 percent. Computed on the host's CPU, by all its
    cores. Raises `ArgumentValueError` for rows of no whole blocks, and for formats that need a
    search in a codebook, which are read only.
    """
    told = block_format(format)
    if told.name not in ENCODED:
        raise ArgumentValueError(
            f"quantize: no way to {told.name} is known; there are {', '.join(ENCODED)}"
        )
    values = np.asarray(values)
    if values.dtype != f32 and values.dtype.name != "bfloat16":
        values = values.astype(np.float32)
    told.row_bytes(values.shape[-1] if values.ndim else 1)
    count = values.size // told.elements
    with Device(0, backend="host") as host:
        x = DeviceBuffer.from_numpy(np.ascontiguousarray(values).ravel(), device=host)
        blocks = DeviceBuffer.uninitialized(count * told.block_bytes, u8, device=host)
        kernel = load_module("quantize_blocks", device=host).get_function(
            f"quantize_{told.name}_{x.dtype.name}"
        )
        if count:
            # A work-item is a block or some, which are many instructions.
            launch(kernel, grid=min(count, _PIECES), block=1, args=(count, x, blocks.view(u8)))
        return blocks.to_numpy()


def dequantize(blocks: Array | bytes, format: BlockFormat | str) -> npt.NDArray[np.float32]:
    """Return the elements of blocks, one after the other. They are computed on the host's CPU."""
    told = block_format(format)
    raw = np.frombuffer(blocks, np.uint8)
    if raw.size % told.block_bytes:
        raise ArgumentValueError(
            f"{told.name}: expected whole blocks of {told.block_bytes} bytes, got {raw.size}"
        )
    count = raw.size // told.block_bytes
    with Device(0, backend="host") as host:
        weight = DeviceBuffer.from_numpy(raw, device=host)
        elements = launch_dequantize(told, weight, count, told.elements)
        return elements[: count * told.elements].to_numpy()


ENCODED = (
    *("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q8_1", "q2_K", "q3_K", "q4_K", "q5_K", "q6_K"),
    *("q8_K", "iq4_nl", "iq4_xs", "tq1_0", "tq2_0", "mxfp4"),
)
"""Formats that `quantize` writes."""
_PIECES = 256
"""Of a weight that is quantized: enough for many cores, each a run of blocks."""
