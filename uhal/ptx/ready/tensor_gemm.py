"""A product of f16 or bf16 matrices by tensor cores, copies and products overlapped."""

from __future__ import annotations

import functools
import itertools
from typing import Any

from uhal import ptx
from uhal.ptx import f32, if_, select, u32, u64, variable

TILE, DEPTH, PITCH, SIZE = 64, 32, 40, 2 * 64 * 40
"""Rows of a block, elements of k a turn, from row to row without conflicts, and of a stage."""


@functools.cache
def tensor_gemm(of: ptx.Type = ptx.f16) -> ptx.Kernel:
    """Return `tensor_gemm(u32 m, u32 n, u32 k, const T* a, const T* b, f32* c)`, C = A · Bᵀ.

    A is (m, k), B (n, k), by rows; k is a multiple of 8, n of 2. Grid (⌈n/64⌉, ⌈m/64⌉), block 128.
    """

    @ptx.kernel(f"u32 m, u32 n, u32 k, const {of}* a, const {of}* b, f32* c", max_threads=128)
    def tensor_gemm(m: Any, n: Any, k: Any, a: Any, b: Any, c: Any) -> None:
        t, lane, warp = ptx.thread_index(), ptx.lane_index(), ptx.thread_index() >> 5
        tiles = ptx.shared(of, 2, 2, TILE, PITCH)
        first = (ptx.block_index("y") * TILE, ptx.block_index("x") * TILE)
        sums, stage = [[variable(f32, 0) for _ in range(4)] for _ in range(8)], variable(u32, 0)

        def begin(start: Any, stage: Any) -> None:
            for half, (matrix, base, rows) in enumerate(((a, first[0], m), (b, first[1], n))):
                for step in (0, 1):
                    row, column = (t + 128 * step) >> 2, ((t & 3) * 8) + start
                    inside = (base + row < rows) & (column < k)
                    at = select(inside, u64(base + row) * u64(k) + u64(column), u64(0))
                    to = stage * SIZE + half * TILE * PITCH + row * PITCH + (t & 3) * 8
                    ptx.copy_async(tiles.at(to), matrix.at(at), 16, u32(inside) * 16)
            ptx.copies_commit()

        begin(u32(0), stage)
        for start in ptx.loop(0, k, DEPTH):
            ptx.copies_wait()
            ptx.barrier()
            begin(start + DEPTH, stage ^ 1)  # behind the end it copies zeros
            for depth in (0, 16):
                at = (warp * 16 + (lane & 15)) * PITCH + (lane >> 4) * 8 + depth
                x = ptx.load_matrices(tiles.at(stage * SIZE + at), 4)
                for column in range(0, 8, 2):
                    row = (lane & 7) + (lane >> 4) * 8 + (TILE + 8 * column)
                    y = ptx.load_matrices(tiles.at(stage * SIZE + row * PITCH + (lane & 8) + depth))
                    for d, part in ((sums[column], y[:2]), (sums[column + 1], y[2:])):
                        ptx.multiply_matrices("m16n8k16", f"f32.{of}.{of}.f32", x, part, d, into=d)
            stage ^= 1
        for half, (column, tile) in itertools.product((0, 1), enumerate(sums)):
            row = first[0] + warp * 16 + (lane >> 2) + 8 * half
            at = first[1] + (lane & 3) * 2 + 8 * column
            with if_((row < m) & (at < n)):
                c.store(u64(row) * u64(n) + u64(at), tile[2 * half : 2 * half + 2])

    return tensor_gemm
