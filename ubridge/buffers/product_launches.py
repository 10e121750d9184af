"""The floor's products: matrices by matrices, attention, and what is joined for it."""

from __future__ import annotations

from functools import lru_cache
from math import prod

from ubridge.buffers import launches
from ubridge.buffers.indexed_launches import gathered
from ubridge.buffers.row_launches import target
from ubridge.core.layout import Layout, Shape
from ubridge.core.op_table import OPS
from ubridge.core.operand_checks import axis_of, one_shape
from ubridge.device.executor import DeviceExecutor
from uhal import DeviceBuffer
from uhal.errors import ArgumentValueError
from uhal.interop import StreamLike

_ATTENTION = OPS["attention"]
_KV_CONCAT = OPS["kv_concat"]
_MATMUL = OPS["matmul"]


def launch_matmul(
    a: DeviceBuffer,
    a_layout: Layout,
    b: DeviceBuffer,
    b_layout: Layout,
    *,
    out: DeviceBuffer | None = None,
    stream: StreamLike | None = None,
    executor: DeviceExecutor | None = None,
) -> tuple[DeviceBuffer, Shape]:
    """Multiply (…, m, k) by (…, k, n); leading axes are broadcast. Returns the result's shape too.

    Sums of halves are taken in f32. Transposed operands cost no copy on CUDA, ROCm and the host.
    """
    at = executor or DeviceExecutor.of(a.device)
    left, right, shape = _product(a_layout, b_layout)
    out = target(at, _MATMUL, a, shape.size, out, stream)
    if shape.size == 0:
        return out, shape
    if left.shape[-1] == 0:
        launches.launch_fill(out, Layout.contiguous(shape), 0, stream=stream, executor=at)
        return out, shape
    at.lowering.matmul(
        launches.place(_MATMUL, "x", a, left), left,
        launches.place(_MATMUL, "y", b, right), right, out, stream,
    )  # fmt: skip
    return out, shape


@lru_cache(maxsize=4096)
def _product(left: Layout, right: Layout) -> tuple[Layout, Layout, Shape]:
    """Both operands with all the products' leading axes, and the result's shape."""
    if left.rank < 2 or right.rank < 2 or left.shape[-1] != right.shape[-2]:
        raise ArgumentValueError(
            "matmul: input operands have a mismatch in their core dimensions, with signature "
            f"(n?,k),(k,m?)->(n?,m?): got shapes {left.shape} and {right.shape}"
        )
    m, k = left.shape[-2:]
    n = right.shape[-1]
    batch = one_shape(_MATMUL.name, Shape(left.shape[:-2]), Shape(right.shape[:-2]))
    shape = Shape((*batch, m, n))
    return left.broadcast_to((*batch, m, k)), right.broadcast_to((*batch, k, n)), shape


def launch_attention(
    query: DeviceBuffer,
    query_layout: Layout,
    key: DeviceBuffer,
    key_layout: Layout,
    value: DeviceBuffer,
    value_layout: Layout,
    scale: float,
    *,
    causal: bool = False,
    mask: DeviceBuffer | None = None,
    mask_layout: Layout | None = None,
    out: DeviceBuffer | None = None,
    stream: StreamLike | None = None,
    executor: DeviceExecutor | None = None,
) -> DeviceBuffer:
    """Weigh values by the softmax of `query @ key.T * scale + mask`.

    Queries are (batch, heads, queries, width), keys and values (batch, kv heads, keys, width);
    neighboring heads share one of them. A mask broadcasts to (batch, heads, queries, keys). With
    `causal` the last query sees every key and each one before it sees one less.
    """
    at = executor or DeviceExecutor.of(query.device)
    if query_layout.rank != 4 or key_layout.rank != 4 or key_layout.shape != value_layout.shape:
        raise ArgumentValueError(
            "attention: expected four axes, and keys and values of one shape, got "
            f"{query_layout.shape}, {key_layout.shape} and {value_layout.shape}"
        )
    batch, heads, queries, width = query_layout.shape
    of_keys, kv_heads, keys, key_width = key_layout.shape
    if of_keys != batch or key_width != width or kv_heads == 0 or heads % kv_heads or width > 256:
        raise ArgumentValueError(
            "attention: expected as many batches, a multiple of the kv heads, and a width of at "
            f"most 256 in both, got {query_layout.shape} for {key_layout.shape}"
        )
    out = target(at, _ATTENTION, query, query_layout.size, out, stream)
    if query_layout.size == 0:
        return out
    added = None
    strides: tuple[int, ...] = (0, 0)
    if mask is not None and mask_layout is not None:
        scores = Shape((batch, heads, queries, keys))
        if one_shape(_ATTENTION.name, mask_layout.shape, scores) != scores:
            raise ArgumentValueError(
                f"attention: expected a mask that broadcasts to {scores}, got {mask_layout.shape}"
            )
        whole = mask_layout.broadcast_to(scores)
        rows = Layout(whole.shape[2:], whole.strides[2:])
        if rows.is_contiguous:
            added, strides = launches.place(_ATTENTION, "mask", mask, whole), whole.strides[:2]
        else:
            added = gathered(at, _ATTENTION, "mask", mask, whole, stream)
            strides = (heads * queries * keys, queries * keys)
    q = gathered(at, _ATTENTION, "query", query, query_layout, stream)
    k = gathered(at, _ATTENTION, "key", key, key_layout, stream)
    v = gathered(at, _ATTENTION, "value", value, value_layout, stream)
    sizes = (heads, kv_heads, queries, keys, width, *strides)
    at.lowering.attention(q, k, v, added, out, sizes, scale, causal, batch, stream)
    return out


def launch_kv_concat(
    left: DeviceBuffer,
    left_layout: Layout,
    right: DeviceBuffer,
    right_layout: Layout,
    axis: int,
    *,
    out: DeviceBuffer | None = None,
    stream: StreamLike | None = None,
    executor: DeviceExecutor | None = None,
) -> tuple[DeviceBuffer, Shape]:
    """Join two tensors along an axis in one launch. Returns the result's shape too."""
    at = executor or DeviceExecutor.of(left.device)
    place = axis_of(_KV_CONCAT.name, left_layout, axis)
    others = [(one[:place], one[place + 1 :]) for one in (left_layout.shape, right_layout.shape)]
    if left_layout.rank != right_layout.rank or others[0] != others[1]:
        raise ArgumentValueError(
            "kv_concat: all the input array dimensions except for the concatenation axis must "
            f"match exactly, got {left_layout.shape} and {right_layout.shape}"
        )
    both = left_layout.shape[place] + right_layout.shape[place]
    shape = Shape((*left_layout.shape[:place], both, *left_layout.shape[place + 1 :]))
    out = target(at, _KV_CONCAT, left, shape.size, out, stream)
    if shape.size:
        one = gathered(at, _KV_CONCAT, "x", left, left_layout, stream)
        other = gathered(at, _KV_CONCAT, "y", right, right_layout, stream)
        shapes = (left_layout.shape, right_layout.shape)
        at.lowering.kv_concat(one, other, shapes, place, out, stream)
    return out, shape


def elements_from(shape: Shape, axis: int) -> int:
    """Return the elements of a tensor's axes from one on."""
    return prod(shape[axis:])
