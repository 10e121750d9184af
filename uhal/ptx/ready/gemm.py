"""A product of matrices by tiles in shared memory."""

from __future__ import annotations

import functools
from typing import Any

from uhal.ptx import (
    Kernel,
    Type,
    barrier,
    block_index,
    f32,
    fma,
    if_,
    kernel,
    loop,
    shared,
    thread_index,
    u64,
    variable,
)

TILE = 16


@functools.cache
def gemm(of: Type = f32) -> Kernel:
    """Return `gemm(u32 m, u32 n, u32 k, const T* a, const T* b, T* c)`, C = A · B by rows.

    Grid (⌈n / 16⌉, ⌈m / 16⌉), block (16, 16).
    """

    @kernel(f"u32 m, u32 n, u32 k, const {of}* a, const {of}* b, {of}* c", max_threads=TILE * TILE)
    def gemm(m: Any, n: Any, k: Any, a: Any, b: Any, c: Any) -> None:
        tx, ty = thread_index("x"), thread_index("y")
        row, column = block_index("y") * TILE + ty, block_index("x") * TILE + tx
        tile_a, tile_b = shared(f32, TILE, TILE), shared(f32, TILE, TILE + 1)
        total = variable(f32, 0)
        for start in loop(0, k, TILE):
            tile_a[ty, tx] = 0.0
            tile_b[ty, tx] = 0.0
            with if_((row < m) & (start + tx < k)):
                tile_a[ty, tx] = f32(a[u64(row) * u64(k) + u64(start + tx)])
            with if_((start + ty < k) & (column < n)):
                tile_b[ty, tx] = f32(b[u64(start + ty) * u64(n) + u64(column)])
            barrier()
            for i in range(TILE):
                total.set(fma(tile_a[ty, i], tile_b[i, tx], total))
            barrier()
        with if_((row < m) & (column < n)):
            c[u64(row) * u64(n) + u64(column)] = of(total)

    return gemm
