// Fuses three operations into one pass over memory: a bias, GELU, and a residual.
#include <uhal/kernel.h>

KERNEL(bias_gelu_add, (u64 n, u32 columns, const f32 *x, const f32 *bias, const f32 *residual,
                       f32 *out))
{
    GRID_STRIDE(i, n) {
        const f32 h = x[i] + bias[i % columns];
        const f32 u = 0.7978845608f * (h + 0.044715f * h * h * h);
        out[i] = residual[i] + 0.5f * h * (1.0f + tanhf(u));
    }
}
