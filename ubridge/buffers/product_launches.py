"""`launch_*` of products: matrices by matrices, attention, and joining keys and values."""

from __future__ import annotations

from functools import lru_cache
from math import prod

from ubridge.buffers import launches
from ubridge.buffers.indexed_launches import gathered
from ubridge.core.layout import Layout, Shape
from ubridge.core.op_table import OPS
from ubridge.core.operand_checks import axis_of, one_shape
from ubridge.core.question import Question
from ubridge.device.executor import DeviceExecutor, Executor
from uhal import DeviceBuffer, DType
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
    executor: Executor | None = None,
) -> tuple[DeviceBuffer, Shape]:
    """Multiply (…, m, k) by (…, k, n); leading axes are broadcast. Also return the result's shape.

    Sums of halves are taken in f32. Transposed operands cost no copy on CUDA, ROCm and the host.
    """
    at = executor or DeviceExecutor.of(a.device)
    left, right, shape = _product(a_layout, b_layout)
    launches.require_room(_MATMUL, out, shape.size)
    if shape.size and left.shape[-1] == 0:
        out = at.allocate(shape.size, a.dtype, stream) if out is None else out
        launches.launch_fill(out, Layout.contiguous(shape), 0, stream=stream, executor=at)
        return out, shape
    x, y = (
        launches.checked_operand(_MATMUL, "x", a, left),
        launches.checked_operand(_MATMUL, "y", b, right),
    )
    return launches.enqueued(at, product(a.dtype, left, right), stream, out, x, y), shape


@lru_cache(maxsize=4096)
def product(dtype: DType, left: Layout, right: Layout) -> Question:
    """Ask for products of matrices with the same leading axes."""
    shape = (*left.shape[:-1], right.shape[-1])
    operands = ((dtype, left.from_start), (dtype, right.from_start))
    return Question(_MATMUL, operands, (dtype, Layout.contiguous(shape)))


@lru_cache(maxsize=4096)
def _product(left: Layout, right: Layout) -> tuple[Layout, Layout, Shape]:
    """Both operands with their leading axes broadcast, and the result's shape."""
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
    executor: Executor | None = None,
) -> DeviceBuffer:
    """Compute `softmax(query @ key.mT * scale + mask) @ value`.

    Queries are (batch, heads, queries, width), keys and values (batch, kv heads, keys, width);
    neighboring heads share a kv head. A mask broadcasts to (batch, heads, queries, keys). With
    `causal` the last query sees every key, and each query sees one key less than the next one.
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
    launches.require_room(_ATTENTION, out, query_layout.size)
    given = [
        gathered(at, _ATTENTION, "query", query, query_layout, stream),
        gathered(at, _ATTENTION, "key", key, key_layout, stream),
        gathered(at, _ATTENTION, "value", value, value_layout, stream),
    ]
    whole = (query.dtype, Layout.contiguous(query_layout.shape))
    of_keys_and_values = (key.dtype, Layout.contiguous(key_layout.shape))
    operands = [whole, of_keys_and_values, of_keys_and_values]
    if mask is not None and mask_layout is not None:
        added, lies = _mask(at, mask, mask_layout, (batch, heads, queries, keys), stream)
        given.append(added)
        operands.append((mask.dtype, lies))
    question = Question(_ATTENTION, tuple(operands), whole, (("causal", bool(causal)),), 1)
    return launches.enqueued(at, question, stream, out, *given, scale)


def _mask(
    at: Executor,
    mask: DeviceBuffer,
    layout: Layout,
    scores: tuple[int, int, int, int],
    stream: StreamLike | None,
) -> tuple[DeviceBuffer, Layout]:
    """The mask as kernels take it: with contiguous rows for each query and key."""
    wanted = Shape(scores)
    if one_shape(_ATTENTION.name, layout.shape, wanted) != wanted:
        raise ArgumentValueError(
            f"attention: expected a mask that broadcasts to {wanted}, got {layout.shape}"
        )
    whole = layout.broadcast_to(wanted)
    if Layout(whole.shape[2:], whole.strides[2:]).is_contiguous:
        return launches.checked_operand(_ATTENTION, "mask", mask, whole), whole.from_start
    return gathered(at, _ATTENTION, "mask", mask, whole, stream), Layout.contiguous(wanted)


def launch_kv_concat(
    left: DeviceBuffer,
    left_layout: Layout,
    right: DeviceBuffer,
    right_layout: Layout,
    axis: int,
    *,
    out: DeviceBuffer | None = None,
    stream: StreamLike | None = None,
    executor: Executor | None = None,
) -> tuple[DeviceBuffer, Shape]:
    """Join two tensors along an axis in one launch. Also return the result's shape."""
    at = executor or DeviceExecutor.of(left.device)
    axis = axis_of(_KV_CONCAT.name, left_layout, axis)
    others = [(one[:axis], one[axis + 1 :]) for one in (left_layout.shape, right_layout.shape)]
    if left_layout.rank != right_layout.rank or others[0] != others[1]:
        raise ArgumentValueError(
            "kv_concat: all the input array dimensions except for the concatenation axis must "
            f"match exactly, got {left_layout.shape} and {right_layout.shape}"
        )
    both = left_layout.shape[axis] + right_layout.shape[axis]
    shape = Shape((*left_layout.shape[:axis], both, *left_layout.shape[axis + 1 :]))
    launches.require_room(_KV_CONCAT, out, shape.size)
    one = gathered(at, _KV_CONCAT, "x", left, left_layout, stream)
    other = gathered(at, _KV_CONCAT, "y", right, right_layout, stream)
    operands = tuple(
        (buffer.dtype, Layout.contiguous(layout.shape))
        for buffer, layout in ((left, left_layout), (right, right_layout))
    )
    result = (left.dtype, Layout.contiguous(shape))
    question = Question(_KV_CONCAT, operands, result, (("axis", axis),))
    return launches.enqueued(at, question, stream, out, one, other), shape


def elements_from(shape: Shape, axis: int) -> int:
    """Return the product of a shape's lengths from an axis on."""
    return prod(shape[axis:])
