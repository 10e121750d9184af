"""Launch the fused kernel of an image and compare it with numpy: fused.py IMAGE [BACKEND]."""

import sys

import numpy as np

from uhal import Api, DeviceBuffer, LaunchConfig, Module, launch

SIGNATURE = "u64 n, u32 columns, const f32* x, const f32* bias, const f32* residual, f32* out"
ROWS, COLUMNS = 512, 768

image, *backend = sys.argv[1:]
device = Api.quick_init(backend=backend[0] if backend else None)
kernel = Module.from_file(image).get_function("bias_gelu_add", SIGNATURE)

rng = np.random.default_rng()
x, residual = rng.standard_normal((2, ROWS, COLUMNS), dtype=np.float32)
bias = rng.standard_normal(COLUMNS, dtype=np.float32)
out = DeviceBuffer.uninitialized(x.size, "f32")
inputs = [DeviceBuffer.from_numpy(one) for one in (x, bias, residual)]
launch(kernel, args=(x.size, COLUMNS, *inputs, out), config=LaunchConfig.for_num_elems(x.size))

h = x.astype(np.float64) + bias
gelu = 0.5 * h * (1 + np.tanh(0.7978845608 * (h + 0.044715 * h**3)))
error = np.abs(out.to_numpy().reshape(x.shape) - (residual + gelu)).max()
print(f"{device.backend}: {device.name}")
print(f"largest difference from numpy in double precision: {error:.0e}")
assert error < 1e-5
