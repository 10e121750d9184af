"""Prints whether a runtime keeps a work-item's loaded value across a barrier.

python repeated_load.py local|global

The runtime itself compiles the text, and uhal launches it, so uhal's compiler plays no part.
"""

from __future__ import annotations

import sys

import numpy as np

import opencl_backend.compile
from uhal import Device, DeviceBuffer, Module

TEXT = """
#define WAIT() barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)
kernel void k(global int *x, global int *out, global int *shared_by_all) {
    local int of_block[64];
    MEMORY int *w = PLACE;
    int t = get_local_id(0);
    w[t] = x[t];
    WAIT();
    int first = w[t & ~31];
    WAIT();
    out[t] = first;
    w[t] = 1000 + x[t];
    WAIT();
    int other = w[t & ~31];
    WAIT();
    if (t == 77777) out[t] = other;
}
"""
PLACES = {"local": "of_block", "global": "shared_by_all"}


def main(memory: str) -> bool:
    """Launch the kernel on one block."""
    image = opencl_backend.compile.opencl_c(TEXT, f"-DMEMORY={memory} -DPLACE={PLACES[memory]}")
    with Device(0, "opencl"), Module.from_bytes(image) as module:
        x = np.arange(64, dtype="i4")
        out, shared = DeviceBuffer.zeros(64, "i32"), DeviceBuffer.zeros(64, "i32")
        kernel = module.get_function("k", "const i32 *x, i32 *out, i32 *shared_by_all")
        kernel[1, 64](DeviceBuffer.from_numpy(x), out, shared)
        return bool(np.array_equal(out.to_numpy(), x & ~31))


if __name__ == "__main__":
    print(main(sys.argv[1]))
