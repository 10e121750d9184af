// Two-dimensional convolution of the demo network: f32, row-major, valid, any launch geometry.
//
// As in neural networks, "convolution" means that the weights are not flipped.
#include "strip.h"

// input: height x width, weight: kh x kw, out: (height - kh + 1) x (width - kw + 1).
// If the weight is empty or larger than the input, nothing is written.
KERNEL(convolution, (const f32 *input, const f32 *weight, f32 *out, u32 width, u32 height, u32 kw,
                     u32 kh))
{
    if (kw == 0 || kh == 0 || kw > width || kh > height)
        return;
    const u32 out_width = width - kw + 1;
    const u32 out_height = height - kh + 1;
    const u32 strips_across = (out_width - 1) / STRIP + 1;

    GRID_STRIDE(strip, (u64)strips_across * out_height) {
        const u64 row = strip / strips_across;
        const u64 column = strip % strips_across * STRIP;
        const f32 *corner = input + row * width + column;
        f32 *result = out + row * out_width + column;
        Strip sums = {};
        if (column + STRIP <= out_width) {
            for (u32 y = 0; y < kh; ++y)
                for (u32 x = 0; x < kw; ++x)
                    add_multiple(sums, weight[(u64)y * kw + x], corner + (u64)y * width + x);
            store(sums, result, STRIP);
        } else {
            for (u32 j = 0; column + j < out_width; ++j) {
                f32 sum = 0.0f;
                for (u32 y = 0; y < kh; ++y)
                    for (u32 x = 0; x < kw; ++x)
                        sum += corner[(u64)y * width + x + j] * weight[(u64)y * kw + x];
                result[j] = sum;
            }
        }
    }
}
