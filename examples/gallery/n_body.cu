// Gravity between all pairs of bodies of mass 1 / n, in the plane.
#include <uhal/kernel.h>

#define TILE 256

KERNEL_BOUNDED(step, TILE, (u32 n, f32 dt, const f32 *x, const f32 *y, f32 *vx, f32 *vy,
                            f32 *next_x, f32 *next_y))
{
    SHARED(f32, tile_x, TILE);
    SHARED(f32, tile_y, TILE);
    REGISTER(f32, ax, TILE);
    REGISTER(f32, ay, TILE);
    const u32 mine = blockIdx.x * blockDim.x;
    THREADS(t) { ax(t) = ay(t) = 0.0f; }
    for (u32 first = 0; first < n; first += blockDim.x) {
        THREADS(t) {
            const u32 other = first + t;
            tile_x[t] = other < n ? x[other] : 0.0f;
            tile_y[t] = other < n ? y[other] : 0.0f;
        }
        BARRIER();
        const u32 count = n - first < blockDim.x ? n - first : blockDim.x;
        THREADS(t) {
            const u32 i = mine + t < n ? mine + t : 0;
            f32 sum_x = 0.0f, sum_y = 0.0f;
            for (u32 k = 0; k < count; k++) {
                const f32 dx = tile_x[k] - x[i], dy = tile_y[k] - y[i];
                const f32 square = dx * dx + dy * dy + 1e-3f; // softened: no pair collides
                const f32 pull = 1.0f / (square * sqrtf(square));
                sum_x += pull * dx;
                sum_y += pull * dy;
            }
            ax(t) += sum_x;
            ay(t) += sum_y;
        }
        BARRIER();
    }
    THREADS(t) {
        const u32 i = mine + t;
        if (i < n) {
            vx[i] += dt * ax(t) / static_cast<f32>(n);
            vy[i] += dt * ay(t) / static_cast<f32>(n);
            next_x[i] = x[i] + dt * vx[i];
            next_y[i] = y[i] + dt * vy[i];
        }
    }
}
