"""A quantized matrix, or several of them: blocks of one of ggml's formats on a device."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from ubridge.core.block_formats import BlockFormat, block_format
from ubridge.core.fits import require
from ubridge.core.layout import Layout, Shape, checked_int
from ubridge.core.operand_checks import whole_number
from ubridge.definitions.calls import named
from ubridge.definitions.products import BLOCK_ELEMENTS
from ubridge.ops.blocks import blocks_of, launch_dequantize, plan_block_elements
from ubridge.ops.engine import run
from ubridge.ops.refusals import device_named, name_of
from ubridge.ops.selection import take
from ubridge.quantizing import quantize
from ubridge.tensor import DeviceTensor
from uhal import Device, DeviceBuffer
from uhal.device import DeviceLike
from uhal.dtypes import DTypeLike, as_dtype, f32
from uhal.interop import StreamLike

Array = npt.NDArray[Any]


class QuantizedWeight:
    """A quantized matrix (rows, columns) on a device, or several.

    Several matrices have three axes; they lie one after the other.

    A weight holds its buffer of u8. Any thread may use it.
    """

    # A dictionary, so that `help` and `inspect.getdoc` find the texts.
    __slots__ = {
        "__weakref__": "Weak references to it.",
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

        `shape` is (rows, columns) by default; experts of a layer have three axes. Raises
        `ArgumentValueError` for rows that are no whole number of blocks and for too small a buffer.
        """
        self.format = block_format(format)
        self.buffer = buffer
        self.rows = rows = whole_number("QuantizedWeight, rows", rows)
        self.columns = columns = whole_number("QuantizedWeight, columns", columns)
        self.shape = Shape((rows, columns) if shape is None else shape)
        require(
            self.shape and self.shape[-1] == columns and (prod(self.shape[:-1]) == rows),
            f"QuantizedWeight: expected a shape of {rows} rows of {columns}, got {self.shape}",
        )
        blocks_of(BLOCK_ELEMENTS, self.format, buffer, rows, columns)

    @classmethod
    def from_numpy(
        cls, values: Array, format: BlockFormat | str, *, device: DeviceLike | None = None
    ) -> QuantizedWeight:
        """Quantize a matrix and bring it to a device.

        The default is the current device.

        An array of three axes becomes a weight of several matrices.
        """
        values = np.asarray(values)
        require(
            values.ndim in (2, 3),
            f"quantize: expected a matrix, got shape {values.shape}; several have three axes",
        )
        blocks = np.frombuffer(quantize(values, format), np.uint8)
        rows, columns = prod(values.shape[:-1]), values.shape[-1]
        buffer = DeviceBuffer.from_numpy(blocks, device=device)
        return cls(buffer, format, rows, columns, shape=values.shape)

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
        """Copy blocks from a file or from `quantize` to a device."""
        raw = np.frombuffer(blocks, np.uint8)
        return cls(DeviceBuffer.from_numpy(raw, device=device), format, rows, columns)

    @property
    def nbytes(self) -> int:
        """Bytes of its blocks."""
        return self.rows * self.format.row_bytes(self.columns)

    @property
    def blocks(self) -> DeviceBuffer:
        """The blocks, without the rest of the buffer."""
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
            start = checked_int("QuantizedWeight, index", index)
            start += length if start < 0 else 0
            if not 0 <= start < length:
                raise IndexError(f"index {index} is out of bounds for an axis of {length}")
            stop, shape = start + 1, inner
        part = self.buffer[start * each : stop * each]
        return type(self)(part, self.format, prod(shape[:-1]), self.columns, shape=shape)

    @named
    def take(
        self,
        ids: Any,
        dtype: DTypeLike = f32,
        *,
        out: DeviceTensor | None = None,
        stream: StreamLike | None = None,
    ) -> DeviceTensor:
        """Return the elements of the rows at ids.

        The shape is the ids' shape, then the columns.

        It works like `ubridge.take` for a table, and reads tied embeddings. Ids out of bounds are
        refused in the same way.
        """
        row_bytes = self.format.row_bytes(self.columns)
        table = DeviceTensor(self.blocks, Layout.contiguous((self.rows, row_bytes)))
        rows = take(table, ids, stream=stream)
        count = prod(rows.shape[:-1])
        blocks = blocks_of(
            BLOCK_ELEMENTS, self.format, rows._buffer, count, self.columns, rows._executor
        )
        plan = plan_block_elements(
            self.format, blocks, count, self.columns, as_dtype(dtype), like=rows
        )
        return run(plan._viewed(Layout.contiguous((*rows.shape[:-1], self.columns))), out, stream)

    @property
    def device(self) -> Device:
        """Device of the blocks."""
        return self.buffer.device

    def dequantize(
        self, dtype: DTypeLike = f32, *, stream: StreamLike | None = None
    ) -> DeviceTensor:
        """Return the elements as a tensor of f32, f16 or bf16.

        The result has the weight's shape.
        """
        elements = launch_dequantize(
            self.format, self.buffer, self.rows, self.columns, dtype=dtype, stream=stream
        )
        return DeviceTensor(elements, Layout.contiguous(self.shape))

    def to_numpy(self) -> Array:
        """Return the elements as f32. Waits for the device."""
        return self.dequantize().to_numpy()

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickle like a tensor: its blocks on the host, and the device's name.
        told = (self.blocks.to_numpy(), self.format.name, tuple(self.shape), name_of(self.device))
        return _unpickled, (type(self), *told)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.format.name} of {tuple(self.shape)}>"


def _unpickled(
    kind: type[QuantizedWeight], blocks: Array, format: str, shape: tuple[int, ...], device: str
) -> QuantizedWeight:
    buffer = DeviceBuffer.from_numpy(blocks, device=device_named(device, "QuantizedWeight"))
    return kind(buffer, format, prod(shape[:-1]), shape[-1], shape=shape)
