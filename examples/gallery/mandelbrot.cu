// Escape speed of each point of a rectangle of the plane under z -> z * z + c.
#include <uhal/kernel.h>

KERNEL(mandelbrot, (u32 width, u32 height, f32 left, f32 top, f32 step, u32 limit, f32 *out))
{
    GRID_STRIDE(i, static_cast<u64>(width) * height) {
        const f32 cx = left + step * static_cast<f32>(i % width);
        const f32 cy = top - step * static_cast<f32>(i / width);
        f32 x = 0.0f, y = 0.0f, size = 0.0f;
        u32 round = 0;
        for (; round < limit && size < 256.0f; round++) {
            const f32 next = x * x - y * y + cx;
            y = 2.0f * x * y + cy;
            x = next;
            size = x * x + y * y;
        }
        // The overshoot becomes a fraction of a round, so that colours change smoothly.
        out[i] = round == limit ? 0.0f : static_cast<f32>(round) + 4.0f - log2f(log2f(size));
    }
}
