// One source for CPUs and GPUs. Names and types of the parameters travel with the compiled kernel.
#include <uhal/kernel.h>

// y = a x + y, and how far each element moved.
KERNEL(saxpy, (u64 n, f32 a, const f32 *x, f32 *y, f32 *moved))
{
    GRID_STRIDE(i, n) {
        moved[i] = a * x[i];
        y[i] += moved[i];
    }
}
