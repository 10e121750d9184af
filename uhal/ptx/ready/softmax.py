"""Softmax of rows."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Iterator
from typing import Any

from uhal.ptx import (
    Kernel,
    Type,
    block_index,
    f32,
    fast_exp,
    kernel,
    maximum,
    thread_index,
    u64,
    variable,
)
from uhal.ptx.ready.blocks import block_reduce
from uhal.ptx.ready.vectors import load, spans, store

THREADS = 128


@functools.cache
def softmax(of: Type = f32) -> Kernel:
    """Return `softmax(u32 columns, const T* x, T* out)`: a block of 128 threads for each row."""

    @kernel(f"u32 columns, const {of}* x, {of}* out", max_threads=THREADS)
    def softmax(columns: Any, x: Any, out: Any) -> None:
        start = u64(block_index()) * u64(columns)
        row, result = x.at(start), out.at(start)

        def own() -> Iterator[Any]:
            return spans(columns, thread_index(), THREADS, row, result)

        largest = variable(f32, -math.inf)
        for i, count in own():
            largest.set(functools.reduce(maximum, [*load(row, i, count), largest]))
        most = block_reduce(largest, maximum, THREADS)
        total = variable(f32, 0)
        for i, count in own():
            for value in load(row, i, count):
                total += fast_exp(value - most)
        scale = 1 / block_reduce(total, operator.add, THREADS)
        for i, count in own():
            store(result, i, [fast_exp(value - most) * scale for value in load(row, i, count)])

    return softmax
