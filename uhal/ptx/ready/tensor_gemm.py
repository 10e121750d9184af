"""A product of f16 or bf16 matrices by tensor cores, copies and products overlapped."""

from __future__ import annotations

import functools
from typing import Any

from uhal import ptx
from uhal.ptx import block_index, f32, if_, select, thread_index, u32, u64, variable
from uhal.ptx.ready.tiles import swizzled

TILE, DEPTH, MATRIX = 64, 32, 64 * 32  # rows per block; k and elements per iteration


@functools.cache
def tensor_gemm(of: ptx.Type = ptx.f16) -> ptx.Kernel:
    """Return `tensor_gemm(u32 m, u32 n, u32 k, const T* a, const T* b, f32* c)`, C = A · Bᵀ.

    A is (m, k), B (n, k), by rows; k is a multiple of 8, n of 2. Grid (⌈n/64⌉, ⌈m/64⌉), block 128.
    """

    @ptx.kernel(f"u32 m, u32 n, u32 k, const {of}* a, const {of}* b, f32* c", max_threads=128)
    def tensor_gemm(m: Any, n: Any, k: Any, a: Any, b: Any, c: Any) -> None:
        t, lane, tiles = thread_index(), ptx.lane_index(), ptx.shared(of, 2, 2 * MATRIX)
        top, left, column = block_index("y") * TILE, block_index("x") * TILE, (t & 3) * 8
        sums, stage = [[variable(f32, 0) for _ in range(4)] for _ in range(8)], variable(u32, 0)
        sources, own = [], swizzled(t >> 2, t & 3)
        for matrix, row, rows in ((a, top + (t >> 2), m), (b, left + (t >> 2), n)):
            for one in (row, row + 32):
                sources.append((one < rows, matrix.at(u64(one) * u64(k) + u64(column))))

        def begin(start: Any, stage: Any) -> None:
            to, is_inside = tiles.at(stage * (2 * MATRIX) + own), column + start < k
            for i, (is_row, source) in enumerate(sources):
                used = select(is_row & is_inside, u32(16), 0)
                ptx.copy_async(to.at(i * 32 * DEPTH), source.at(start), 16, used)
            ptx.copies_commit()

        p, q = (t >> 5) * 16 + (lane & 15), (lane & 7) + (lane >> 4) * 8
        offsets = [(swizzled(p, lane >> 4 ^ d), swizzled(q, lane >> 3 & 1 ^ d)) for d in (0, 2)]
        begin(u32(0), stage)
        for start in ptx.loop(0, k, DEPTH):
            ptx.copies_wait()
            ptx.barrier()
            begin(start + DEPTH, stage ^ 1)  # beyond the end it copies zeros
            here = tiles.at(stage * (2 * MATRIX))
            for at_x, at_y in offsets:
                x, rows = ptx.load_matrices(here.at(at_x), 4), here.at(at_y).at(MATRIX)
                for i in range(0, 8, 2):
                    y = ptx.load_matrices(rows.at(8 * i * DEPTH), 4)
                    for d, part in ((sums[i], y[:2]), (sums[i + 1], y[2:])):
                        ptx.multiply_matrices("m16n8k16", f"f32.{of}.{of}.f32", x, part, d, into=d)
            stage ^= 1
        left, top = left + (lane & 3) * 2, top + (t >> 5) * 16 + (lane >> 2)
        for half, row in ((0, top), (2, top + 8)):
            for i, tile in enumerate(sums):
                with if_((row < m) & (left + 8 * i < n)):
                    c.at(u64(row) * u64(n) + u64(left)).store(8 * i, tile[half : half + 2])

    return tensor_gemm
