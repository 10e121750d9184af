"""Weights of 4 and 8 bits in ggml's block formats, and their products with vectors.

A row of a quantized weight is a line of blocks; a block holds some elements as small integers and
what scales them. `FORMATS` has the layouts, as numpy's structured dtypes: files of ggml's and
Candle's weights hold the same bytes. `quantize` and `dequantize` are for the host; kernels multiply
by the blocks themselves (CUDA, ROCm and the host; GCUs have `gcu_launches.launch_quantized_matmul`
for weights of another layout).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from ubridge.buffers.indexed_launches import gathered
from ubridge.buffers.launches import enqueued, require_room, require_size
from ubridge.core.layout import Layout, Shape
from ubridge.core.op_table import OPS, Op
from ubridge.core.question import Question
from ubridge.device.executor import DeviceExecutor, Executor
from ubridge.ops.results import delivered, require_tensors
from ubridge.tensor import DeviceTensor
from uhal import DeviceBuffer, DType
from uhal.device import DeviceLike
from uhal.dtypes import f32, u8, u16, u32
from uhal.errors import ArgumentTypeError, ArgumentValueError, InvalidHandleError
from uhal.interop import StreamLike

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class BlockFormat:
    """How the elements of a block lie in memory."""

    name: str
    elements: int
    """Of a block. Rows hold whole blocks."""
    layout: np.dtype[Any]
    """One block; all numbers are little-endian."""
    word: DType
    """What kernels read a block by: it lies at a multiple of this type's size."""
    encode: Callable[[Array], Array]
    """From f32 of shape (blocks, elements) to that many blocks."""
    decode: Callable[[Array], Array]
    """From blocks to f32 of shape (blocks, elements)."""

    @property
    def block_bytes(self) -> int:
        """Bytes of a block."""
        return self.layout.itemsize

    def row_bytes(self, columns: int) -> int:
        """Return the bytes of a row. `ArgumentValueError` when it is no whole number of blocks."""
        if columns < 0 or columns % self.elements:
            raise ArgumentValueError(
                f"{self.name}: expected rows of whole blocks of {self.elements} elements, "
                f"got {columns} columns"
            )
        return columns // self.elements * self.block_bytes


class QuantizedWeight:
    """A matrix (rows, columns) of blocks on a device. It holds its buffer, which is of u8."""

    # With texts, as `help` and `inspect.getdoc` find them.
    __slots__ = {
        "buffer": "The blocks, row after row, as bytes.",
        "columns": "Elements of a row.",
        "format": "What a block is.",
        "rows": "The number of rows.",
    }

    def __init__(
        self, buffer: DeviceBuffer, format: BlockFormat | str, rows: int, columns: int
    ) -> None:
        """Take over a buffer that begins with the blocks, row after row.

        Raises `ArgumentValueError` for rows of no whole blocks and for a buffer too small for them.
        """
        self.format = block_format(format)
        self.buffer = buffer
        self.rows = rows
        self.columns = columns
        _blocks_of(_op_of(self.format), self.format, buffer, rows, columns)

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

    def to_numpy(self) -> Array:
        """Return the elements as f32. Waits for the device."""
        raw = self.buffer[: self.rows * self.format.row_bytes(self.columns)].to_numpy()
        return dequantize(raw, self.format).reshape(self.rows, self.columns)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.format.name} of ({self.rows}, {self.columns})>"


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
    op, at = _op_of(weight.format), x._executor
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


def launch_quantized_matvec(
    format: BlockFormat | str,
    weight: DeviceBuffer,
    x: DeviceBuffer,
    rows: int,
    columns: int,
    *,
    vectors: int = 1,
    out: DeviceBuffer | None = None,
    stream: StreamLike | None = None,
    executor: Executor | None = None,
) -> DeviceBuffer:
    """Multiply `vectors` contiguous vectors of f32 by a weight (rows, columns) of blocks.

    The result is (vectors, rows) of f32. Sums are taken in f32. Raises `ArgumentTypeError` for
    other element types, `ArgumentValueError` for buffers too small and for a weight that begins at
    an odd address, `NotSupportedError` on GCUs.
    """
    told = block_format(format)
    op = _op_of(told)
    at = executor or DeviceExecutor.of(weight.device)
    blocks = _blocks_of(op, told, weight, rows, columns)
    for name, buffer in (("x", x), ("out", out)):
        if buffer is not None and buffer.dtype is not f32:
            raise ArgumentTypeError(f"{op.name}, {name}: expected f32, got {buffer.dtype}")
    if vectors < 0:
        raise ArgumentValueError(f"{op.name}: expected a number of vectors, got {vectors}")
    require_size(op, "x", x, vectors * columns)
    require_room(op, out, vectors * rows)
    question = Question(
        op,
        (
            (blocks.dtype, Layout.contiguous(blocks.size)),
            (f32, Layout.contiguous((vectors, columns))),
        ),
        (f32, Layout.contiguous((vectors, rows))),
    )
    return enqueued(at, question, stream, out, blocks, x)


def quantize(values: Array, format: BlockFormat | str) -> npt.NDArray[np.uint8]:
    """Quantize the last axis of an array: the bytes of its blocks, row after row.

    q4_0 and q8_0 give ggml's bytes. q4_K scales each group of 32 by its extremes, without ggml's
    search for smaller errors.
    """
    told = block_format(format)
    values = np.asarray(values, np.float32)
    told.row_bytes(values.shape[-1] if values.ndim else 1)
    blocks = told.encode(values.reshape(-1, told.elements))
    return np.frombuffer(blocks.tobytes(), np.uint8)


def dequantize(blocks: Array | bytes, format: BlockFormat | str) -> npt.NDArray[np.float32]:
    """Return the elements of blocks, one after the other."""
    told = block_format(format)
    raw = np.frombuffer(blocks, np.uint8)
    if raw.size % told.block_bytes:
        raise ArgumentValueError(
            f"{told.name}: expected whole blocks of {told.block_bytes} bytes, got {raw.size}"
        )
    return told.decode(raw.view(told.layout)).astype(np.float32).ravel()


def block_format(format: BlockFormat | str) -> BlockFormat:
    """Return the format of a name. Raises `ArgumentValueError` for one that is not in `FORMATS`."""
    found = FORMATS.get(format) if isinstance(format, str) else format
    if found is None:
        raise ArgumentValueError(f"no block format {format!r}; there are {', '.join(FORMATS)}")
    return found


def _op_of(format: BlockFormat) -> Op:
    return OPS[f"matvec_{format.name}"]


def _blocks_of(
    op: Op, format: BlockFormat, weight: DeviceBuffer, rows: int, columns: int
) -> DeviceBuffer:
    """The blocks of a weight, by words; refuses what is no weight of this size."""
    if rows < 0:
        raise ArgumentValueError(f"{op.name}: expected a number of rows, got {rows}")
    size = rows * format.row_bytes(columns)
    require_size(op, "weight", weight, size)
    if weight.dtype is not u8:
        raise ArgumentTypeError(f"{op.name}, 'weight': expected blocks as u8, got {weight.dtype}")
    try:
        return weight[:size].view(format.word)
    except ArgumentValueError as error:
        raise ArgumentValueError(
            f"{op.name}, 'weight': expected blocks at a multiple of {format.word.itemsize} bytes: "
            "copy a slice of a file to a buffer of its own"
        ) from error


# -- formats -------------------------------------------------------------------------------------


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


def _decode_q4_0(blocks: Array) -> Array:
    quants = np.concatenate([blocks["quants"] & 15, blocks["quants"] >> 4], 1)
    values: Array = (quants.astype(np.float32) - 8) * blocks["scale"].astype(np.float32)[:, None]
    return values


def _encode_q8_0(values: Array) -> Array:
    scale = (np.abs(values).max(1, keepdims=True) / np.float32(127)).astype(np.float32)
    blocks = np.zeros(len(values), _Q8_0)
    blocks["scale"] = scale[:, 0]
    blocks["quants"] = _away(values * _inverse(scale))
    return blocks


def _decode_q8_0(blocks: Array) -> Array:
    values: Array = blocks["quants"].astype(np.float32)
    return values * blocks["scale"].astype(np.float32)[:, None]


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


def _decode_q4_k(blocks: Array) -> Array:
    levels = blocks["levels"]
    first, second, both = levels[:, 0:4], levels[:, 4:8], levels[:, 8:12]
    scales = np.concatenate([first & 63, both & 15 | first >> 6 << 4], 1).astype(np.float32)
    minimums = np.concatenate([second & 63, both >> 4 | second >> 6 << 4], 1).astype(np.float32)
    bytes_ = blocks["quants"].reshape(-1, 4, 1, 32)
    quants = np.concatenate([bytes_ & 15, bytes_ >> 4], 2).reshape(-1, 8, 32)
    scale, minimum = (blocks[one].astype(np.float32)[:, None] for one in ("scale", "minimum"))
    steps, lowest = (scale * scales)[:, :, None], (minimum * minimums)[:, :, None]
    values: Array = steps * quants - lowest
    return values.reshape(-1, 256)


_Q4_0 = np.dtype([("scale", "<f2"), ("quants", "u1", 16)])
_Q8_0 = np.dtype([("scale", "<f2"), ("quants", "i1", 32)])
_Q4_K = np.dtype(
    [("scale", "<f2"), ("minimum", "<f2"), ("levels", "u1", 12), ("quants", "u1", 128)]
)

FORMATS = {
    one.name: one
    for one in (
        BlockFormat("q4_0", 32, _Q4_0, u16, _encode_q4_0, _decode_q4_0),
        BlockFormat("q8_0", 32, _Q8_0, u16, _encode_q8_0, _decode_q8_0),
        BlockFormat("q4_K", 256, _Q4_K, u32, _encode_q4_k, _decode_q4_k),
    )
}
"""Name to format. The layouts are ggml's (ggml-common.h: block_q4_0, block_q8_0, block_q4_K);
`ubridge/kernels/quantized.cu` restates them for compilers."""
