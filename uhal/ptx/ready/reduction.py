"""The sum of all elements."""

from __future__ import annotations

import functools
import operator
from typing import Any

from uhal.ptx import (
    Kernel,
    Type,
    f32,
    global_index,
    global_size,
    if_,
    kernel,
    thread_index,
    variable,
)
from uhal.ptx.ready.blocks import block_reduce
from uhal.ptx.ready.vectors import load, spans

THREADS = 256


@functools.cache
def reduce_sum(of: Type = f32) -> Kernel:
    """Return `reduce_sum(u32 n, const T* x, f32* out)`, for any grid and blocks of 256.

    Adds the sum to `out[0]` by an atomic addition per block.
    """

    @kernel(f"u32 n, const {of}* x, f32* out", max_threads=THREADS)
    def reduce_sum(n: Any, x: Any, out: Any) -> None:
        total = variable(f32, 0)
        for i, count in spans(n, global_index(), global_size(), x):
            for value in load(x, i, count):
                total += value
        whole = block_reduce(total, operator.add, THREADS)
        with if_(thread_index() == 0):
            out.atomic("add", 0, whole)

    return reduce_sum
