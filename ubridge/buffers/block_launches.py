"""`launch_*` of weights of blocks: their elements, and their products with vectors."""

from __future__ import annotations

from ubridge.buffers.launches import enqueued, require_room, require_size
from ubridge.core.block_formats import BlockFormat, activation_bytes, block_format
from ubridge.core.layout import Layout
from ubridge.core.operand_checks import whole_number
from ubridge.core.operation import Op
from ubridge.core.question import Question
from ubridge.definitions.products import (
    ACTIVATIONS,
    BLOCK_ELEMENTS,
    INDEXED_PRODUCT,
    QUANTIZED_MATVEC,
    QUANTIZED_PRODUCT,
)
from ubridge.device.executor import DeviceExecutor, Executor
from uhal import DeviceBuffer
from uhal.dtypes import DTypeLike, as_dtype, f32, u8, u32
from uhal.errors import ArgumentTypeError, ArgumentValueError
from uhal.interop import StreamLike


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
    """Compute the elements of a weight (rows, columns) of blocks, as f32, f16 or bf16.

    Products of scales and integers are exact in f32, and the result is rounded once more to a
    narrower type. Raises as `launch_quantized_matvec` does.
    """
    told, wanted = block_format(format), as_dtype(dtype)
    op = BLOCK_ELEMENTS
    at = executor or DeviceExecutor.of(weight.device)
    rows, columns = _sizes(op, rows, columns)
    blocks = require_blocks(op, told, weight, rows, columns)
    if out is not None and out.dtype is not wanted:
        raise ArgumentTypeError(f"{op.name}, out: expected {wanted}, got {out.dtype}")
    require_room(op, out, rows * columns)
    question = Question(
        op,
        ((blocks.dtype, Layout.contiguous(blocks.size)),),
        (wanted, Layout.contiguous((rows, columns))),
        (("format", told.name),),
    )
    return enqueued(at, question, stream, out, blocks)


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
    op = QUANTIZED_MATVEC
    at = executor or DeviceExecutor.of(weight.device)
    rows, columns, vectors = _sizes(op, rows, columns, vectors)
    blocks = require_blocks(op, told, weight, rows, columns)
    for name, buffer in (("x", x), ("out", out)):
        if buffer is not None and buffer.dtype is not f32:
            raise ArgumentTypeError(f"{op.name}, {name}: expected f32, got {buffer.dtype}")
    _require_vectors(op, vectors)
    require_size(op, "x", x, vectors * columns)
    require_room(op, out, vectors * rows)
    question = Question(
        op,
        (
            (blocks.dtype, Layout.contiguous(blocks.size)),
            (f32, Layout.contiguous((vectors, columns))),
        ),
        (f32, Layout.contiguous((vectors, rows))),
        (("format", told.name),),
    )
    return enqueued(at, question, stream, out, blocks, x)


def launch_activations(
    format: BlockFormat | str,
    x: DeviceBuffer,
    vectors: int,
    columns: int,
    *,
    out: DeviceBuffer | None = None,
    stream: StreamLike | None = None,
    executor: Executor | None = None,
) -> DeviceBuffer:
    """Bring contiguous vectors of f32, f16 or bf16 to 8 bits, for products with a format's weights.

    The bytes are for the device that made them: as Q8_0 or Q8_K on the host, Q8_1 on GPUs. They
    serve all formats with the same `BlockFormat.activations`. A vector takes `activation_bytes` of
    its columns. Raises as `launch_quantized_matvec` does.
    """
    told = block_format(format)
    op = ACTIVATIONS
    at = executor or DeviceExecutor.of(x.device)
    told.row_bytes(columns)
    _require_vectors(op, vectors)
    require_size(op, "x", x, vectors * columns)
    shape = (vectors, activation_bytes(columns))
    if out is not None and out.dtype is not u8:
        raise ArgumentTypeError(f"{op.name}, out: expected u8, got {out.dtype}")
    require_room(op, out, shape[0] * shape[1])
    operand = (x.dtype, Layout.contiguous((vectors, columns)))
    attributes = (("elements", told.activations),)
    question = Question(op, (operand,), (u8, Layout.contiguous(shape)), attributes)
    return enqueued(at, question, stream, out, x)


def launch_quantized_product(
    format: BlockFormat | str,
    weight: DeviceBuffer,
    activations: DeviceBuffer,
    rows: int,
    columns: int,
    *,
    vectors: int = 1,
    dtype: DTypeLike = f32,
    out: DeviceBuffer | None = None,
    stream: StreamLike | None = None,
    executor: Executor | None = None,
) -> DeviceBuffer:
    """Multiply what `launch_activations` made of vectors by a weight (rows, columns) of blocks.

    The result is (vectors, rows) of f32, f16 or bf16. Integers are multiplied exactly, sums of
    their products are taken in f32 and rounded once. Raises as `launch_quantized_matvec` does.
    """
    told, wanted = block_format(format), as_dtype(dtype)
    op = QUANTIZED_PRODUCT
    at = executor or DeviceExecutor.of(weight.device)
    blocks = require_blocks(op, told, weight, rows, columns)
    _require_vectors(op, vectors)
    width = activation_bytes(columns)
    if activations.dtype is not u8:
        raise ArgumentTypeError(
            f"{op.name}, 'x': expected what launch_activations made, as u8, got {activations.dtype}"
        )
    require_size(op, "x", activations, vectors * width)
    if out is not None and out.dtype is not wanted:
        raise ArgumentTypeError(f"{op.name}, out: expected {wanted}, got {out.dtype}")
    require_room(op, out, vectors * rows)
    question = Question(
        op,
        (
            (blocks.dtype, Layout.contiguous(blocks.size)),
            (u8, Layout.contiguous((vectors, width))),
        ),
        (wanted, Layout.contiguous((vectors, rows))),
        (("format", told.name), ("columns", columns)),
    )
    return enqueued(at, question, stream, out, blocks, activations)


def launch_indexed_product(
    format: BlockFormat | str,
    weights: DeviceBuffer,
    activations: DeviceBuffer,
    ids: DeviceBuffer,
    shape: tuple[int, int, int],
    *,
    tokens: int,
    used: int,
    is_shared: bool = True,
    dtype: DTypeLike = f32,
    out: DeviceBuffer | None = None,
    stream: StreamLike | None = None,
    executor: Executor | None = None,
) -> DeviceBuffer:
    """Multiply vectors that `launch_activations` made by those of several weights that ids name.

    The weights lie one after the other, in a `shape` of (weights, rows, columns). The ids, u32, are
    (tokens, used); vectors are one for each token, or where not `is_shared` one for each id. The
    result is (tokens, used, rows) of f32, f16 or bf16. The device checks ids: one out of bounds
    gives numbers that mean nothing and an `IndexError` once the host waits. Raises as
    `launch_quantized_matvec` does.
    """
    told, wanted = block_format(format), as_dtype(dtype)
    op = INDEXED_PRODUCT
    at = executor or DeviceExecutor.of(weights.device)
    count, rows, columns = shape
    if min(count, rows, tokens, used) < 0:
        raise ArgumentValueError(f"{op.name}: expected counts, got {shape}, {tokens} and {used}")
    blocks = require_blocks(op, told, weights, count * rows, columns)
    width = activation_bytes(columns)
    vectors = tokens if is_shared else tokens * used
    for name, buffer, kind in (("x", activations, u8), ("ids", ids, u32)):
        if buffer.dtype is not kind:
            raise ArgumentTypeError(f"{op.name}, {name!r}: expected {kind}, got {buffer.dtype}")
    require_size(op, "x", activations, vectors * width)
    require_size(op, "ids", ids, tokens * used)
    if out is not None and out.dtype is not wanted:
        raise ArgumentTypeError(f"{op.name}, out: expected {wanted}, got {out.dtype}")
    require_room(op, out, tokens * used * rows)
    if count == 0 and tokens * used:
        raise IndexError(f"{op.name}: cannot choose from no weights")
    question = Question(
        op,
        (
            (blocks.dtype, Layout.contiguous(blocks.size)),
            (u8, Layout.contiguous((vectors, width))),
            (u32, Layout.contiguous((tokens, used))),
        ),
        (wanted, Layout.contiguous((tokens, used, rows))),
        (("format", told.name), ("columns", columns)),
    )
    return enqueued(at, question, stream, out, blocks, activations, ids)


def _sizes(op: Op, *sizes: int) -> tuple[int, ...]:
    """Numbers of rows, columns and vectors as ints."""
    return tuple(whole_number(op.name, one) for one in sizes)


def _require_vectors(op: Op, vectors: int) -> None:
    if vectors < 0:
        raise ArgumentValueError(f"{op.name}: expected a number of vectors, got {vectors}")


def require_blocks(
    op: Op, format: BlockFormat, weight: DeviceBuffer, rows: int, columns: int
) -> DeviceBuffer:
    """Return the blocks of a weight as words; refuse a buffer that is no weight of this size."""
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
