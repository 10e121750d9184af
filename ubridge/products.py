"""Products of tensors: matrices by matrices, attention, and joins of keys and values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ubridge import product_launches
from ubridge.elementwise import astype, delivered, require_tensors
from ubridge.layout import Layout, Shape
from ubridge.operand_checks import require_one_device, require_one_kind
from ubridge.promotion import promoted
from uhal import DeviceBuffer
from uhal.errors import ArgumentValueError
from uhal.interop import StreamLike

if TYPE_CHECKING:
    from ubridge.tensor import DeviceTensor


def matmul(
    x: DeviceTensor,
    y: DeviceTensor,
    *,
    out: DeviceTensor | None = None,
    stream: StreamLike | None = None,
) -> DeviceTensor:
    """Return the matrix product of the last two axes; leading axes are broadcast.

    An operand of one axis is a row on the left and a column on the right, as in numpy. Transposed
    views cost no copy where kernels take strides.
    """
    require_tensors("matmul", x, y)
    require_one_device("matmul", x, y)
    if not x.ndim or not y.ndim:
        raise ArgumentValueError(
            "matmul: input operand does not have enough dimensions (has 0, gufunc core with "
            "signature (n?,k),(k,m?)->(n?,m?) requires 1)"
        )
    dtype = promoted("matmul", x.dtype, y.dtype)
    x, y = astype(x, dtype, stream=stream), astype(y, dtype, stream=stream)
    left = x.layout if x.ndim > 1 else x.layout.expanded(0)
    right = y.layout if y.ndim > 1 else y.layout.expanded(1)
    if left.shape[-1] != right.shape[-2]:
        raise ArgumentValueError(
            "matmul: Input operand 1 has a mismatch in its core dimension 0, with gufunc signature "
            f"(n?,k),(k,m?)->(n?,m?) (size {right.shape[-2]} is different from {left.shape[-1]})"
        )
    batch = Shape(left.shape[:-2]).broadcast_with(Shape(right.shape[:-2]))
    rows = left.shape[-2:-1] if x.ndim > 1 else ()
    columns = right.shape[-1:] if y.ndim > 1 else ()

    def enqueue(place: DeviceBuffer | None) -> DeviceBuffer:
        return product_launches.launch_matmul(
            x._buffer, left, y._buffer, right, out=place, stream=stream, executor=x._executor
        )[0]

    shape = Shape((*batch, *rows, *columns))
    _require_apart("matmul", out, x, y)
    return delivered("matmul", shape, dtype, out, (x, y), stream, enqueue)


def attention(
    query: DeviceTensor,
    key: DeviceTensor,
    value: DeviceTensor,
    *,
    mask: DeviceTensor | None = None,
    causal: bool = False,
    scale: float | None = None,
    out: DeviceTensor | None = None,
    stream: StreamLike | None = None,
) -> DeviceTensor:
    """Return values weighed by the softmax of `query @ key.mT * scale + mask`.

    Queries are (batch, heads, queries, width), keys and values (batch, kv heads, keys, width), the
    mask broadcasts to (batch, heads, queries, keys). `scale` is 1 / the root of the width unless
    given. With `causal` the last query sees every key and each one before it sees one less.
    """
    operands = [query, key, value] if mask is None else [query, key, value, mask]
    require_tensors("attention", *operands)
    require_one_kind("attention", *operands)
    if scale is None:
        scale = max(query.shape[-1:] or (1,)) ** -0.5 if query.size else 1.0
    factor = scale

    def enqueue(place: DeviceBuffer | None) -> DeviceBuffer:
        return product_launches.launch_attention(
            query._buffer, query._layout, key._buffer, key._layout, value._buffer, value._layout,
            factor, causal=causal, mask=None if mask is None else mask._buffer,
            mask_layout=None if mask is None else mask._layout,
            out=place, stream=stream, executor=query._executor,
        )  # fmt: skip

    _require_apart("attention", out, *operands)
    return delivered("attention", query.shape, query.dtype, out, tuple(operands), stream, enqueue)


def kv_concat(
    x: DeviceTensor,
    y: DeviceTensor,
    axis: int,
    *,
    out: DeviceTensor | None = None,
    stream: StreamLike | None = None,
) -> DeviceTensor:
    """Join two tensors of one dtype along an axis in one launch."""
    require_tensors("kv_concat", x, y)
    require_one_kind("kv_concat", x, y)
    if out is None:
        buffer, shape = product_launches.launch_kv_concat(
            x._buffer, x._layout, y._buffer, y._layout, axis, stream=stream, executor=x._executor
        )
        return x._made(buffer, Layout.contiguous(shape), x.dtype)
    _require_apart("kv_concat", out, x, y)
    place = x.layout.axis(axis)
    both = x.shape[place] + (y.shape[place] if y.ndim == x.ndim else 0)
    shape = Shape((*x.shape[:place], both, *x.shape[place + 1 :]))

    def enqueue(target: DeviceBuffer | None) -> DeviceBuffer:
        return product_launches.launch_kv_concat(
            x._buffer, x._layout, y._buffer, y._layout, axis,
            out=target, stream=stream, executor=x._executor,
        )[0]  # fmt: skip

    return delivered("kv_concat", shape, x.dtype, out, (x, y), stream, enqueue)


def _require_apart(name: str, out: object, *operands: DeviceTensor) -> None:
    """Refuse an output in an operand's memory, which would be read after it was written."""
    buffer = getattr(out, "_buffer", None)
    if buffer is not None and any(one._buffer is buffer for one in operands):
        raise ArgumentValueError(f"{name}, out: expected other memory than the operands'")
