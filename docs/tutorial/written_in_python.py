"""Launch a kernel that is written in Python and compare it with numpy: written_in_python.py."""

import numpy as np

from uhal import Api, DeviceBuffer
from uhal.ptx import fast_tanh, fma, global_index, global_size, kernel, loop

ROWS, COLUMNS = 64, 768


@kernel("u32 n, u32 columns, const f32* x, const f32* bias, const f32* residual, f32* out")
def bias_gelu_add(n, columns, x, bias, residual, out):
    """GELU of x + bias, added to the residual."""
    for i in loop(global_index(), n, global_size()):
        h = x[i] + bias[i % columns]
        inner = fma(h * h * h, 0.044715, h) * 0.7978845608
        out[i] = residual[i] + h * 0.5 * (fast_tanh(inner) + 1)


device = Api.quick_init(backend="cuda")
rng = np.random.default_rng()
x, residual = rng.standard_normal((2, ROWS, COLUMNS), dtype=np.float32)
bias = rng.standard_normal(COLUMNS, dtype=np.float32)
out = DeviceBuffer.uninitialized(x.size, "f32")
inputs = [DeviceBuffer.from_numpy(one) for one in (x, bias, residual)]
bias_gelu_add[64, 256](x.size, COLUMNS, *inputs, out)

h = x.astype(np.float64) + bias
gelu = 0.5 * h * (1 + np.tanh(0.7978845608 * (h + 0.044715 * h**3)))
error = np.abs(out.to_numpy().reshape(x.shape) - (residual + gelu)).max()
print(f"{device.backend}: {device.name}")
print(f"largest difference from numpy in double precision: {error:.0e}")
assert error < 5e-3
