"""Kernels for tests of the host runtime, and a way to run them in a Python process."""

from __future__ import annotations

import ctypes
import subprocess

from tests.children import run_program

KERNELS = """
#include <uhal/kernel.h>
KERNEL(saxpy, (u64 n, f32 a, const f32 *x, f32 *y)) {
    GRID_STRIDE(i, n) { y[i] = a * x[i] + y[i]; }
}
KERNEL(affine, (u64 n, u32 factor, u32 addend, u32 *x)) {
    GRID_STRIDE(i, n) { x[i] = x[i] * factor + addend; }
}
KERNEL(empty, ()) {}
KERNEL(coordinates, (u32 *out)) {
    THREADS(t) {
        const u32 block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
        const u32 at = block * blockDim.x * blockDim.y * blockDim.z + t;
        out[at] = block * 1000 + THREAD_X(t) + 10 * THREAD_Y(t) + 100 * THREAD_Z(t);
    }
}
KERNEL_BOUNDED(row_sums, 256, (u32 columns, const f32 *x, f32 *out)) {
    DYNAMIC_SHARED(f32, partial);
    REGISTER(f32, sum, 256);
    THREADS(t) { sum(t) = 0; }
    for (u32 first = 0; first < columns; first += blockDim.x) {
        THREADS(t) {
            if (first + t < columns) sum(t) += x[u64(blockIdx.x) * columns + first + t];
        }
    }
    THREADS(t) { partial[t] = sum(t); }
    BARRIER();
    for (u32 half = blockDim.x / 2; half > 0; half /= 2) {
        THREADS(t) { if (t < half) partial[t] += partial[t + half]; }
        BARRIER();
    }
    THREADS(t) { if (t == 0) out[blockIdx.x] = partial[0]; }
}
KERNEL(where_is_shared, (u64 *out)) {
    DYNAMIC_SHARED(u8, scratch);
    for (u32 i = 0; i < this->dynamic_shared_bytes; ++i) scratch[i] = u8(i);
    out[blockIdx.x] = u64(reinterpret_cast<uintptr_t>(scratch));
}
struct Pair { u16 first; f64 second; u8 third; };
KERNEL(aggregate, (u8 before, Pair pair, i16 after, f64 *out)) {
    out[0] = before + pair.first + pair.second + pair.third + after;
}
KERNEL(count_blocks, (u32 spins, u32 *out)) {
    volatile u32 work = 0;
    for (u32 i = 0; i < spins; ++i) work = work + 1;
    out[blockIdx.x] += 1;
}
DEVICE_GLOBAL(u32, counter, 4);
KERNEL(count, ()) { counter[0] += 1; }
KERNEL(throws, (u32 code)) { if (code != 0) throw std::runtime_error("no such row"); }
"""


def u32(value: int) -> ctypes.c_uint32:
    return ctypes.c_uint32(value)


def u64(value: int) -> ctypes.c_uint64:
    return ctypes.c_uint64(value)


def run_script(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a separate process, where a device may be lost."""
    prelude = (
        "import ctypes, os, sys, threading\n"
        "import numpy as np\n"
        "from tests.host_runtime.driver import *\n"
        "from tests.host_kernels import build\n"
        "from tests.host_runtime.kernels import KERNELS, u32, u64\n"
        "driver = Driver()\n"
        "module = driver.load(build(KERNELS))\n"
    )
    return run_program(prelude + script, **environment)
