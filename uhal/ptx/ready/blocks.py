"""Reductions over a warp and a block, for the other kernels."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence

from uhal.ptx import Value, barrier, f32, fast_exp, fma, if_, shared, shuffle, thread_index

Combine = Callable[[Value, Value], Value]


def warp_reduce(value: Value, combine: Combine = operator.add, lanes: int = 32) -> Value:
    """Combine the values of neighbouring lanes; each lane gets the result."""
    while lanes > 1:
        lanes //= 2
        value = combine(value, shuffle("bfly", value, lanes))
    return value


def block_reduce(value: Value, combine: Combine, threads: int) -> Value:
    """Combine the f32 values of a block of `threads` threads; each thread gets the result.

    `threads` is 32 times a power of two.
    """
    t, warps = thread_index(), threads // 32
    partial = shared(f32, warps)
    own = warp_reduce(value, combine)
    with if_((t & 31) == 0):
        partial[t >> 5] = own
    barrier()
    return warp_reduce(partial[t & (warps - 1)], combine, warps)


def dot(first: Sequence[Value], second: Sequence[Value], total: Value) -> Value:
    """Add products of f32 values to a sum, each by one fma."""
    for one, other in zip(first, second, strict=True):
        total = fma(one, other, total)
    return total


def silu(x: Value) -> Value:
    """Return x / (1 + e⁻ˣ) of an f32."""
    return x / (fast_exp(-x) + 1)
