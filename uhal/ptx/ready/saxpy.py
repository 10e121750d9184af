"""y = a · x + y."""

from __future__ import annotations

import functools
from typing import Any

from uhal.ptx import Kernel, Type, f32, fma, global_index, global_size, kernel
from uhal.ptx.ready.vectors import load, spans, store


@functools.cache
def saxpy(of: Type = f32) -> Kernel:
    """Return `saxpy(u32 n, f32 a, const T* x, T* y)`, for any grid and block.

    A thread processes 16 bytes at once; choose a grid that gives each thread several spans.
    """

    @kernel(f"u32 n, f32 a, const {of}* x, {of}* y")
    def saxpy(n: Any, a: Any, x: Any, y: Any) -> None:
        for i, count in spans(n, global_index(), global_size(), x, y):
            pairs = zip(load(x, i, count), load(y, i, count), strict=True)
            store(y, i, [fma(a, one, other) for one, other in pairs])

    return saxpy
