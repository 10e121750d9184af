"""Kernels written in Python, for CUDA devices, without a compiler.

    from uhal.ptx import f32, global_index, if_, kernel

    @kernel("u32 n, f32 a, const f32* x, f32* y")
    def saxpy(n, a, x, y):
        i = global_index()
        with if_(i < n):
            y[i] = a * x[i] + y[i]

    saxpy[grid, block](n, 2.0, x, y)

The function runs once and emits PTX, NVIDIA's assembly text, which the driver compiles. The
simulated driver runs the same text on a CPU.
"""

from __future__ import annotations

from uhal.ptx.control import break_, continue_, else_, exit_, if_, loop, while_
from uhal.ptx.conversions import bits_as
from uhal.ptx.functions import DeviceFunction, function, op, printf, text
from uhal.ptx.kernels import Kernel, kernel, load, text_of
from uhal.ptx.mathematics import (
    absolute,
    ceil,
    count_ones,
    dot4,
    fast_cos,
    fast_divide,
    fast_exp,
    fast_exp2,
    fast_log,
    fast_log2,
    fast_reciprocal,
    fast_rsqrt,
    fast_sin,
    fast_tanh,
    floor,
    fma,
    leading_zeros,
    maximum,
    minimum,
    multiply_high,
    reciprocal,
    reverse_bits,
    round_even,
    sqrt,
    trunc,
)
from uhal.ptx.memory import (
    Pointer,
    constant,
    copies_commit,
    copies_wait,
    copy_async,
    dynamic_shared,
    local,
    module_variable,
    shared,
)
from uhal.ptx.types import Type, bf16, f16, f32, f64, i8, i16, i32, i64, pred, u8, u16, u32, u64
from uhal.ptx.values import Value, Variable, select, variable
from uhal.ptx.warp import (
    active_mask,
    barrier,
    barrier_arrive,
    block_index,
    block_size,
    fence,
    global_index,
    global_size,
    grid_size,
    lane_index,
    load_matrices,
    match_any,
    multiply_matrices,
    pack,
    shuffle,
    special,
    thread_index,
    unpack,
    vote,
    warp_barrier,
    warp_reduce,
)

__all__ = ["DeviceFunction", "Kernel", "Pointer", "Type", "Value", "Variable"]
__all__ += ["kernel", "function", "load", "text_of", "variable", "select", "bits_as"]
__all__ += ["op", "printf", "text"]
__all__ += ["i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "f16", "bf16", "f32", "f64"]
__all__ += ["pred", "if_", "else_", "while_", "loop", "break_", "continue_", "exit_"]
__all__ += ["shared", "dynamic_shared", "local", "constant", "module_variable"]
__all__ += ["copy_async", "copies_commit", "copies_wait", "special", "lane_index"]
__all__ += ["thread_index", "block_index", "block_size", "grid_size"]
__all__ += ["global_index", "global_size"]
__all__ += ["barrier", "barrier_arrive", "warp_barrier", "fence"]
__all__ += ["shuffle", "vote", "match_any", "active_mask", "warp_reduce"]
__all__ += ["load_matrices", "multiply_matrices", "pack", "unpack"]
__all__ += ["fma", "minimum", "maximum", "absolute", "sqrt", "reciprocal"]
__all__ += ["floor", "ceil", "trunc", "round_even"]
__all__ += ["fast_exp", "fast_exp2", "fast_log", "fast_log2", "fast_sin", "fast_cos"]
__all__ += ["fast_tanh", "fast_rsqrt", "fast_reciprocal", "fast_divide"]
__all__ += ["count_ones", "leading_zeros", "reverse_bits", "multiply_high", "dot4"]
