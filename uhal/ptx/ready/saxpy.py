"""y = a · x + y."""

from __future__ import annotations

import functools
from typing import Any

from uhal.ptx import Kernel, Type, f32, global_index, global_size, kernel, loop


@functools.cache
def saxpy(of: Type = f32) -> Kernel:
    """Return `saxpy(u32 n, f32 a, const T* x, T* y)`, for any grid and block."""

    @kernel(f"u32 n, f32 a, const {of}* x, {of}* y")
    def saxpy(n: Any, a: Any, x: Any, y: Any) -> None:
        for i in loop(global_index(), n, global_size()):
            y[i] = of(a * f32(x[i]) + f32(y[i]))

    return saxpy
