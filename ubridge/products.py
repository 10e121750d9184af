"""Products of tensors: matrices by matrices, attention, and joins of keys and values."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from ubridge import product_launches
from ubridge.elementwise import astype, delivered, require_tensors
from ubridge.layout import Layout, Shape
from ubridge.product_choice import ProductChoice
from ubridge.promotion import promoted
from uhal import DeviceBuffer
from uhal.errors import ArgumentTypeError, ArgumentValueError, InvalidHandleError
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
    _require_one_device("matmul", x, y)
    if not x.ndim or not y.ndim:
        raise ArgumentValueError(
            "matmul: input operand does not have enough dimensions (has 0, gufunc core with "
            "signature (n?,k),(k,m?)->(n?,m?) requires 1)"
        )
    dtype = promoted("matmul", x.dtype, y.dtype)
    if x._dtype is not y._dtype:
        x, y = astype(x, dtype, stream=stream), astype(y, dtype, stream=stream)
    left, right, result = _matrices(x._layout, y._layout)

    def enqueue(place: DeviceBuffer | None) -> DeviceBuffer:
        return product_launches.launch_matmul(
            x._buffer, left, y._buffer, right, out=place, stream=stream, executor=x._executor
        )[0]

    if out is None:
        return x._made(enqueue(None), result, dtype)
    _require_apart("matmul", out, x, y)
    return delivered("matmul", result.shape, dtype, out, (x, y), stream, enqueue)


@lru_cache(maxsize=4096)
def _matrices(left: Layout, right: Layout) -> tuple[Layout, Layout, Layout]:
    """Two operands as matrices, a row on the left or a column on the right, and the result."""
    rows = left.shape[-2:-1]
    columns = right.shape[-1:] if right.rank > 1 else ()
    left = left if left.rank > 1 else left.expanded(0)
    right = right if right.rank > 1 else right.expanded(1)
    if left.shape[-1] != right.shape[-2]:
        raise ArgumentValueError(
            "matmul: Input operand 1 has a mismatch in its core dimension 0, with gufunc signature "
            f"(n?,k),(k,m?)->(n?,m?) (size {right.shape[-2]} is different from {left.shape[-1]})"
        )
    batch = Shape(left.shape[:-2]).broadcast_with(Shape(right.shape[:-2]))
    return left, right, Layout.contiguous((*batch, *rows, *columns))


def matmul_choice(x: DeviceTensor, y: DeviceTensor) -> ProductChoice:
    """Return which implementation `matmul(x, y)` takes, and why. Nothing is computed.

    Raises what `matmul` raises for the operands.
    """
    require_tensors("matmul", x, y)
    dtype = promoted("matmul", x.dtype, y.dtype)
    left, right, _ = _matrices(x._layout, y._layout)
    sizes = (left.shape[-2], right.shape[-1], left.shape[-1])
    return x._executor.lowering.matmul_choice(dtype, *sizes)


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
    for one in operands[1:]:
        _require_one_device("attention", query, one)
        if one.dtype is not query.dtype:
            raise ArgumentTypeError(
                f"attention: expected operands of one dtype, got {query.dtype} and {one.dtype}"
            )
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
    _require_one_device("kv_concat", x, y)
    if x.dtype is not y.dtype:
        raise ArgumentTypeError(
            f"kv_concat: expected operands of one dtype, got {x.dtype} and {y.dtype}"
        )
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


def _require_one_device(name: str, x: DeviceTensor, y: DeviceTensor) -> None:
    if x._executor is not y._executor:
        raise InvalidHandleError(
            f"{name}: expected operands on one device, got {x.device!r} and {y.device!r}"
        )


def _require_apart(name: str, out: object, *operands: DeviceTensor) -> None:
    """Refuse an output in an operand's memory, which would be read after it was written."""
    buffer = getattr(out, "_buffer", None)
    if buffer is not None and any(one._buffer is buffer for one in operands):
        raise ArgumentValueError(f"{name}, out: expected other memory than the operands'")
