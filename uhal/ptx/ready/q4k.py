"""A Q4_K matrix times a vector of bytes, by dot products of four bytes (`dp4a`)."""

from __future__ import annotations

import functools
from typing import Any

from uhal import ptx
from uhal.ptx import dot4, f16, f32, fma, i32, if_, loop, select, u32, u64, unpack, variable
from uhal.ptx.ready.blocks import warp_reduce

WARPS, WORDS = 4, 36
"""Warps of a block; words of a super-block of 256 weights, which is 144 bytes in GGUF."""


@functools.cache
def q4k_gemv() -> ptx.Kernel:
    """Return `q4k_gemv(u32 rows, u32 k, const u32* w, const i32* x, const f32* scales, f32* out)`.

    w is (rows, k / 256) super-blocks of GGUF's Q4_K. x has signed bytes, four per word, with a
    scale for each 32 bytes. All operands begin at multiples of 16 bytes, and k is a multiple of
    256. Grid ⌈rows / 4⌉, block 128: a warp for each row.
    """

    @ptx.kernel(
        "u32 rows, u32 k, const u32* w, const i32* x, const f32* scales, f32* out",
        max_threads=32 * WARPS,
    )
    def q4k_gemv(rows: Any, k: Any, w: Any, x: Any, scales: Any, out: Any) -> None:
        lane, row = ptx.thread_index() & 31, ptx.block_index() * WARPS + (ptx.thread_index() >> 5)
        with if_(row < rows):
            total = variable(f32, 0)
            own = w.at(u64(row) * u64(k >> 8) * WORDS)
            # Eight lanes share a super-block. Each takes 16 bytes: weights of two groups of 32.
            part = lane & 7
            chunk, late, shift = part >> 1, part > 3, (part >> 1 & 1) * 16
            for block in loop(lane >> 3, k >> 8, 4):
                at = own.at(block * WORDS)
                head = at.load(0, 4)
                d, least = (f32(one) for one in unpack(head[0], f16))
                a, b, c = (one >> shift for one in head[1:])
                scale = select(late, (c & 0x0F0F) | (a & 0xC0C0) >> 2, a & 0x3F3F)
                minimum = select(late, (c >> 4 & 0x0F0F) | (b & 0xC0C0) >> 2, b & 0x3F3F)
                words = at.load(part * 4 + 4, 4)
                factors = scales.load(block * 8 + chunk * 2, 2)
                for upper, factor in enumerate(factors):
                    dot, summed = i32(0), i32(0)
                    given = x.load(block * 64 + chunk * 16 + (part & 1) * 4 + 8 * upper, 4)
                    for word, four in zip(words, given, strict=True):
                        dot = dot4(word >> 4 * upper & 0x0F0F0F0F, four, dot)
                        summed = dot4(u32(0x01010101), four, summed)
                    weight = d * f32(scale >> 8 * upper & 255) * f32(dot)
                    offset = least * f32(minimum >> 8 * upper & 255) * f32(summed)
                    total.set(fma(weight - offset, factor, total))
            whole = warp_reduce(total.copy())
            with if_(lane == 0):
                out[row] = whole

    return q4k_gemv
