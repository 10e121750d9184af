"""Products of tensors: matrices by matrices, attention, and joins of keys and values."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from ubridge.buffers import product_launches
from ubridge.core.calls import named
from ubridge.core.layout import Layout, Shape
from ubridge.core.op_table import OPS
from ubridge.core.operand_checks import axis_of, one_shape, require_one_device, require_one_kind
from ubridge.core.product import MatmulChoice
from ubridge.core.promotion import promoted
from ubridge.device.executor import Answer
from ubridge.device.remembered import TensorData, launched, remembered
from ubridge.ops import answers
from ubridge.ops.elementwise import converted
from ubridge.ops.results import delivered, require_tensors
from ubridge.ops.strided import StridedTensor, Tensor
from uhal import DeviceBuffer, DType
from uhal.errors import ArgumentValueError
from uhal.interop import StreamLike

_ATTENTION = OPS["attention"]
_KV_CONCAT = OPS["kv_concat"]
_MATMUL = OPS["matmul"]


def asked_for_product(x: TensorData, y: Any = None) -> Answer | None:
    """Ask for a product of two tensors of one dtype; `matmul` casts or refuses others."""
    executor, dtype = x._executor, x._dtype
    if not isinstance(y, StridedTensor) or y._executor is not executor or y._dtype is not dtype:
        return None
    left, right = x._layout, y._layout
    key = (_MATMUL, dtype.code, left.words, right.words)
    return executor.answer(key, answers.matmul, dtype, left, right)


@remembered(asked_for_product)
def matmul(
    x: Tensor,
    y: Tensor,
    *,
    out: Tensor | None = None,
    stream: StreamLike | None = None,
) -> Tensor:
    """Return the matrix product of the last two axes; leading axes are broadcast.

    An operand of one axis is a row on the left and a column on the right, as in numpy. Transposed
    views cost no copy where kernels take strides.
    """
    if out is None and isinstance(x, StridedTensor):
        found = asked_for_product(x, y)
        if found is not None:
            made: Tensor = launched(found, stream, x, y)
            return made
    dtype, left, right = _operands(x, y)
    if x._dtype is not y._dtype:
        x, y = converted(x, dtype, stream=stream), converted(y, dtype, stream=stream)
    result = _result(left, right, x.ndim > 1, y.ndim > 1)

    def enqueue(output: DeviceBuffer | None) -> DeviceBuffer:
        return product_launches.launch_matmul(
            x._buffer, left, y._buffer, right, out=output, stream=stream, executor=x._executor
        )[0]

    if out is None:
        return x._made(enqueue(None), result, dtype)
    return delivered(_MATMUL, result.shape, dtype, out, (x, y), stream, enqueue)


@lru_cache(maxsize=4096)
def _result(left: Layout, right: Layout, has_rows: bool, has_columns: bool) -> Layout:
    """The layout of a product of matrices, of which one may be a row or a column."""
    batch = one_shape("matmul", Shape(left.shape[:-2]), Shape(right.shape[:-2]))
    rows = left.shape[-2:-1] if has_rows else ()
    columns = right.shape[-1:] if has_columns else ()
    return Layout.contiguous((*batch, *rows, *columns))


@named
def matmul_choice(x: Tensor, y: Tensor) -> MatmulChoice:
    """Say which kernel `matmul(x, y)` goes to, and why; nothing is launched.

    `DeviceExecutor.of(device).matmul_launches` counts the products of each kernel.
    """
    dtype, left, right = _operands(x, y)
    batch = one_shape("matmul", Shape(left.shape[:-2]), Shape(right.shape[:-2]))
    question = product_launches.product(
        dtype,
        left.broadcast_to((*batch, *left.shape[-2:])),
        right.broadcast_to((*batch, *right.shape[-2:])),
    )
    return x._executor.explain(question)


@named
def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    mask: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
    out: Tensor | None = None,
    stream: StreamLike | None = None,
) -> Tensor:
    """Return `softmax(query @ key.mT * scale + mask) @ value`.

    Queries are (batch, heads, queries, width), keys and values (batch, kv heads, keys, width), the
    mask broadcasts to (batch, heads, queries, keys). `scale` is by default 1 / sqrt(width). With
    `causal` the last query sees every key, and each query sees one key less than the next one. A
    query that sees no key, for the mask hides them all by -inf, gets zeros.
    """
    operands = [query, key, value] if mask is None else [query, key, value, mask]
    require_tensors("attention", *operands)
    require_one_kind("attention", *operands)
    if scale is None:
        scale = max(query.shape[-1:] or (1,)) ** -0.5 if query.size else 1.0
    factor = scale

    def enqueue(output: DeviceBuffer | None) -> DeviceBuffer:
        return product_launches.launch_attention(
            query._buffer, query._layout, key._buffer, key._layout, value._buffer, value._layout,
            factor, causal=causal, mask=None if mask is None else mask._buffer,
            mask_layout=None if mask is None else mask._layout,
            out=output, stream=stream, executor=query._executor,
        )  # fmt: skip

    return delivered(_ATTENTION, query.shape, query.dtype, out, tuple(operands), stream, enqueue)


@named
def kv_concat(
    x: Tensor,
    y: Tensor,
    axis: int,
    *,
    out: Tensor | None = None,
    stream: StreamLike | None = None,
) -> Tensor:
    """Join two tensors of one dtype along an axis in one launch."""
    require_tensors("kv_concat", x, y)
    require_one_kind("kv_concat", x, y)
    if out is None:
        buffer, shape = product_launches.launch_kv_concat(
            x._buffer, x._layout, y._buffer, y._layout, axis, stream=stream, executor=x._executor
        )
        return x._made(buffer, Layout.contiguous(shape), x.dtype)
    axis = axis_of("kv_concat", x.layout, axis)
    both = x.shape[axis] + (y.shape[axis] if y.ndim == x.ndim else 0)
    shape = Shape((*x.shape[:axis], both, *x.shape[axis + 1 :]))

    def enqueue(output: DeviceBuffer | None) -> DeviceBuffer:
        return product_launches.launch_kv_concat(
            x._buffer, x._layout, y._buffer, y._layout, axis,
            out=output, stream=stream, executor=x._executor,
        )[0]  # fmt: skip

    return delivered(_KV_CONCAT, shape, x.dtype, out, (x, y), stream, enqueue)


def _operands(x: Tensor, y: Tensor) -> tuple[DType, Layout, Layout]:
    """The dtype of a product and its operands as matrices; refuses operands that do not fit."""
    require_tensors("matmul", x, y)
    require_one_device("matmul", x, y)
    if not x.ndim or not y.ndim:
        raise ArgumentValueError(
            "matmul: input operand does not have enough dimensions (has 0, gufunc core with "
            "signature (n?,k),(k,m?)->(n?,m?) requires 1)"
        )
    dtype = promoted("matmul", x.dtype, y.dtype)
    left = _as_matrix(x.layout, x.dtype is dtype, 0)
    right = _as_matrix(y.layout, y.dtype is dtype, 1)
    if left.shape[-1] != right.shape[-2]:
        fits = y.ndim > 1 and left.shape[-1] == right.shape[-1]
        raise ArgumentValueError(
            "matmul: Input operand 1 has a mismatch in its core dimension 0, with gufunc signature "
            f"(n?,k),(k,m?)->(n?,m?) (size {right.shape[-2]} is different from {left.shape[-1]}): "
            f"got shapes {x.shape} and {y.shape}{'; x @ y.mT would fit' if fits else ''}"
        )
    return dtype, left, right


def _as_matrix(layout: Layout, stays: bool, axis: int) -> Layout:
    """An operand's layout with at least two axes; an operand that is cast becomes contiguous."""
    layout = layout if stays else Layout.contiguous(layout.shape)
    return layout if layout.rank > 1 else layout.expanded(axis)
