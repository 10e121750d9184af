"""Weights in ggml's block formats, and their products with vectors.

A row of a quantized weight is a line of blocks; a block holds some elements as small integers and
what scales them. `FORMATS` lists the formats: files of ggml's and Candle's weights hold the same
bytes. Kernels multiply by the blocks themselves (CUDA, ROCm and the host; GCUs have
`gcu_launches.launch_quantized_matmul` for weights of another layout).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from ubridge.ops.results import delivered, require_tensors
from ubridge.ops.selection import take
from ubridge.tensor import DeviceTensor
from uhal import Device, DeviceBuffer
from uhal.device import DeviceLike
from uhal.dtypes import DTypeLike, f32
from uhal.errors import ArgumentTypeError, ArgumentValueError, InvalidHandleError
from uhal.interop import StreamLike

__all__ = [
    "ENCODED",
    "FORMATS",
    "BlockFormat",
    "QuantizedWeight",
    "block_format",
    "dequantize",
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


def quantize(values: Array, format: BlockFormat | str) -> npt.NDArray[np.uint8]:
    """Quantize the last axis of an array: the bytes of its blocks, row after row.

    q4_0 and q8_0 give ggml's bytes. q4_K scales each group of 32 by its extremes, without ggml's
    search for smaller errors.
    """
    told = block_format(format)
    values = np.asarray(values, np.float32)
    told.row_bytes(values.shape[-1] if values.ndim else 1)
    encode = _ENCODERS.get(told.name)
    if encode is None:
        raise ArgumentValueError(
            f"quantize: no way to {told.name} is known; there are {', '.join(_ENCODERS)}"
        )
    blocks = encode(values.reshape(-1, told.elements))
    return np.frombuffer(blocks.tobytes(), np.uint8)


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


# -- to blocks ----------------------------------------------------------------------------------


def _away(values: Array) -> Array:
    """Round to integers, halves away from zero, as C does."""
    rounded: Array = np.trunc(values + np.copysign(np.float32(0.5), values))
    return rounded


def _inverse(scale: Array) -> Array:
    return np.divide(1, scale, out=np.zeros_like(scale), where=scale != 0)


def _nibbles(low: Array, high: Array) -> Array:
    both: Array = low | high << 4
    return both.astype(np.uint8)


def _encode_q4_0(values: Array) -> Array:
    # The element of largest magnitude becomes -8, the end of the range with one value more.
    furthest = np.take_along_axis(values, np.abs(values).argmax(1)[:, None], 1)
    scale = (furthest / np.float32(-8)).astype(np.float32)
    quants = np.minimum(np.trunc(values * _inverse(scale) + np.float32(8.5)), 15).astype(np.uint8)
    blocks = np.zeros(len(values), _Q4_0)
    blocks["scale"] = scale[:, 0]
    blocks["quants"] = _nibbles(quants[:, :16], quants[:, 16:])
    return blocks


def _encode_q8_0(values: Array) -> Array:
    scale = (np.abs(values).max(1, keepdims=True) / np.float32(127)).astype(np.float32)
    blocks = np.zeros(len(values), _Q8_0)
    blocks["scale"] = scale[:, 0]
    blocks["quants"] = _away(values * _inverse(scale))
    return blocks


def _encode_q4_k(values: Array) -> Array:
    groups = values.reshape(-1, 8, 32)
    # Below zero at most: what is subtracted has no sign.
    least = np.minimum(groups.min(2), 0)
    step = (groups.max(2) - least) / np.float32(15)
    blocks = np.zeros(len(groups), _Q4_K)
    blocks["scale"] = step.max(1) / np.float32(63)
    blocks["minimum"] = -least.min(1) / np.float32(63)
    scale, minimum = (blocks[one].astype(np.float32)[:, None] for one in ("scale", "minimum"))
    scales = np.clip(_away(step * _inverse(scale)), 0, 63).astype(np.uint8)
    minimums = np.clip(_away(-least * _inverse(minimum)), 0, 63).astype(np.uint8)
    levels = blocks["levels"]
    levels[:, 0:4] = scales[:, :4] | scales[:, 4:] >> 4 << 6
    levels[:, 4:8] = minimums[:, :4] | minimums[:, 4:] >> 4 << 6
    levels[:, 8:12] = _nibbles(scales[:, 4:] & 15, minimums[:, 4:] & 15)
    raised = groups + (minimum * minimums)[:, :, None]
    quants = np.clip(_away(raised * _inverse(scale * scales)[:, :, None]), 0, 15).astype(np.uint8)
    blocks["quants"] = _nibbles(quants[:, 0::2], quants[:, 1::2]).reshape(-1, 128)
    return blocks


_Q4_0 = np.dtype([("scale", "<f2"), ("quants", "u1", 16)])
_Q8_0 = np.dtype([("scale", "<f2"), ("quants", "i1", 32)])
_Q4_K = np.dtype(
    [("scale", "<f2"), ("minimum", "<f2"), ("levels", "u1", 12), ("quants", "u1", 128)]
)

_ENCODERS: dict[str, Callable[[Array], Array]] = {
    "q4_0": _encode_q4_0,
    "q8_0": _encode_q8_0,
    "q4_K": _encode_q4_k,
}
"""From f32 of shape (blocks, elements) to that many blocks."""

ENCODED = tuple(_ENCODERS)
"""Formats that `quantize` knows a way to."""
