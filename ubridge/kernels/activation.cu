// Activation functions of the demo network, applied in place to a matrix of f32.
//
// `Exponential` takes the place of the platform's tanhf: every compiler then turns the loops into
// vector code, no mathematics library has to be linked, and a CPU and a GPU round the same way to
// within an ulp.
#include "exponential.h"

enum : i32 { RELU = 0, GELU = 1, LEAKY_RELU = 2, TANH = 3 };

DEVICE_FUNCTION f32 relu(f32 x)
{
    return x < 0.0f ? 0.0f : x;
}

DEVICE_FUNCTION f32 leaky_relu(f32 x)
{
    return x * (x < 0.0f ? 0.1f : 1.0f);
}

DEVICE_FUNCTION f32 hyperbolic_tangent(f32 x)
{
    // Beyond 10 the result is 1 in f32.
    const f32 magnitude = fabsf(x) > 10.0f ? 10.0f : fabsf(x);
    const f32 power = Exponential<>(2.0f * magnitude).less_one();
    return copysignf(power / (power + 2.0f), x);
}

// 0.5 x (1 + tanh u) with u = sqrt(2 / pi) (x + 0.044715 x^3), as x / (1 + e^-2u): the first form
// cancels for negative x. For negative x the code multiplies by e^u twice, once at the end, since
// e^-2u overflows below x = -10, where results are still normal numbers.
DEVICE_FUNCTION f32 gelu(f32 x)
{
    const f32 u = 0.797884561f * x * (1.0f + 0.044715f * x * x);
    const f32 magnitude = fabsf(u) > 87.0f ? 87.0f : fabsf(u);
    const f32 power = Exponential<>(-magnitude).value();
    // Below -11 the factor of x is 0 in f32. Minus infinity gives NaN, as in the formula above.
    const f32 rest = x < -20.0f ? 0.0f : x < 0.0f ? power : 1.0f;
    return x * rest / (1.0f + power * power) * rest;
}

// data: rows x cols values, replaced. An unknown kind fills them with NaN, the only way for this
// kernel to report the error.
KERNEL(activationf32, (f32 *data, u32 rows, u32 cols, i32 kind))
{
    const u64 count = (u64)rows * cols;
    switch (kind) {
    case RELU: {
        GRID_STRIDE(i, count) { data[i] = relu(data[i]); }
        break;
    }
    case GELU: {
        GRID_STRIDE(i, count) { data[i] = gelu(data[i]); }
        break;
    }
    case LEAKY_RELU: {
        GRID_STRIDE(i, count) { data[i] = leaky_relu(data[i]); }
        break;
    }
    case TANH: {
        GRID_STRIDE(i, count) { data[i] = hyperbolic_tangent(data[i]); }
        break;
    }
    default: {
        GRID_STRIDE(i, count) { data[i] = NAN; }
    }
    }
}
