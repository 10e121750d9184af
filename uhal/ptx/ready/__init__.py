"""Kernels to use or to copy, each in a file of at most 60 lines.

Every function here returns a `Kernel` for an element type; equal arguments return the same object.
Sums are accumulated in f32. Each docstring has the grid and block of the launch.
"""

from __future__ import annotations

from uhal.ptx.ready.attention import attention
from uhal.ptx.ready.gemm import gemm
from uhal.ptx.ready.q4k import q4k_gemv
from uhal.ptx.ready.reduction import reduce_sum
from uhal.ptx.ready.rms_norm import rms_norm
from uhal.ptx.ready.rope import rope
from uhal.ptx.ready.saxpy import saxpy
from uhal.ptx.ready.softmax import softmax
from uhal.ptx.ready.swiglu import swiglu_gemv
from uhal.ptx.ready.tensor_gemm import tensor_gemm

__all__ = [
    "attention",
    "gemm",
    "q4k_gemv",
    "reduce_sum",
    "rms_norm",
    "rope",
    "saxpy",
    "softmax",
    "swiglu_gemv",
    "tensor_gemm",
]
