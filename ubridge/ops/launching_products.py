"""`launch_*` of products of matrices, attention, and joins of keys and values."""

from __future__ import annotations

from ubridge.core.layout import Layout, Shape
from ubridge.definitions.attention import ATTENTION, KV_CONCAT
from ubridge.definitions.products import MATMUL
from ubridge.device.executor import Executor
from ubridge.ops import products
from ubridge.ops.engine import run_into
from ubridge.ops.launching import operands_of, tensor_of
from uhal import DeviceBuffer
from uhal.interop import StreamLike


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
    """Multiply (…, m, k) by (…, k, n).

    Leading axes are broadcast. Also returns the result's shape.

    Sums of f16 and bf16 are taken in f32. Transposed operands cost no copy on CUDA, ROCm and the
    host.
    """
    x, y = operands_of(MATMUL, executor, (a, a_layout), (b, b_layout))
    plan = products.plan_product(x, y, a.dtype)
    return run_into(plan, out, stream), plan.shape


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
    `causal` the last query sees every key, and each query sees one key less than the next query.
    """
    plan = products.plan_attention(
        tensor_of(ATTENTION, "query", query, query_layout, executor),
        tensor_of(ATTENTION, "key", key, key_layout, executor),
        tensor_of(ATTENTION, "value", value, value_layout, executor),
        None
        if mask is None or mask_layout is None
        else tensor_of(ATTENTION, "mask", mask, mask_layout, executor),
        causal,
        scale,
    )
    return run_into(plan, out, stream)


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
    """Join two tensors along an axis in one launch.

    Also returns the result's shape.
    """
    x, y = operands_of(KV_CONCAT, executor, (left, left_layout), (right, right_layout))
    plan = products.plan_kv_concat(x, y, axis)
    return run_into(plan, out, stream), plan.shape


__all__ = ["launch_attention", "launch_kv_concat", "launch_matmul"]
