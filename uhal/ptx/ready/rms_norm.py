"""Rows divided by the root of their mean square, times a weight."""

from __future__ import annotations

import functools
import operator
from typing import Any

from uhal.ptx import (
    Kernel,
    Type,
    block_index,
    f32,
    fma,
    kernel,
    sqrt,
    thread_index,
    u64,
    variable,
)
from uhal.ptx.ready.blocks import block_reduce
from uhal.ptx.ready.vectors import load, spans, store

THREADS = 128


@functools.cache
def rms_norm(of: Type = f32) -> Kernel:
    """Return `rms_norm(u32 columns, f32 epsilon, const T* x, const T* weight, T* out)`.

    A block of 128 threads for each row.
    """

    @kernel(
        f"u32 columns, f32 epsilon, const {of}* x, const {of}* weight, {of}* out",
        max_threads=THREADS,
    )
    def rms_norm(columns: Any, epsilon: Any, x: Any, weight: Any, out: Any) -> None:
        start = u64(block_index()) * u64(columns)
        row, result = x.at(start), out.at(start)
        squares = variable(f32, 0)
        for i, count in spans(columns, thread_index(), THREADS, row):
            for value in load(row, i, count):
                squares.set(fma(value, value, squares))
        mean = block_reduce(squares, operator.add, THREADS) / f32(columns)
        scale = 1 / sqrt(mean + epsilon)
        for i, count in spans(columns, thread_index(), THREADS, row, weight, result):
            pairs = zip(load(row, i, count), load(weight, i, count), strict=True)
            store(result, i, [value * scale * factor for value, factor in pairs])

    return rms_norm
