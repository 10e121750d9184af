"""Rotary position embedding."""

from __future__ import annotations

import functools
from typing import Any

from uhal.ptx import Kernel, Type, f32, global_index, if_, kernel, u64


@functools.cache
def rope(of: Type = f32) -> Kernel:
    """Return `rope(u32 tokens, u32 heads, u32 width, const f32* cos, const f32* sin, ...)`.

    The last parameters are `const T* x, T* out`, both (tokens, heads, width); x and out may be one
    buffer. Element i of a head is rotated with element i + width / 2; the tables are (tokens, width
    / 2). Launch a thread for each pair: tokens · heads · width / 2 in all.
    """
    signature = "u32 tokens, u32 heads, u32 width, const f32* cos, const f32* sin"

    @kernel(f"{signature}, const {of}* x, {of}* out")
    def rope(tokens: Any, heads: Any, width: Any, cos: Any, sin: Any, x: Any, out: Any) -> None:
        i = global_index()
        half = width >> 1
        with if_(i < tokens * heads * half):
            head, pair = i // half, i % half
            angle = head // heads * half + pair
            at = u64(head) * u64(width) + u64(pair)
            a, b = f32(x[at]), f32(x.at(half)[at])
            out[at] = of(a * cos[angle] - b * sin[angle])
            out.at(half)[at] = of(a * sin[angle] + b * cos[angle])

    return rope
