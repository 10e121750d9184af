"""The gate and the up projection of a vector, with SiLU between them, in one kernel."""

from __future__ import annotations

import functools
from typing import Any

from uhal.ptx import (
    Kernel,
    Type,
    block_index,
    f16,
    f32,
    fma,
    if_,
    kernel,
    loop,
    thread_index,
    u64,
    unpack,
    variable,
)
from uhal.ptx.ready.blocks import silu, warp_reduce

WARPS = 4


@functools.cache
def swiglu_gemv(of: Type = f16) -> Kernel:
    """Return `swiglu_gemv(u32 rows, u32 k, const u32* gate, const u32* up, const u32* x, T* out)`.

    out = silu(gate · x) · (up · x). The matrices are (rows, k) of T, and k is a multiple of 8. A
    word holds a pair of T. Grid ⌈rows / 4⌉, block 128: a warp for each row.
    """

    @kernel(
        f"u32 rows, u32 k, const u32* gate, const u32* up, const u32* x, {of}* out",
        max_threads=32 * WARPS,
    )
    def swiglu_gemv(rows: Any, k: Any, gate: Any, up: Any, x: Any, out: Any) -> None:
        lane, row = thread_index() & 31, block_index() * WARPS + (thread_index() >> 5)
        with if_(row < rows):
            start = u64(row) * u64(k >> 1)
            sums = [variable(f32, 0) for _ in range(2)]
            for i in loop(lane * 4, k >> 1, 128):
                given = x.load(i, 4)
                for matrix, total in zip((gate, up), sums, strict=True):
                    for word, other in zip(matrix.at(start).load(i, 4), given, strict=True):
                        for w, v in zip(unpack(word, of), unpack(other, of), strict=True):
                            total.set(fma(f32(w), f32(v), total))
            gated, upped = (warp_reduce(one.copy()) for one in sums)
            with if_(lane == 0):
                out[row] = of(silu(gated) * upped)

    return swiglu_gemv
