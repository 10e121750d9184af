"""Results of a warp and of a block, for the other kernels."""

from __future__ import annotations

from collections.abc import Callable

from uhal.ptx import Value, barrier, f32, fast_exp, if_, shared, shuffle, thread_index, variable

Combine = Callable[[Value, Value], Value]


def warp_reduce(value: Value, combine: Combine) -> Value:
    """Combine the values of 32 lanes; every lane gets the result."""
    for distance in (16, 8, 4, 2, 1):
        value = combine(value, shuffle("bfly", value, distance))
    return value


def block_reduce(value: Value, combine: Combine, neutral: float, threads: int) -> Value:
    """Combine the f32 values of a block of so many threads; every thread gets the result."""
    t = thread_index()
    partial = shared(f32, threads // 32)
    own = warp_reduce(value, combine)
    with if_((t & 31) == 0):
        partial[t >> 5] = own
    barrier()
    lane = variable(f32, neutral)
    with if_((t & 31) < threads // 32):
        lane.set(partial[t & 31])
    return warp_reduce(lane.copy(), combine)


def silu(x: Value) -> Value:
    """Return x / (1 + e⁻ˣ) of an f32."""
    return x / (fast_exp(-x) + 1)
