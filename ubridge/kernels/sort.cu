// asort_{asc,desc}_<type>: the order of each row, one block a row; dst gets the indices. Stable in
// both directions, and a NaN is larger than any number.
//
// On a GPU a bitonic network in shared memory: the launch gives ncols_pad * 4 bytes, ncols_pad being
// the next power of two. A CPU merges in dst itself and needs none.
#include "number.h"

#include <uhal/kernel.h>

#if !KERNEL_ON_GPU
#include <algorithm>
#endif

template <class T> DEVICE_FUNCTION bool less(T a, T b)
{
    return a < b || (is_nan(b) && !is_nan(a));
}

// Whether element i stands before element j. Indices from ncols on are padding and stand last.
template <bool ascending, class T>
DEVICE_FUNCTION bool precedes(const T *row, u32 ncols, u32 i, u32 j)
{
    if (i >= ncols || j >= ncols)
        return i < j;
    const Compute<T> a = widen(row[i]);
    const Compute<T> b = widen(row[j]);
    if (ascending ? less(a, b) : less(b, a))
        return true;
    if (ascending ? less(b, a) : less(a, b))
        return false;
    return i < j;
}

template <bool ascending, class T>
DEVICE_FUNCTION void sort_row(BLOCK block, const T *row, u32 *dst, u32 ncols, u32 padded,
                              u32 *order)
{
#if KERNEL_ON_GPU
    const u32 threads = blockDim.x * blockDim.y * blockDim.z;
    THREADS_OF(block, t) {
        ROLLED for (u32 i = t; i < padded; i += threads)
            order[i] = i;
    }
    BARRIER();
    ROLLED for (u64 size = 2; size <= padded; size *= 2) {
        ROLLED for (u32 distance = u32(size / 2); distance > 0; distance /= 2) {
            THREADS_OF(block, t) {
                ROLLED for (u32 i = t; i < padded; i += threads) {
                    const u32 partner = i ^ distance;
                    if (partner <= i)
                        continue;
                    const u32 a = order[i];
                    const u32 b = order[partner];
                    const bool upward = (i & size) == 0;
                    if (precedes<ascending>(row, ncols, upward ? b : a, upward ? a : b)) {
                        order[i] = b;
                        order[partner] = a;
                    }
                }
            }
            BARRIER();
        }
    }
    THREADS_OF(block, t) {
        ROLLED for (u32 i = t; i < ncols; i += threads)
            dst[i] = order[i];
    }
#else
    (void)block;
    (void)padded;
    (void)order;
    for (u32 i = 0; i < ncols; ++i)
        dst[i] = i;
    std::sort(dst, dst + ncols,
              [=](u32 i, u32 j) { return precedes<ascending>(row, ncols, i, j); });
#endif
}

#define SORT(T)                                                                                    \
    KERNEL(asort_asc_##T, (const T *x, u32 *dst, i32 ncols, i32 ncols_pad))                        \
    {                                                                                              \
        DYNAMIC_SHARED(u32, order);                                                                \
        const u64 start = u64(blockIdx.x) * u32(ncols);                                            \
        sort_row<true>(THIS_BLOCK, x + start, dst + start, u32(ncols), u32(ncols_pad), order);     \
    }                                                                                              \
    KERNEL(asort_desc_##T, (const T *x, u32 *dst, i32 ncols, i32 ncols_pad))                       \
    {                                                                                              \
        DYNAMIC_SHARED(u32, order);                                                                \
        const u64 start = u64(blockIdx.x) * u32(ncols);                                            \
        sort_row<false>(THIS_BLOCK, x + start, dst + start, u32(ncols), u32(ncols_pad), order);    \
    }

SORT(bf16)
SORT(f16)
SORT(f32)
SORT(f64)
SORT(u8)
SORT(u32)
SORT(i16)
SORT(i32)
SORT(i64)
