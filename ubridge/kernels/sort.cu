// asort_{asc,desc}_<type>: the order of each row, one block a row; dst gets the indices. Stable in
// both directions, and a NaN is larger than any number.
//
// On a GPU a bitonic network sorts keys and indices in shared memory. The launch provides 8 bytes
// for each of ncols_pad elements (the next power of two), or 12 bytes for elements of 8 bytes. A
// CPU sorts in dst itself and needs no shared memory.
//
// For longer rows asort_runs_ sorts runs of each row, one block a run; each launch of asort_merge_
// joins pairs of neighbouring runs to runs of twice the length.
#include "sort_keys.h"

#include <uhal/kernel.h>

#if !KERNEL_ON_GPU
#include <algorithm>
#endif

#if KERNEL_ON_GPU

// Keys and indices in shared memory, word by word, so that neighbors lie in different banks. The
// highest word comes first, the index last.
template <class T> struct SharedKeys {
    static constexpr u32 WORDS = sizeof(T) > 4 ? 3 : 2;
    u32 *words;
    u32 count;

    DEVICE_METHOD u32 &at(u32 n, u32 place) const { return words[n * count + place]; }
    DEVICE_METHOD void set(u32 place, u64 key, u32 index) const
    {
        if constexpr (WORDS == 3)
            at(0, place) = u32(key >> 32);
        at(WORDS - 2, place) = u32(key);
        at(WORDS - 1, place) = index;
    }
    // Orders two places: upward the lower key first, and of equal keys the lower index.
    DEVICE_METHOD void order(u32 place, u32 partner, bool upward) const
    {
        u32 a[WORDS], b[WORDS];
        for (u32 n = 0; n < WORDS; ++n) {
            a[n] = at(n, place);
            b[n] = at(n, partner);
        }
        bool above = a[WORDS - 1] > b[WORDS - 1];
        for (u32 n = WORDS - 1; n-- > 0;)
            above = a[n] > b[n] || (a[n] == b[n] && above);
        if (above != upward)
            return;
        for (u32 n = 0; n < WORDS; ++n) {
            at(n, place) = b[n];
            at(n, partner) = a[n];
        }
    }
};

#endif

// dst gets the order of a row's elements, as indices that begin at `first`.
template <bool ascending, class T>
DEVICE_FUNCTION void sort_row(BLOCK block, const T *row, u32 *dst, u32 first, u32 ncols,
                              u32 padded, u32 *words)
{
#if KERNEL_ON_GPU
    const SharedKeys<T> keys = {words, padded};
    const u32 threads = blockDim.x * blockDim.y * blockDim.z;
    THREADS_OF(block, t) {
        // Padding comes last: it has the highest key and the highest indices.
        ROLLED for (u32 i = t; i < padded; i += threads)
            keys.set(i, i < ncols ? u64(key_of<ascending>(row[i])) : ~u64(0), i);
    }
    BARRIER();
    ROLLED for (u64 size = 2; size <= padded; size *= 2) {
        ROLLED for (u32 distance = u32(size / 2); distance > 0; distance /= 2) {
            THREADS_OF(block, t) {
                ROLLED for (u32 pair = t; pair < padded / 2; pair += threads) {
                    const u32 low = pair & (distance - 1);
                    const u32 place = 2 * (pair - low) + low;
                    keys.order(place, place + distance, (place & size) == 0);
                }
            }
            BARRIER();
        }
    }
    THREADS_OF(block, t) {
        ROLLED for (u32 i = t; i < ncols; i += threads)
            dst[i] = first + keys.at(SharedKeys<T>::WORDS - 1, i);
    }
#else
    (void)block;
    (void)padded;
    (void)words;
    for (u32 i = 0; i < ncols; ++i)
        dst[i] = i;
    std::sort(dst, dst + ncols, [=](u32 i, u32 j) {
        const auto a = key_of<ascending>(row[i]), b = key_of<ascending>(row[j]);
        return a < b || (a == b && i < j);
    });
    for (u32 i = 0; i < ncols; ++i)
        dst[i] += first;
#endif
}

// Elements that a work-item merges: a power of two that divides the length of every run.
#define MERGED (KERNEL_ON_GPU ? u64(8) : u64(1024))

template <class T> DEVICE_FUNCTION bool less(T a, T b)
{
    return a < b || (is_nan(b) && !is_nan(a));
}

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
        DYNAMIC_SHARED(u32, words);                                                                \
        const u64 start = u64(blockIdx.x) * u32(ncols);                                            \
        sort_row<ascending>(THIS_BLOCK, x + start, dst + start, 0, u32(ncols), u32(ncols_pad),     \
                            words);                                                                \
    }                                                                                              \
    KERNEL(asort_runs_##direction##_##T, (const T *x, u32 *dst, u64 ncols, u32 run))               \
    {                                                                                              \
        DYNAMIC_SHARED(u32, words);                                                                \
        const u64 runs = (ncols + run - 1) / run;                                                  \
        const u64 first = blockIdx.x % runs * run;                                                 \
        const u64 start = blockIdx.x / runs * ncols + first;                                       \
        const u32 count = u32(ncols - first < run ? ncols - first : run);                          \
        sort_row<ascending>(THIS_BLOCK, x + start, dst + start, u32(first), count, run, words);    \
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
