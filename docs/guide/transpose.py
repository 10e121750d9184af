"""Transposes a matrix with a kernel of transpose.ptx: `python transpose.py KERNEL`."""

import sys

import numpy as np

from uhal import Api, DeviceBuffer, Module

N = 256
Api.quick_init(0, "cuda")
kernel = Module.from_file("transpose.ptx").get_function(sys.argv[1])
x = np.random.default_rng().random((N, N), np.float32)
y = DeviceBuffer.uninitialized(N * N, "f32")
kernel[(N // 32, N // 32), (32, 8)](DeviceBuffer.from_numpy(x), y, np.int32(N))
print("right" if np.array_equal(y.to_numpy().reshape(N, N), x.T) else "wrong")
