// One source for CPUs and GPUs. The compiled kernel includes the names and types of its parameters.
#include <uhal/kernel.h>

// y = a x + y, and the change of each element.
KERNEL(saxpy, (u64 n, f32 a, const f32 *x, f32 *y, f32 *moved))
{
    GRID_STRIDE(i, n) {
        moved[i] = a * x[i];
        y[i] += moved[i];
    }
}
