// Kernels of this project. One source for every device: see uhal's docs/guide/your-own-kernels.md.
#include <uhal/atomics.h>
#include <uhal/kernel.h>
#include <uhal/warp.h>

// y = a * x + y
KERNEL(saxpy, (u64 n, f32 a, const f32 *x, f32 *y)) {
    GRID_STRIDE(i, n) {
        const f32 product = a * x[i];
        y[i] = product + y[i];
    }
}

// Adds up x: each block sums its share, and an atomic operation adds the blocks' sums.
KERNEL(sum, (u64 n, const f32 *x, f32 *total)) {
    REGISTER(f32, mine, MAX_THREADS);
    THREADS(t) {
        mine(t) = 0;
        for (u64 i = u64(blockIdx.x) * blockDim.x + t; i < n; i += u64(gridDim.x) * blockDim.x)
            mine(t) += x[i];
    }
    const f32 all = block_reduce(THIS_BLOCK, mine, Add());
    THREADS(t) {
        if (t == 0)
            atomic_add(total, all);
    }
}
