"""A Q4_K matrix times a vector of bytes, by dot products of four bytes (`dp4a`)."""

from __future__ import annotations

import functools
import operator
from typing import Any

from uhal import ptx
from uhal.ptx import dot4, f16, f32, fma, i32, if_, loop, select, u32, u64, unpack, variable
from uhal.ptx.ready.blocks import warp_reduce

WARPS, WORDS = 4, 36
"""Warps of a block; words of a super-block of 256 weights, which is 144 bytes in GGUF."""


@functools.cache
def q4k_gemv() -> ptx.Kernel:
    """Return `q4k_gemv(u32 rows, u32 k, const u32* w, const i32* x, const f32* scales, f32* out)`.

    w is (rows, k / 256) super-blocks of GGUF's Q4_K, x signed bytes, four a word, with one scale
    for each 32 of them; k is a multiple of 256. Grid ⌈rows / 4⌉, block 128: a warp for each row.
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
            # A lane takes every fourth super-block, and in it one of eight groups of 32 weights.
            group = lane & 7
            for block in loop(lane >> 3, k >> 8, 4):
                at = own.at(block * WORDS)
                d, least = (f32(one) for one in unpack(at[0], f16))
                words = [(at[1 + i] >> (group & 3) * 8) & 255 for i in range(3)]
                low, high = words[2] & 15, words[2] >> 4
                early = group < 4
                scale = select(early, words[0] & 63, low | (words[0] >> 6) << 4)
                minimum = select(early, words[1] & 63, high | (words[1] >> 6) << 4)
                dot, summed = variable(i32, 0), variable(i32, 0)
                for i in range(8):
                    packed = at[4 + i + (group >> 1) * 8] >> (group & 1) * 4
                    given = x[block * 64 + group * 8 + i]
                    dot.set(dot4(packed & 0x0F0F0F0F, given, dot))
                    summed.set(dot4(u32(0x01010101), given, summed))
                part = d * f32(scale) * f32(dot) - least * f32(minimum) * f32(summed)
                total.set(fma(part, scales[block * 8 + group], total))
            whole = warp_reduce(total.copy(), operator.add)
            with if_(lane == 0):
                out[row] = whole

    return q4k_gemv
