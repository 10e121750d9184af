"""Softmax of rows."""

from __future__ import annotations

import functools
import math
import operator
from typing import Any

from uhal.ptx import (
    Kernel,
    Type,
    block_index,
    f32,
    fast_exp,
    kernel,
    loop,
    maximum,
    thread_index,
    u64,
    variable,
)
from uhal.ptx.ready.blocks import block_reduce

THREADS = 128


@functools.cache
def softmax(of: Type = f32) -> Kernel:
    """Return `softmax(u32 columns, const T* x, T* out)`: a block of 128 threads for each row."""

    @kernel(f"u32 columns, const {of}* x, {of}* out", max_threads=THREADS)
    def softmax(columns: Any, x: Any, out: Any) -> None:
        start = u64(block_index()) * u64(columns)
        row, result = x.at(start), out.at(start)
        largest = variable(f32, -math.inf)
        for i in loop(thread_index(), columns, THREADS):
            largest.set(maximum(largest, f32(row[i])))
        most = block_reduce(largest, maximum, -math.inf, THREADS)
        total = variable(f32, 0)
        for i in loop(thread_index(), columns, THREADS):
            total += fast_exp(f32(row[i]) - most)
        scale = 1 / block_reduce(total, operator.add, 0, THREADS)
        for i in loop(thread_index(), columns, THREADS):
            result[i] = of(fast_exp(f32(row[i]) - most) * scale)

    return softmax
