"""Causal attention, the softmax computed along with the sums."""

from __future__ import annotations

import functools
import math
import operator
from typing import Any

from uhal import ptx
from uhal.ptx import f32, fast_exp, fma, loop, maximum, u64, variable
from uhal.ptx.ready.blocks import warp_reduce


@functools.cache
def attention(of: ptx.Type = f32, width: int = 64) -> ptx.Kernel:
    """Return `attention(u32 queries, u32 keys, u32 group, f32 scale, const T* q, const T* k, ...)`.

    The others are `const T* v, T* out`. q and out are (heads, queries, width), k and v (heads /
    group, keys, width), width a multiple of 32; the last query sees all keys. Grid (queries,
    heads), block 32.
    """
    parts = width // 32

    signature = f"u32 queries, u32 keys, u32 group, f32 scale, const {of}* q, const {of}* k"

    @ptx.kernel(f"{signature}, const {of}* v, {of}* out", max_threads=32)
    def attention(
        queries: Any, keys: Any, group: Any, scale: Any, q: Any, k: Any, v: Any, out: Any
    ) -> None:
        lane, query, head = ptx.thread_index(), ptx.block_index("x"), ptx.block_index("y")
        own = u64(head * queries + query) * width + u64(lane)
        of_keys = u64(head // group) * u64(keys) * width + u64(lane)
        asked = [f32(q[own + 32 * part]) * scale for part in range(parts)]
        largest, total = variable(f32, -math.inf), variable(f32, 0)
        sums = [variable(f32, 0) for _ in range(parts)]
        for j in loop(keys - queries + query + 1):
            at = of_keys + u64(j) * width
            score = variable(f32, 0)
            for part, one in enumerate(asked):
                score.set(fma(one, f32(k[at + 32 * part]), score))
            dot = warp_reduce(score.copy(), operator.add)
            most = maximum(largest, dot)
            kept, weight = fast_exp(largest - most), fast_exp(dot - most)
            total.set(fma(total, kept, weight))
            for part, one in enumerate(sums):
                one.set(fma(one, kept, weight * f32(v[at + 32 * part])))
            largest.set(most)
        for part, one in enumerate(sums):
            out[own + 32 * part] = of(one / total)

    return attention
