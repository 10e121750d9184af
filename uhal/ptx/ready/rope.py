"""Rotary position embedding, in place."""

from __future__ import annotations

import functools
from typing import Any

from uhal.ptx import Kernel, Type, f32, global_index, if_, kernel, u64


@functools.cache
def rope(of: Type = f32) -> Kernel:
    """Return `rope(u32 tokens, u32 heads, u32 width, const f32* cos, const f32* sin, T* x)`.

    x is (tokens, heads, width); element i of a head turns with element i + width / 2. The tables
    are (tokens, width / 2). A thread for each pair: tokens · heads · width / 2 in all.
    """

    @kernel(f"u32 tokens, u32 heads, u32 width, const f32* cos, const f32* sin, {of}* x")
    def rope(tokens: Any, heads: Any, width: Any, cos: Any, sin: Any, x: Any) -> None:
        i = global_index()
        half = width >> 1
        with if_(i < tokens * heads * half):
            head, pair = i // half, i % half
            angle = head // heads * half + pair
            first = x.at(u64(head) * u64(width) + u64(pair))
            second = first.at(half)
            a, b = f32(first[0]), f32(second[0])
            first[0] = of(a * cos[angle] - b * sin[angle])
            second[0] = of(a * sin[angle] + b * cos[angle])

    return rope
