"""Quantized weights: elements, and products with vectors, as plans and `launch_*`."""

from __future__ import annotations

from typing import Any

from ubridge.core.block_formats import BlockFormat, activation_bytes, block_format
from ubridge.core.fits import require
from ubridge.core.layout import Layout
from ubridge.core.operand_checks import whole_number
from ubridge.core.operation import Op
from ubridge.definitions.products import (
    ACTIVATIONS,
    BLOCK_ELEMENTS,
    INDEXED_PRODUCT,
    QUANTIZED_MATVEC,
    QUANTIZED_PRODUCT,
)
from ubridge.device.executor import Executor
from ubridge.ops.engine import Plan, Value, ask, run_into
from ubridge.ops.launching import tensor_of
from ubridge.ops.results import require_size
from uhal import DeviceBuffer, DType
from uhal.dtypes import DTypeLike, as_dtype, f32, u8
from uhal.errors import ArgumentTypeError, ArgumentValueError
from uhal.interop import StreamLike


def blocks_of(
    op: Op,
    format: BlockFormat,
    weight: DeviceBuffer,
    rows: int,
    columns: int,
    executor: Executor | None = None,
) -> Value:
    """Return the blocks of a weight as words; refuse a buffer of another size."""
    require(rows >= 0, f"{op.name}: expected a number of rows, got {rows}")
    size = rows * format.row_bytes(columns)
    require_size(op, "weight", weight, size)
    if weight.dtype is not u8:
        raise ArgumentTypeError(f"{op.name}, 'weight': expected blocks as u8, got {weight.dtype}")
    try:
        words = weight[:size].view(format.word)
    except ArgumentValueError as error:
        raise ArgumentValueError(
            f"{op.name}, 'weight': expected blocks at a multiple of {format.word.itemsize} bytes: "
            "copy a slice of a file to a buffer of its own"
        ) from error
    return tensor_of(op, "weight", words, Layout.contiguous(words.size), executor)


def plan_block_elements(
    format: BlockFormat, weight: Value, rows: int, columns: int, dtype: DType, like: Value = None
) -> Plan:
    """Plan the elements of blocks, (rows, columns)."""
    layout = Layout.contiguous((rows, columns))
    return ask(BLOCK_ELEMENTS, (weight,), dtype, layout, like=like, format=format.name)


def plan_matvec(format: BlockFormat, weight: Value, x: Value, rows: int) -> Plan:
    """Plan products (vectors, rows) of f32 vectors and a weight's rows."""
    layout = Layout.contiguous((x.shape[0], rows))
    return ask(QUANTIZED_MATVEC, (weight, x), f32, layout, like=x, format=format.name)


def plan_activations(format: BlockFormat, x: Value) -> Plan:
    """Plan the rounding of vectors to 8 bits, for products with a format's weights.

    The bytes depend on the device: Q8_0 or Q8_K on the host, Q8_1 on GPUs. They are valid for all
    formats with the same `BlockFormat.activations`.
    """
    vectors, columns = x.shape
    format.row_bytes(columns)
    layout = Layout.contiguous((vectors, activation_bytes(columns)))
    return ask(ACTIVATIONS, (x,), u8, layout, elements=format.activations)


def plan_block_product(
    format: BlockFormat,
    weight: Value,
    x: Value,
    rows: int,
    columns: int,
    dtype: DType,
    *ids: Value,
    **flags: bool,
) -> Plan:
    """Plan products (vectors, rows) of 8-bit vectors and a weight's rows.

    With ids (tokens, used) of several weights, the products are (tokens, used, rows).
    """
    op, outer = (INDEXED_PRODUCT, ids[0].shape) if ids else (QUANTIZED_PRODUCT, x.shape[:1])
    layout = Layout.contiguous((*outer, rows))
    attributes: dict[str, Any] = {"format": format.name, "columns": columns, **flags}
    return ask(op, (weight, x, *ids), dtype, layout, like=x, **attributes)


def launch_dequantize(
    format: BlockFormat | str,
    weight: DeviceBuffer,
    rows: int,
    columns: int,
    *,
    dtype: DTypeLike = f32,
    out: DeviceBuffer | None = None,
    stream: StreamLike | None = None,
    executor: Executor | None = None,
) -> DeviceBuffer:
    """Compute the elements of a weight of blocks.

    The weight is (rows, columns), the elements f32, f16 or bf16.

    Products of scales and integers are exact in f32, and the result is rounded once more to a
    narrower type. Raises as `launch_quantized_matvec` does.
    """
    chosen, op = block_format(format), BLOCK_ELEMENTS
    rows, columns = (whole_number(op.name, one) for one in (rows, columns))
    blocks = blocks_of(op, chosen, weight, rows, columns, executor)
    return run_into(
        plan_block_elements(chosen, blocks, rows, columns, as_dtype(dtype)), out, stream
    )


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
    """Multiply contiguous vectors of f32 by a weight of blocks.

    There are `vectors` vectors; the weight is (rows, columns).

    The result is (vectors, rows) of f32. Sums are taken in f32. Raises `ArgumentTypeError` for
    other element types, `ArgumentValueError` for small buffers and for a weight at an odd address,
    `NotSupportedError` on GCUs.
    """
    chosen, op = block_format(format), QUANTIZED_MATVEC
    rows, columns, vectors = (whole_number(op.name, one) for one in (rows, columns, vectors))
    blocks = blocks_of(op, chosen, weight, rows, columns, executor)
    given = tensor_of(op, "x", x, Layout.contiguous((vectors, columns)), executor)
    if given.dtype is not f32:
        raise ArgumentTypeError(f"{op.name}, x: expected f32, got {given.dtype}")
    return run_into(plan_matvec(chosen, blocks, given, rows), out, stream)


__all__ = ["launch_dequantize", "launch_quantized_matvec"]
