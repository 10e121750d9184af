// asort_{asc,desc}_<type>: the order of each row, one block a row; dst gets the indices. Stable in
// both directions, and a NaN is larger than any number.
//
// On a GPU a bitonic network in shared memory: the launch gives ncols_pad * 4 bytes, ncols_pad being
// the next power of two. A CPU merges in dst itself and needs none.
//
// For longer rows asort_runs_ sorts runs of each row, one block a run; each launch of asort_merge_
// joins pairs of neighbouring runs to runs of twice the length.
#include "number.h"

#include <uhal/kernel.h>

#if !KERNEL_ON_GPU
#include <algorithm>
#endif

template <class T> DEVICE_FUNCTION bool less(T a, T b)
{
    return a < b || (is_nan(b) && !is_nan(a));
}

// Whether element i precedes element j. Indices from ncols on are padding and come last.
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

// dst gets the order of a row's elements, as indices that begin at `first`.
template <bool ascending, class T>
DEVICE_FUNCTION void sort_row(BLOCK block, const T *row, u32 *dst, u32 first, u32 ncols,
                              u32 padded, u32 *order)
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
            dst[i] = first + order[i];
    }
#else
    (void)block;
    (void)padded;
    (void)order;
    for (u32 i = 0; i < ncols; ++i)
        dst[i] = i;
    std::sort(dst, dst + ncols,
              [=](u32 i, u32 j) { return precedes<ascending>(row, ncols, i, j); });
    for (u32 i = 0; i < ncols; ++i)
        dst[i] += first;
#endif
}

// Elements that a work-item merges: a power of two that divides the length of every run.
#define MERGED (KERNEL_ON_GPU ? u64(8) : u64(1024))

// Elements begin … end of the merge of two sorted runs of a row. All indices of the left run are
// below the right run's. Bisection finds how many of the first `begin` come from the left run
// (Odeh, Green, Mwassi, Shmueli and Birk, "Merge path", 2012).
template <bool ascending, class T>
DEVICE_FUNCTION void merge(const T *row, const u32 *left, u64 lefts, const u32 *right, u64 rights,
                           u64 begin, u64 end, u32 *dst)
{
    const auto overtakes = [=](Compute<T> later, Compute<T> earlier) {
        return ascending ? less(later, earlier) : less(earlier, later);
    };
    u64 a = begin > rights ? begin - rights : 0;
    for (u64 most = begin < lefts ? begin : lefts; a < most;) {
        const u64 middle = (a + most) / 2;
        if (overtakes(widen(row[right[begin - 1 - middle]]), widen(row[left[middle]])))
            most = middle;
        else
            a = middle + 1;
    }
    u64 b = begin - a;
    u32 first = a < lefts ? left[a] : 0;
    u32 second = b < rights ? right[b] : 0;
    Compute<T> x = widen(row[first]);
    Compute<T> y = widen(row[second]);
    ROLLED for (u64 i = begin; i < end; ++i) {
        if (a < lefts && (b >= rights || !overtakes(y, x))) {
            dst[i] = first;
            if (++a < lefts)
                x = widen(row[first = left[a]]);
        } else {
            dst[i] = second;
            if (++b < rights)
                y = widen(row[second = right[b]]);
        }
    }
}

template <bool ascending, class T>
DEVICE_FUNCTION void merge_runs(BLOCK block, const T *x, const u32 *src, u32 *dst, u64 rows,
                                u64 ncols, u64 run)
{
    const u64 pieces = (ncols + MERGED - 1) / MERGED;
    GRID_STRIDE_OF(block, i, rows * pieces) {
        const u64 start = i / pieces * ncols;
        const u64 piece = i % pieces * MERGED;
        const u64 pair = piece / (2 * run) * (2 * run);
        const u64 left = ncols - pair < run ? ncols - pair : run;
        const u64 rest = ncols - pair - left;
        const u64 right = rest < run ? rest : run;
        const u64 begin = piece - pair;
        const u64 end = left + right < begin + MERGED ? left + right : begin + MERGED;
        const u32 *const runs = src + start + pair;
        merge<ascending>(x + start, runs, left, runs + left, right, begin, end, dst + start + pair);
    }
}

#define SORT_IN(direction, ascending, T)                                                           \
    KERNEL(asort_##direction##_##T, (const T *x, u32 *dst, i32 ncols, i32 ncols_pad))              \
    {                                                                                              \
        DYNAMIC_SHARED(u32, order);                                                                \
        const u64 start = u64(blockIdx.x) * u32(ncols);                                            \
        sort_row<ascending>(THIS_BLOCK, x + start, dst + start, 0, u32(ncols), u32(ncols_pad),     \
                            order);                                                                \
    }                                                                                              \
    KERNEL(asort_runs_##direction##_##T, (const T *x, u32 *dst, u64 ncols, u32 run))               \
    {                                                                                              \
        DYNAMIC_SHARED(u32, order);                                                                \
        const u64 runs = (ncols + run - 1) / run;                                                  \
        const u64 first = blockIdx.x % runs * run;                                                 \
        const u64 start = blockIdx.x / runs * ncols + first;                                       \
        const u32 count = u32(ncols - first < run ? ncols - first : run);                          \
        sort_row<ascending>(THIS_BLOCK, x + start, dst + start, u32(first), count, run, order);    \
    }                                                                                              \
    KERNEL(asort_merge_##direction##_##T,                                                          \
           (const T *x, const u32 *src, u32 *dst, u64 rows, u64 ncols, u64 run))                   \
    {                                                                                              \
        merge_runs<ascending>(THIS_BLOCK, x, src, dst, rows, ncols, run);                          \
    }

#define SORT(T)                                                                                    \
    SORT_IN(asc, true, T)                                                                          \
    SORT_IN(desc, false, T)

SORT(bf16)
SORT(f16)
SORT(f32)
SORT(f64)
SORT(u8)
SORT(u32)
SORT(i16)
SORT(i32)
SORT(i64)
