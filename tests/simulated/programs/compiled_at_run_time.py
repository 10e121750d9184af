"""CUDA C++ compiled by NVRTC under the simulated driver, loaded and run by uhal."""

from __future__ import annotations

import sys

import numpy as np

import uhal.compile
from uhal import Api, DeviceBuffer, Module
from uhal.errors import DeviceError

SOURCE = """
extern "C" __global__ void activationf32(float *data, unsigned rows, unsigned columns, int kind) {
    const unsigned long long size = (unsigned long long)rows * columns;
    const unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
    for (unsigned long long i = blockIdx.x * blockDim.x + threadIdx.x; i < size; i += step) {
        data[i] = kind == 0 ? fmaxf(data[i], 0.0f) : data[i];
    }
}
"""

rng = np.random.default_rng(int(sys.argv[1]))
values = rng.standard_normal((int(rng.integers(1, 100)), 77), dtype=np.float32)
Api.quick_init(0, "cuda")
for options in ({}, {"arch": "compute_75"}):
    with Module.from_bytes(uhal.compile.cuda(SOURCE, options)) as module:
        assert module.chosen.description.startswith("PTX "), module.chosen
        relu = module.get_function("activationf32")
        with DeviceBuffer.from_numpy(values) as data:
            relu[5, 128](data, np.uint32(values.shape[0]), np.uint32(77), np.int32(0))
            found = data.to_numpy().reshape(values.shape)
        assert np.array_equal(found, np.maximum(values, 0))

# Compile for this device; the driver reads the machine code, and runs the host build.
cubin = uhal.compile.cuda(SOURCE, target="cubin")
with Module.from_bytes(cubin) as module:
    assert module.chosen.description == "cubin for sm_86", module.chosen

try:
    uhal.compile.cuda('extern "C" __global__ void broken() { undeclared(); }')
except DeviceError as error:
    assert "undeclared" in str(error), error
else:
    raise AssertionError("it compiled")
