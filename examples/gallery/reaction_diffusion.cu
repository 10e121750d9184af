// One step of Gray and Scott's reaction on a torus: u is fed, v eats u, both spread.
#include <uhal/kernel.h>

DEVICE_FUNCTION f32 spread(const f32 *a, u32 up, u32 here, u32 down, u32 left, u32 column, u32 right)
{
    const f32 sides = a[up + column] + a[down + column] + a[here + left] + a[here + right];
    const f32 corners = a[up + left] + a[up + right] + a[down + left] + a[down + right];
    return 0.2f * sides + 0.05f * corners - a[here + column];
}

KERNEL(react, (u32 width, u32 height, f32 feed, f32 kill, const f32 *u, const f32 *v, f32 *next_u,
               f32 *next_v))
{
    GRID_STRIDE(i, static_cast<u64>(width) * height) {
        const u32 column = static_cast<u32>(i) % width, row = static_cast<u32>(i) / width;
        const u32 left = column == 0 ? width - 1 : column - 1;
        const u32 right = column == width - 1 ? 0 : column + 1;
        const u32 up = (row == 0 ? height - 1 : row - 1) * width;
        const u32 down = (row == height - 1 ? 0 : row + 1) * width;
        const u32 here = row * width;
        const f32 eaten = u[i] * v[i] * v[i];
        const f32 du = spread(u, up, here, down, left, column, right);
        const f32 dv = spread(v, up, here, down, left, column, right);
        next_u[i] = u[i] + du - eaten + feed * (1.0f - u[i]);
        next_v[i] = v[i] + 0.5f * dv + eaten - (kill + feed) * v[i];
    }
}
