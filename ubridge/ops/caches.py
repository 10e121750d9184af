"""Caches of keys and values: what is generated is put at a position that the device knows."""

from __future__ import annotations

from math import prod

from ubridge.buffers import launches
from ubridge.buffers.indexed_launches import gathered
from ubridge.core.layout import Layout
from ubridge.core.op_table import OPS
from ubridge.core.question import Question
from ubridge.device.executor import DeviceExecutor, Executor
from ubridge.ops.results import require_tensors
from ubridge.ops.strided import Tensor
from uhal import DeviceBuffer
from uhal.dtypes import i64
from uhal.errors import ArgumentTypeError, ArgumentValueError, InvalidHandleError
from uhal.interop import StreamLike

_KV_APPEND = OPS["kv_append"]


def kv_append(
    cache: Tensor,
    source: Tensor,
    position: Tensor,
    *,
    stream: StreamLike | None = None,
) -> Tensor:
    """Write tokens into a cache from a position on, and return the cache.

    `cache` is (…, capacity, width) and contiguous, `source` (…, tokens, width); `position` is one
    i64, where the first token goes. The device reads it, so a graph can be given another one
    for each run. A position past the capacity is an `IndexError` with the next `to_numpy()`.
    """
    require_tensors(_KV_APPEND.name, cache, source, position)
    for one in (source, position):
        if one._executor is not cache._executor:
            raise InvalidHandleError(
                f"kv_append: expected operands on one device, got {cache.device!r} and "
                f"{one.device!r}"
            )
    launch_kv_append(
        cache._buffer, cache._layout, source._buffer, source._layout,
        position._buffer, position._layout, stream=stream, executor=cache._executor,
    )  # fmt: skip
    return cache


def launch_kv_append(
    cache: DeviceBuffer,
    cache_layout: Layout,
    source: DeviceBuffer,
    source_layout: Layout,
    position: DeviceBuffer,
    position_layout: Layout,
    *,
    stream: StreamLike | None = None,
    executor: Executor | None = None,
) -> None:
    """Write (…, tokens, width) into (…, capacity, width) from the position in `position` on."""
    at = executor or DeviceExecutor.of(cache.device)
    whole, given = cache_layout.shape, source_layout.shape
    if len(whole) < 2 or len(given) != len(whole) or given[:-2] != whole[:-2]:
        raise ArgumentValueError(
            f"kv_append: expected shapes (…, capacity, width) and (…, tokens, width), got {whole} "
            f"and {given}"
        )
    if given[-1] != whole[-1] or given[-2] > whole[-2]:
        raise ArgumentValueError(
            f"kv_append: expected tokens as wide as the cache and no more than it holds, got "
            f"{given} for {whole}"
        )
    if source.dtype is not cache.dtype or position.dtype is not i64 or position_layout.size != 1:
        raise ArgumentTypeError(
            f"kv_append: expected a source of the cache's dtype {cache.dtype} and a position of "
            f"one i64, got {source.dtype} and {position_layout.size} of {position.dtype}"
        )
    if not cache_layout.is_contiguous:
        raise ArgumentValueError(
            "kv_append: expected a contiguous cache, as it is changed in place"
        )
    if source_layout.size == 0:
        return
    target = launches.checked_operand(_KV_APPEND, "cache", cache, cache_layout)
    values = gathered(at, _KV_APPEND, "source", source, source_layout, stream)
    where = launches.checked_operand(_KV_APPEND, "position", position, position_layout)
    rows = prod(whole[:-2])
    question = Question(
        _KV_APPEND,
        (
            (source.dtype, Layout.contiguous((rows, *given[-2:]))),
            (position.dtype, Layout.contiguous(1)),
        ),
        (cache.dtype, Layout.contiguous((rows, *whole[-2:]))),
    )
    at.run(question, stream, target, values, where)


__all__ = ["kv_append", "launch_kv_append"]
